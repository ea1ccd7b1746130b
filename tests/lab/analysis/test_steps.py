"""From stores with planted truth to E1, E2 and E3; from a real tiny study to the very numbers of the statistics."""

from dataclasses import replace

import numpy as np
import pytest

from tests.helpers import made_studies as made
from tests.helpers.findings import fact, reasons
from tests.lab.analysis.test_load import measure
from unmask.base.errors import SchemaError
from unmask.lab.analysis import analyse, load
from unmask.stats import COVERAGES
from unmask.stats.measures import ARMS, measure_opportunity, prepare_opportunity_states
from unmask.stats.protocol import (
    LeakageError,
    ProposedAction,
    choose_fixed,
)

KINDS = {"find": "finds", "guess": "useless", "same": "constant", "mute": "abstains"}


# E1


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return measure(made.store(tmp_path_factory.mktemp("e1") / "study", made.known()), 200)


class TestKnownTruth:
    def test_fixed_action_comes_from_validation_alone(self, known):
        """On the evaluation prompts of fill, block:8 is better everywhere: to choose there would give 0."""
        fixed = known.select("opportunity", measure="fixed")
        assert set(zip(fixed["task"], fixed["axis"], strict=True)) == set(made.TRUTH)
        for (task, axis), (name, base, delta) in made.TRUTH.items():
            assert fact(known, "opportunity", "fixed", task=task, axis=axis) == name
            assert fact(known, "opportunity", "fixed_utility", task=task, axis=axis) == pytest.approx(base)
            # All prompts are alike, so that no resample differs.
            estimate = known.estimate("opportunity", "delta", task=task, axis=axis)
            assert [estimate.value, estimate.low, estimate.high] == pytest.approx([delta] * 3)

    def test_anatomy(self, known):
        score = {"task": "fill", "axis": "score"}
        assert fact(known, "opportunity", "frequency", **score) == pytest.approx(0.25)
        assert fact(known, "opportunity", "margin", **score) == pytest.approx(0.5)
        assert fact(known, "opportunity", "pair", **score) == "confidence ⇄ margin"
        assert fact(known, "opportunity", "bidirectional", **score) == pytest.approx(0.125)
        shares = {c: round(fact(known, "opportunity", "concentration", at=c, **score), 9) for c in COVERAGES}
        assert shares == {0.05: 0.2, 0.1: 0.4, 0.2: 0.8, 0.5: 1.0, 1.0: 1.0}
        assert known.select("opportunity", task="fill", axis="commitment", measure="pair").empty

    def test_stages_are_quarters_of_the_masked_share(self, known):
        """Only the last of four states gains."""
        parts = [fact(known, "opportunity", "delta", task="fill", axis="score", at=k) for k in range(4)]
        assert parts == pytest.approx([0.0, 0.0, 0.0, 0.5])

    def test_tasks_count_the_same(self, tmp_path):
        tables = made.known()
        fewer = tables["small", "sort", "evaluation"]
        tables["small", "sort", "evaluation"] = {
            axis: {name: q[:4] for name, q in named.items()} for axis, named in fewer.items()
        }
        found = measure(made.store(tmp_path / "s", tables))
        assert fact(found, "opportunity", "delta", task="mean over tasks", axis="region") == pytest.approx(0.35)
        assert fact(found, "opportunity", "tasks", task="mean over tasks", axis="region") == 2

    def test_noise_is_cross_fitted_and_audited(self, tmp_path):
        """The challenger is lucky in the first two rollouts: naive 0.2, cross-fitted (0.4 - 0.5 + 0) / 2."""
        lucky = made.flat(0.4)
        lucky[:, :, :2] = 1.0
        tables = made.known()
        tables["small", "fill", "evaluation"]["score"] = {"confidence": lucky, "margin": made.flat(0.5)}
        found = measure(made.store(tmp_path / "s", tables))
        names = ("delta", "naive", "bracket_low", "bracket_high", "noisy")
        values = [fact(found, "opportunity", name, task="fill", axis="score") for name in names]
        assert values == pytest.approx([-0.05, 0.2, -0.05, 0.2, 80])

    def test_one_rollout_is_the_truth_where_nothing_is_drawn(self, tmp_path):
        found = measure(made.store(tmp_path / "s", made.known(rollouts=1)))
        assert fact(found, "opportunity", "delta", task="fill", axis="score") == pytest.approx(0.125)
        assert fact(found, "opportunity", "crossfitted", task="fill", axis="score") == 0
        why = reasons(found, "opportunity", "axis", "task")
        assert set(why) == {("commitment", "fill"), ("commitment", "sort")}
        assert all("cannot be cross-fitted" in reason for reason in why.values())


