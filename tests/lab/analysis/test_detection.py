"""From stores with planted truth to E2 and E3; from a real tiny study to the very numbers of the statistics."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.helpers import made_studies as made
from unmask.axes import weights
from unmask.base.errors import SchemaError
from unmask.lab import choose
from unmask.lab.analysis import detection
from unmask.lab.analysis.detection import detect
from unmask.lab.analysis.findings import findings as everything
from unmask.lab.analysis.opportunity import measure
from unmask.lab.choose import mixture_of, score_signal, stored_signal
from unmask.stats import CalibrationSettings
from unmask.stats.measures import ARMS, mean_detection, measure_detection
from unmask.stats.protocol import (
    HeldOutSet,
    LeakageError,
    ProposedAction,
    ValidationSet,
    fit_calibration,
    held_out_frame,
)

KINDS = {"find": "finds", "guess": "useless", "same": "constant", "mute": "abstains"}


def found_in(place, **how):
    return detect(place, measure(place, resamples=how.pop("resamples", 200)), draws=50, **how)


@pytest.fixture(scope="module")
def planted():
    return made.diagnosed(KINDS)


@pytest.fixture(scope="module")
def findings(planted, tmp_path_factory):
    tables, read = planted
    return found_in(made.store(tmp_path_factory.mktemp("e23") / "study", tables, read=read))


def cell(findings, task, axis="region"):
    (one,) = [c for c in findings.cells if (c.task, c.axis) == (task, axis)]
    return one


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


class TestPlantedTruth:
    def test_a_signal_that_finds_it(self, findings):
        one = cell(findings, "find")
        measures = one.raw.measures
        assert one.fixed_name == "full"
        assert measures["auroc"].value > 0.99
        assert one.raw.calibration.tau.value is not None
        assert measures["lift", "selective"].positive
        oracle = measures["lift", "oracle"].value
        assert measures["lift", "selective"].value == pytest.approx(0.75 * oracle, rel=0.2)
        # Taken everywhere, the same action loses.
        assert measures["lift", "always"].value < measures["lift", "selective"].value
        assert one.raw.viable

    def test_lifts_are_those_of_the_arrays(self, findings, planted):
        tables, read = planted
        full, other = tables["small", "find", "evaluation"]["region"].values()
        reading = read["small", "find", "evaluation"]["region"]
        gain_PSR = np.where(np.isnan(reading.signal_PS)[:, :, None], 0.0, reading.utility_PSR - full)
        measures = cell(findings, "find").raw.measures
        assert measures["lift", "always"].value == pytest.approx(gain_PSR.mean())
        assert measures["lift", "oracle"].value == pytest.approx(np.maximum(other - full, 0).mean())
        snapped = cell(findings, "find").outcomes["snapped"].measures["lift", "always"].value
        silent_PS1 = np.isnan(reading.signal_PS)[:, :, None]
        assert snapped == pytest.approx(np.where(silent_PS1, 0.0, other - full).mean())

    def test_a_useless_one(self, findings):
        measures = cell(findings, "guess").raw.measures
        assert measures["auroc"].value < 0.75
        assert not measures["lift", "selective"].positive

    def test_a_constant_one(self, findings):
        chosen = cell(findings, "same").raw.calibration
        assert len(chosen.detector.g_B) == 1
        assert not cell(findings, "same").raw.measures["lift", "selective"].positive

    def test_one_that_always_abstains(self, findings):
        one = cell(findings, "mute")
        measures = one.raw.measures
        assert measures["abstained"].value == 1
        assert np.isnan(measures["agrees_fixed"].value)
        assert one.raw.calibration.tau.value is None
        assert measures["lift", "selective"].value == measures["lift", "always"].value == 0
        assert measures["coverage"].value == 0
        assert one.raw.frame["bin"].max() == -1

    def test_without_a_positive_validation_state_the_gate_never_opens(self, tmp_path):
        tables, read = made.diagnosed({"find": "finds"})
        tables["small", "find", "validation"], read["small", "find", "validation"] = (
            {"region": part} for part in made.planted(0, rate=0.0)
        )
        tau = cell(found_in(made.store(tmp_path / "s", tables, read=read)), "find").raw.calibration.tau
        assert tau.value is None
        assert tau.reason.startswith("no validation state has a positive opportunity")

    @pytest.mark.parametrize("task", KINDS)
    def test_numbers_are_those_of_the_statistics(self, findings, planted, task):
        tables, read = planted
        validation, held_out = (
            by_hand(kind, tables["small", task, split]["region"], read["small", task, split]["region"], split)
            for kind, split in ((ValidationSet, "validation"), (HeldOutSet, "evaluation"))
        )
        for proposal in ("raw", "snapped"):
            chosen = fit_calibration(validation, CalibrationSettings(seed=5, proposal=proposal))
            outcome = cell(findings, task).outcomes[proposal]
            assert outcome.calibration.to_json() == chosen.to_json()
            measures = measure_detection(held_out_frame(held_out, chosen), seed=5, draws=50, resamples=200)
            assert repr(outcome.measures.estimates) == repr(measures.estimates)

    def test_agreement_is_about_next_states(self, planted, tmp_path):
        tables, read = planted
        read = {
            key: {axis: replace(one, same=("full", "block:8")) for axis, one in axes.items()}
            for key, axes in read.items()
        }
        one = cell(found_in(made.store(tmp_path / "s", tables, read=read)), "find")
        assert one.raw.measures["agrees_fixed"].value == one.outcomes["snapped"].measures["agrees_fixed"].value == 1


class TestScore:
    NAMES = ("margin", "confidence")

    @pytest.fixture
    def place(self, tmp_path):
        """The fixed action is margin. The signal over it finds the opportunity; the stored one, over the reference's
        confidence, is chance."""
        tables, read = made.diagnosed({"find": "finds"}, axis="score", names=self.NAMES)
        rng = np.random.default_rng(1)
        for key, axes in tables.items():
            # Utilities choose margin, but confidence is the reference.
            axes["score"] = {"confidence": axes["score"]["confidence"], "margin": axes["score"]["margin"]}
            one = read[key]["score"]
            stored_PS = np.where(np.isnan(one.signal_PS), np.nan, rng.normal(size=one.signal_PS.shape))
            ingredients_PS = made.evidence(one.signal_PS, stored_PS)
            read[key]["score"] = replace(one, signal_PS=stored_PS, ingredients=ingredients_PS)
            self.finds_PS = one.signal_PS
        return made.store(tmp_path / "s", tables, read=read)

    def test_signal_is_recomputed_over_the_fixed_mixture(self, place, monkeypatch):
        one = cell(found_in(place), "find", "score")
        assert one.fixed_name == "margin"
        assert one.raw.measures["auroc"].value > 0.99
        assert one.raw.measures["lift", "selective"].positive
        monkeypatch.setattr(choose, "score_signal", lambda rows, mixture: stored_signal(rows))
        stored = cell(found_in(place), "find", "score")
        assert stored.raw.measures["auroc"].value < 0.8

    def test_by_hand(self, place):
        rows = [row for row in place.read_arrow("readings").to_pylist() if row["split"] == "evaluation"]
        wanted = {(f"evaluation-0-{p}", s): float(x) for (p, s), x in np.ndenumerate(self.finds_PS)}
        fixed_S, reference_S = (score_signal(rows, mixture_of("llada", name)) for name in self.NAMES)
        np.testing.assert_allclose(fixed_S, [wanted[row["prompt"], row["state"]] for row in rows], atol=1e-12)
        np.testing.assert_allclose(reference_S, stored_signal(rows), atol=1e-12)

    @pytest.mark.parametrize(
        ("reference", "name", "rule"),
        [("llada", "confidence", "confidence"), ("llada", "uniform", "uniform"), ("dream", "entropy", "certainty")],
    )
    def test_mixtures(self, reference, name, rule):
        assert mixture_of(reference, name) == weights(rule)


class TestLeakage:
    def test_held_out_utilities_do_not_move_the_calibration(self, findings, planted, tmp_path):
        tables, read = planted
        rng = np.random.default_rng(9)
        tables, read = dict(tables), dict(read)
        for key in tables:
            if key[2] == "evaluation":
                order = rng.permutation(24)
                tables[key] = {"region": {name: 1 - q[order] for name, q in tables[key]["region"].items()}}
                one = read[key]["region"]
                read[key] = {"region": replace(one, utility_PSR=1 - one.utility_PSR[order])}
        turned = found_in(made.store(tmp_path / "s", tables, read=read))
        for task in KINDS:
            for proposal in ("raw", "snapped"):
                before, after = (cell(f, task).outcomes[proposal] for f in (findings, turned))
                assert before.calibration.to_json() == after.calibration.to_json()
            before, after = (cell(f, task).raw.measures for f in (findings, turned))
            assert before["lift", "oracle"] != after["lift", "oracle"]

    def test_a_prompt_in_both_splits_is_an_error(self, planted, tmp_path, monkeypatch):
        def leak(*_):
            raise LeakageError("prompt 'a' and 0 others are in both sets")

        tables, read = planted
        place = made.store(tmp_path / "s", tables, read=read)
        monkeypatch.setattr(detection, "require_apart", leak)
        with pytest.raises(SchemaError, match="small, find, region: prompt 'a'"):
            found_in(place)


class TestMeans:
    def test_tasks_count_the_same(self, findings):
        for mean in findings.means:
            cells = [c.outcomes[mean.proposal] for c in findings.cells]
            assert mean.tasks == tuple(KINDS)
            for arm in ARMS:
                wanted = np.mean([c.measures["utility", arm].value for c in cells])
                assert mean.utility[arm].value == pytest.approx(wanted)
                assert mean.utility[arm].low <= mean.utility[arm].value <= mean.utility[arm].high
            for arm in ARMS[1:]:
                assert mean.estimates["lift", arm].value == pytest.approx(
                    np.mean([c.measures["lift", arm].value for c in cells])
                )
            saved = np.mean([c.measures["less_regret"].value for c in cells])
            assert mean.estimates["less_regret", ""].value == pytest.approx(saved)
            assert mean.estimates["coverage", ""].value == pytest.approx(
                np.mean([c.measures["coverage"].value for c in cells])
            )

    def test_over_one_task_it_is_about_that_of_the_statistics(self, findings):
        """Other resamples of the same prompts."""
        outcome = cell(findings, "find").raw
        mean = mean_detection({"find": outcome.frame}, seed=5, resamples=4000)
        for arm in ARMS[1:]:
            one, other = mean["lift", arm], outcome.measures["lift", arm]
            assert one.value == pytest.approx(other.value)
            assert [one.low, one.high] == pytest.approx([other.low, other.high], abs=0.01)
        assert mean["recovered", ""].value == pytest.approx(outcome.measures["recovered"].value)

    def test_rankings_are_means_of_what_exists(self, findings):
        raw = next(m for m in findings.means if m.proposal == "raw")
        values = [cell(findings, task).raw.measures["auroc"].value for task in KINDS]
        assert raw.plain["auroc"].value == pytest.approx(np.nanmean(values))
        # All predictions of a mute diagnostic are the same.
        assert raw.plain["spearman"].tasks == 3


class TestMissing:
    def test_nothing_without_readings(self, tmp_path):
        place = made.store(tmp_path / "s", made.known())
        assert detect(place, measure(place)) is None

    def test_axes_without_a_diagnostic_are_not_missed(self, tmp_path):
        tables, read = made.diagnosed({"find": "finds"})
        for held in tables.values():
            held["commitment"] = {"all": made.flat(0.3, 24), "none": made.flat(0.3, 24)}
        findings = found_in(made.store(tmp_path / "s", tables, read=read))
        assert [c.axis for c in findings.cells] == ["region"]
        assert findings.missing == ()

    def test_proposals_that_nobody_judged(self, planted, tmp_path):
        tables, read = planted
        key = ("small", "find", "evaluation")
        one = read[key]["region"]
        everywhere = replace(one, signal_PS=np.nan_to_num(one.signal_PS), utility_PSR=one.utility_PSR * np.nan)
        findings = found_in(made.store(tmp_path / "s", tables, read={**read, key: {"region": everywhere}}))
        (lost,) = findings.missing
        assert (lost.task, lost.axis) == ("find", "region")
        assert lost.reason.startswith("no held-out state has utilities")
        assert {m.partial for m in findings.means} == {"without find"}

    def test_states_without_a_reading(self, planted, tmp_path):
        tables, read = planted
        key = ("small", "find", "evaluation")
        one = read[key]["region"]
        fewer = replace(one, signal_PS=one.signal_PS[:-1])
        findings = found_in(made.store(tmp_path / "s", tables, read={**read, key: {"region": fewer}}))
        assert [m.reason for m in findings.missing] == ["4 of 96 evaluation states have no reading"]

    def test_a_shape_bug_is_not_a_missing_row(self, planted, tmp_path, monkeypatch):
        tables, read = planted
        place = made.store(tmp_path / "s", tables, read=read)
        monkeypatch.setattr("unmask.stats.protocol.choose_fixed", lambda q_SAR, **_: np.ones(2) + np.ones(3))
        with pytest.raises(ValueError, match="broadcast"):
            found_in(place)
        with pytest.raises(ValueError, match="broadcast"):
            choose.choices(place)

    def test_what_e1_misses(self, planted, tmp_path):
        tables, read = planted
        lost = ("small", "mute", "evaluation")
        rest = {key: held for key, held in tables.items() if key != lost}
        findings = found_in(made.store(tmp_path / "s", rest, read=read, unfinished=[lost]))
        assert [(m.task, m.reason) for m in findings.missing] == [("mute", "no evaluation prompt is finished yet")]
        assert len(findings.cells) == 3

    @pytest.mark.parametrize("change", [{"snapped": "row"}, {"same": ("full", "row")}, {"cut": True}])
    def test_broken_readings_are_refused(self, planted, tmp_path, change):
        tables, read = planted
        key = ("small", "find", "evaluation")
        one = read[key]["region"]
        if change.pop("cut", False):
            change["utility_PSR"] = one.utility_PSR[:, :, :3]
        place = made.store(tmp_path / "s", tables, read={**read, key: {"region": replace(one, **change)}})
        with pytest.raises(SchemaError, match="allowed: 4, and candidates of the study"):
            found_in(place)

    def test_one_rollout_where_nothing_is_drawn(self, tmp_path):
        tables, read = made.diagnosed({"find": "finds"}, rollouts=1)
        one = cell(found_in(made.store(tmp_path / "s", tables, read=read)), "find")
        assert one.raw.calibration.settings.deterministic
        assert one.raw.measures["lift", "selective"].positive


def test_revision_of_dream_is_an_extension(tmp_path):
    tables, read = made.both_kinds("finds")
    place = made.store(tmp_path / "s", tables, read=read, reference="dream")
    findings = found_in(place)
    assert [c.axis for c in findings.of(extension=True).cells] == ["commitment"]
    assert [c.axis for c in findings.of(extension=False).cells] == ["region"]
    assert {m.axis for m in findings.of(extension=True).means} == {"commitment"}


def test_a_real_study(tiny_run):
    place = tiny_run
    findings = found_in(place)
    assert [c.axis for c in findings.cells] == ["score", "commitment"]
    assert findings.missing == ()
    rows = [row for row in place.read_arrow("readings").to_pylist() if row["axis"] == "score"]
    assert not all(row["abstained"] for row in rows)
    # Over the reference's own mixture the recomputed signal is the stored one.
    np.testing.assert_allclose(score_signal(rows, mixture_of("llada", "confidence")), stored_signal(rows), rtol=1e-12)
    assert all(json.loads(c.raw.calibration.to_json())["body"]["prompts"] == 3 for c in findings.cells)
    for one in findings.cells:
        held = place.utilities("tiny", one.task, "evaluation", one.axis)
        assert one.raw.measures.states == len(held.prompt_S)
        wanted = held.utility_SAR[:, one.raw.calibration.fixed.action].mean()
        assert one.raw.measures["utility", "fixed"].value == pytest.approx(wanted)


def test_calibrations_come_of_validation_states_alone(findings, planted):
    """What E2 and E3 use is what a decoder would get."""
    tables, read = planted
    for task in KINDS:
        one = cell(findings, task).raw
        states = by_hand(
            ValidationSet,
            tables["small", task, "validation"]["region"],
            read["small", task, "validation"]["region"],
            "validation",
        )
        assert one.calibration.to_json() == fit_calibration(states, CalibrationSettings(seed=5)).to_json()


def test_a_cell_is_calibrated_once_for_each_kind_of_proposal(planted, tmp_path, monkeypatch):
    """All of a study's findings together: neither experiment, nor what is said of states, chooses again."""
    tables, read = planted
    place = made.store(tmp_path / "s", tables, read=read)
    proposals = []

    def counting(states, settings):
        proposals.append(settings.proposal)
        return fit_calibration(states, settings)

    for module in (detection, choose):
        monkeypatch.setattr(module, "fit_calibration", counting)
    cells = everything(place, resamples=20, draws=5).detection.cells
    assert len(cells) == len(KINDS)
    assert sorted(proposals) == ["raw"] * len(KINDS) + ["snapped"] * len(KINDS)
