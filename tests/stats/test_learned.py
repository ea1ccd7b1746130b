"""A learned detector on tables whose truth is planted: it finds what only a combination tells, and nothing in noise."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.helpers.fresh_python import fresh_python
from unmask.stats import CalibrationSettings, NotEnough, auroc
from unmask.stats.learned import PENALTIES, fit_learned
from unmask.stats.protocol import HeldOutSet, LeakageError, ValidationSet, fit_calibration

SETTINGS = CalibrationSettings(seed=3)


def positive(table):
    """Where another action than the first is better."""
    q_SA = table.q_SAR.mean(2)
    return q_SA.max(1) > q_SA[:, 0] + 1e-9


class Featured:
    """States beside numbers of theirs."""

    def __init__(self, table, names, value_SN):
        self.table, self.features = table, pd.DataFrame(value_SN, columns=list(names))


def learn(featured, fixed=0):
    return fit_learned(featured.table, featured.features, fixed, SETTINGS)


def predict(detector, featured):
    return detector.predict(featured.table.signal_S, featured.features)


def noise(table, columns=5, seed=0):
    """Numbers that say nothing."""
    rng = np.random.default_rng([seed, len(table), isinstance(table, HeldOutSet)])
    return Featured(table, tuple(f"noise {k}" for k in range(columns)), rng.normal(size=(len(table), columns)))


def combined(table, how, seed=0):
    """Numbers of which none tells anything by itself, or next to nothing."""
    rng, found_S = np.random.default_rng([seed, isinstance(table, HeldOutSet)]), positive(table)
    if how == "difference":
        common_S = rng.normal(size=len(table))
        columns = [common_S, common_S + 0.3 * found_S]
    else:
        # Says whether the signal is to be believed, or its opposite.
        size_S = rng.uniform(0.2, 1.0, len(table))
        columns = [size_S * np.sign(table.signal_S) * np.where(found_S, 1, -1), rng.normal(size=len(table))]
    return Featured(table, ("one", "other"), np.stack(columns, 1))


def ranked(featured, predicted_S):
    """AUROC of a score at the states that have a signal."""
    there_S = ~np.isnan(featured.table.signal_S)
    return float(auroc(predicted_S[there_S], positive(featured.table)[there_S].astype(float))[0])


@pytest.mark.parametrize("how", ["difference", "product"])
def test_it_finds_what_only_a_combination_tells(world, how):
    validation, held_out = (combined(world(kind, 1, information=0.0), how) for kind in (ValidationSet, HeldOutSet))
    chosen = fit_calibration(validation.table, SETTINGS)
    detector = learn(validation, chosen.fixed.action)
    assert ranked(held_out, predict(detector, held_out)) > 0.85
    assert ranked(held_out, chosen.detector.predict(held_out.table.signal_S)) < 0.6
    for alone_S in held_out.features.to_numpy().T:
        assert abs(ranked(held_out, alone_S) - 0.5) < 0.1
    assert detector.tau.value is not None


def test_whatever_the_bins_can_say_it_can(world):
    """A signal that is high or low where opportunity is: no line through its ranks finds that."""

    def bent(kind):
        table = world(kind, 2, information=0.0)
        rng = np.random.default_rng(len(table))
        side_S = rng.choice([-1.0, 1.0], len(table)) * rng.uniform(1, 2, len(table))
        signal_S = np.where(positive(table), side_S, rng.uniform(-1, 1, len(table)))
        return noise(replace(table, signal_S=np.where(table.abstained_S, np.nan, signal_S)))

    validation, held_out = bent(ValidationSet), bent(HeldOutSet)
    detector = learn(validation)
    assert ranked(held_out, predict(detector, held_out)) > 0.95
    assert max(ranked(held_out, held_out.table.signal_S), ranked(held_out, -held_out.table.signal_S)) < 0.6


def test_nothing_can_be_fitted_to_held_out_states(world):
    with pytest.raises(LeakageError, match="allowed here: a ValidationSet"):
        learn(noise(world(HeldOutSet, 0)))


def test_the_threshold_is_chosen_out_of_fold(world):
    """Many numbers, none of which says anything: in sample they flatter, on other prompts they do not."""
    featured = noise(world(ValidationSet, 6, information=0.0, skill=0.0), columns=120)
    detector = learn(featured)
    assert ranked(featured, predict(detector, featured)) > 0.6
    assert detector.tau.value is None
    assert detector.tau.out_of_fold <= 0


def test_noise_is_shrunk_and_information_is_not(world):
    useless = learn(noise(world(ValidationSet, 7, information=0.0)))
    useful = learn(combined(world(ValidationSet, 7), "difference"))
    assert useful.penalty < useless.penalty
    assert useless.penalty in PENALTIES
    names = [name for name, _ in useful.sorted_weights()]
    assert set(names) == set(useful.names)
    assert {"one", "other"} <= set(names[:3])
    values = [abs(weight) for _, weight in useful.sorted_weights()]
    assert values == sorted(values, reverse=True)


def test_only_the_order_of_a_number_counts(world):
    featured = combined(world(ValidationSet, 9), "difference")
    stretched = Featured(featured.table, featured.features.columns, np.exp(3 * featured.features.to_numpy()))
    one, other = (learn(each) for each in (featured, stretched))
    assert np.array_equal(one.weight_M, other.weight_M)


def test_too_few_prompts(world):
    with pytest.raises(NotEnough, match="9 validation prompts have a state with a signal; 10 or more"):
        learn(noise(world(ValidationSet, 0, prompts=9)))


def test_bad_features_are_refused(world):
    made = world(ValidationSet, 0, prompts=10)
    for features in (pd.DataFrame(np.zeros((79, 1))), pd.DataFrame(np.full((80, 1), np.inf))):
        with pytest.raises(ValueError, match="rows for 80 states, or infinite"):
            fit_learned(made, features, 0, SETTINGS)
    with pytest.raises(ValueError, match="there are 2 inputs; this detector reads 6"):
        learn(noise(made)).predict(np.zeros(3), pd.DataFrame(np.zeros((3, 1))))


def test_a_light_install_needs_neither_pandas_nor_scikit_learn():
    """Gate files are opened without them."""
    heavy = "{'pandas', 'sklearn', 'scipy', 'torch'}"
    run = fresh_python(f"import sys, unmask.stats; assert not {heavy} & set(sys.modules)")
    assert run.returncode == 0, run.stderr
    run = fresh_python("import sys, unmask.stats.measures; assert 'sklearn' not in sys.modules")
    assert run.returncode == 0, run.stderr