class TestUnjudged:
    def test_is_counted_with_its_reason_and_left_out(self, tmp_path):
        tables = made.known()
        margin = tables["small", "fill", "evaluation"]["score"]["margin"].copy()
        margin[0, 3] = np.nan
        tables["small", "fill", "evaluation"]["score"]["margin"] = margin
        found = measure(made.store(tmp_path / "s", tables))
        (lost,) = found.study.unjudged.to_dict("records")
        assert lost == {
            "model": "small",
            "task": "fill",
            "split": "evaluation",
            "axis": "score",
            "reason": "timed out",
            "branches": 4,
        }
        score = {"task": "fill", "axis": "score"}
        assert [fact(found, "opportunity", name, **score) for name in ("states", "excluded")] == [79, 1]
        assert fact(found, "opportunity", "delta", **score) == pytest.approx(19 * 0.5 / 79)

    def test_all_of_a_task(self, tmp_path):
        tables = made.known()
        for split in ("validation", "evaluation"):
            held = tables["small", "fill", split]
            held["score"] = {name: q * np.nan for name, q in held["score"].items()}
        tables["small", "fill", "evaluation"]["region"]["full"] *= np.nan
        found = measure(made.store(tmp_path / "s", tables))
        why = reasons(found, "opportunity", "task", "axis")
        assert set(why) == {("fill", "score"), ("fill", "region")}
        assert "no fixed action can be chosen" in why["fill", "score"]
        assert "judged answer of the fixed action" in why["fill", "region"]
        partial = {
            a: fact(found, "opportunity", "partial", task="mean over tasks", axis=a) for a in ("score", "commitment")
        }
        assert partial == {"score": "without fill", "commitment": ""}


def assert_equal_estimates(found, experiment, estimates, **where):
    for (name, at), wanted in estimates.items():
        if name == "pairwise":
            continue
        place = {"arm": at} if isinstance(at, str) else {"at": at}
        estimate = found.estimate(experiment, name, **where, **place)
        assert repr((estimate.value, estimate.low, estimate.high)) == repr((wanted.value, wanted.low, wanted.high))


def test_a_real_study_gives_the_numbers_of_the_statistics(tiny_study, tiny_run):
    found = analyse(tiny_run, draws=50)
    length = {row["prompt"]: row["fixed"].count(False) for row in tiny_run.read_arrow("states").to_pylist()}
    fixed = found.select("opportunity", measure="fixed")
    assert list(fixed["axis"]) == list(tiny_study.axes)
    for task, axis in zip(fixed["task"], fixed["axis"], strict=True):
        tables = {role: tiny_run.utilities("tiny", task, role, axis) for role in tiny_study.splits}
        held_out = tables["evaluation"]
        share = held_out.masked_S / np.array([length[prompt] for prompt in held_out.prompt_S])
        chosen = choose_fixed(tables["validation"].utility_SAR, reference=0)
        states = {task: prepare_opportunity_states(held_out.utility_SAR, held_out.prompt_S, share, chosen, reference=0)}
        measures = measure_opportunity(states, seed=3)
        assert_equal_estimates(found, "opportunity", measures.estimates, task=task, axis=axis)


# E2 and E3


@pytest.fixture(scope="module")
def planted():
    return made.diagnosed(KINDS)


@pytest.fixture(scope="module")
def found(planted, tmp_path_factory):
    tables, read = planted
    return diagnose(made.store(tmp_path_factory.mktemp("e23") / "study", tables, read=read))


def diagnose(place):
    return analyse(place, resamples=200, draws=50)


def by_hand(kind, candidates, reading, split):
    """States of the statistics, straight from the arrays."""
    q_PSAR = np.stack(list(candidates.values()), 2)
    prompts, states, actions, rollouts = q_PSAR.shape
    # A store sorts prompts by name.
    order = sorted(range(prompts), key=lambda p: f"{split}-0-{p}")
    abstained_S = np.isnan(reading.signal_PS[order]).ravel()
    near = list(candidates).index(reading.snapped)
    q_SAR = q_PSAR[order].reshape(-1, actions, rollouts)
    silent_S1 = abstained_S[:, None]
    same_SA = ~silent_S1 & np.array([name in reading.same for name in candidates])
    return kind(
        prompt_S=np.repeat([f"{split}-0-{p}" for p in order], states),
        place_S=np.tile(np.arange(states), prompts),
        masked_S=np.tile(1 - np.arange(states) / states, prompts),
        q_SAR=q_SAR,
        signal_S=reading.signal_PS[order].ravel(),
        abstained_S=abstained_S,
        proposals={
            "raw": ProposedAction(
                np.where(silent_S1, np.nan, reading.utility_PSR[order].reshape(-1, rollouts)), same_SA
            ),
            "snapped": ProposedAction(
                np.where(silent_S1, np.nan, q_SAR[:, near]), ~silent_S1 & (np.arange(actions) == near)
            ),
        },
        candidates=tuple(candidates),
        reference=0,
    )


def said(found, measure, task="find", proposal="raw", **where):
    return fact(found, "diagnostics", measure, task=task, proposal=proposal, **where)


class TestPlantedTruth:
    def test_a_signal_that_finds_it(self, found):
        assert said(found, "fixed") == "full"
        assert said(found, "auroc") > 0.99
        assert said(found, "tau_never") == 0
        selective, always, oracle = (said(found, "lift", arm=arm) for arm in ("selective", "always", "oracle"))
        assert found.estimate("diagnostics", "lift", task="find", proposal="raw", arm="selective").positive
        assert selective == pytest.approx(0.75 * oracle, rel=0.2)
        # Taken everywhere, the same action loses.
        assert always < selective
        assert said(found, "viable") == 1

    def test_lifts_are_those_of_the_arrays(self, found, planted):
        tables, read = planted
        full, other = tables["small", "find", "evaluation"]["region"].values()
        reading = read["small", "find", "evaluation"]["region"]
        silent_PS1 = np.isnan(reading.signal_PS)[:, :, None]
        assert said(found, "lift", arm="always") == pytest.approx(
            np.where(silent_PS1, 0.0, reading.utility_PSR - full).mean()
        )
        assert said(found, "lift", arm="oracle") == pytest.approx(np.maximum(other - full, 0).mean())
        snapped = said(found, "lift", proposal="snapped", arm="always")
        assert snapped == pytest.approx(np.where(silent_PS1, 0.0, other - full).mean())

    def test_a_useless_a_constant_and_a_mute_one(self, found):
        assert said(found, "auroc", "guess") < 0.75
        for task in ("guess", "same", "mute"):
            assert not found.estimate("diagnostics", "lift", task=task, proposal="raw", arm="selective").positive
        assert said(found, "abstained", "mute") == 1
        assert np.isnan(found.estimate("diagnostics", "agrees_fixed", task="mute", proposal="raw").value)
        assert said(found, "tau_never", "mute") == 1
        assert said(found, "coverage", "mute") == said(found, "lift", "mute", arm="always") == 0

    def test_without_a_positive_validation_state_the_gate_never_opens(self, tmp_path):
        tables, read = made.diagnosed({"find": "finds"})
        tables["small", "find", "validation"], read["small", "find", "validation"] = (
            {"region": part} for part in made.planted(0, rate=0.0)
        )
        found = diagnose(made.store(tmp_path / "s", tables, read=read))
        assert said(found, "tau_reason").startswith("no validation state has a positive opportunity")


class TestLeakage:
    def test_held_out_utilities_do_not_move_what_is_chosen(self, found, planted, tmp_path):
        tables, read = planted
        rng = np.random.default_rng(9)
        tables, read = dict(tables), dict(read)
        for key in tables:
            if key[2] == "evaluation":
                order = rng.permutation(24)
                tables[key] = {"region": {name: 1 - q[order] for name, q in tables[key]["region"].items()}}
                one = read[key]["region"]
                read[key] = {"region": replace(one, utility_PSR=1 - one.utility_PSR[order])}
        turned = diagnose(made.store(tmp_path / "s", tables, read=read))
        chosen = ["fixed", "theta", "tau", "tau_out_of_fold", "tau_error", "bin_from", "bin_predicted", "bin_states"]
        before, after = (f.select("diagnostics") for f in (found, turned))
        before, after = (x[x["measure"].isin(chosen) & (x["task"] != "mean over tasks")] for x in (before, after))
        columns = ["task", "proposal", "measure", "at", "value", "note"]
        assert before[columns].reset_index(drop=True).equals(after[columns].reset_index(drop=True))
        assert said(found, "lift", arm="oracle") != said(turned, "lift", arm="oracle")

    def test_a_prompt_in_both_splits_is_an_error(self, planted, tmp_path, monkeypatch):
        def leak(*_):
            raise LeakageError("prompt 'a' and 0 others are in both sets")

        tables, read = planted
        place = made.store(tmp_path / "s", tables, read=read)
        monkeypatch.setattr(load, "require_disjoint_prompts", leak)
        with pytest.raises(SchemaError, match="small, find, region: prompt 'a'"):
            diagnose(place)


class TestMeans:
    def test_tasks_count_the_same(self, found):
        where = {"task": "mean over tasks"}
        for proposal in ("raw", "snapped"):
            assert fact(found, "diagnostics", "tasks", proposal=proposal, **where) == 4
            for arm in ARMS:
                wanted = np.mean([said(found, "utility", task, proposal, arm=arm) for task in KINDS])
                estimate = found.estimate("diagnostics", "utility", proposal=proposal, arm=arm, **where)
                assert estimate.value == pytest.approx(wanted)
                assert estimate.low <= estimate.value <= estimate.high
            for name in ("less_regret", "coverage"):
                wanted = np.mean([said(found, name, task, proposal) for task in KINDS])
                assert fact(found, "diagnostics", name, proposal=proposal, **where) == pytest.approx(wanted)

    def test_rankings_are_means_of_what_exists(self, found):
        values = [found.estimate("diagnostics", "auroc", task=task, proposal="raw").value for task in KINDS]
        assert said(found, "auroc", "mean over tasks") == pytest.approx(np.nanmean(values))
        # All predictions of a mute diagnostic are the same.
        assert said(found, "spearman_tasks", "mean over tasks") == 3


class TestMissing:
    def test_proposals_that_nobody_judged(self, planted, tmp_path):
        tables, read = planted
        key = ("small", "find", "evaluation")
        one = read[key]["region"]
        everywhere = replace(one, signal_PS=np.nan_to_num(one.signal_PS), utility_PSR=one.utility_PSR * np.nan)
        found = diagnose(made.store(tmp_path / "s", tables, read={**read, key: {"region": everywhere}}))
        assert reasons(found, "diagnostics", "task")[("find",)].startswith("no held-out state has utilities")
        assert said(found, "partial", "mean over tasks") == "without find"

    def test_states_without_a_reading(self, planted, tmp_path):
        tables, read = planted
        key = ("small", "find", "evaluation")
        one = read[key]["region"]
        fewer = replace(one, signal_PS=one.signal_PS[:-1])
        found = diagnose(made.store(tmp_path / "s", tables, read={**read, key: {"region": fewer}}))
        assert reasons(found, "diagnostics", "task") == {("find",): "4 of 96 evaluation states have no reading"}

    @pytest.mark.parametrize("change", [{"snapped": "row"}, {"same": ("full", "row")}, {"cut": True}])
    def test_broken_readings_are_refused(self, planted, tmp_path, change):
        tables, read = planted
        key = ("small", "find", "evaluation")
        one = read[key]["region"]
        if change.pop("cut", False):
            change["utility_PSR"] = one.utility_PSR[:, :, :3]
        place = made.store(tmp_path / "s", tables, read={**read, key: {"region": replace(one, **change)}})
        with pytest.raises(SchemaError, match="allowed: 4, and candidates of the study"):
            diagnose(place)
