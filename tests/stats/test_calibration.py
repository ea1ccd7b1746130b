"""All choices together, and the file they are kept in."""

import json
from dataclasses import replace

import numpy as np
import pytest

from unmask.base.json_files import hash_body
from unmask.stats import Calibration, CalibrationSettings, DetectorFileError, ValidationTable, calibrate, choose_fixed
from unmask.stats.calibration import FORMAT, graded_apart

SETTINGS = CalibrationSettings(seed=0)


@pytest.fixture
def found(world):
    return calibrate(world(ValidationTable, 0), SETTINGS)


class TestFile:
    def test_there_and_back(self, found, tmp_path):
        (tmp_path / "detector.json").write_text(found.to_json(), encoding="utf-8")
        again = Calibration.load(tmp_path / "detector.json")
        assert again.to_json() == found.to_json() == (tmp_path / "detector.json").read_text()
        signal_S = np.array([-9, 0.1, np.nan, 9])
        np.testing.assert_array_equal(again.detector.predict(signal_S), found.detector.predict(signal_S))
        assert again.tau == found.tau
        assert again.settings == found.settings

    @pytest.mark.parametrize("change", [{"theta": False}, {"folds": ((0, 2), (1, 3))}, {"caution": 100.0}])
    def test_never_always_and_folds_survive(self, world, change):
        settings = replace(SETTINGS, **change)
        found = calibrate(world(ValidationTable, 0), settings)
        assert Calibration.from_json(found.to_json()).to_json() == found.to_json()
        assert Calibration.from_json(found.to_json()).settings == settings

    def test_an_unknown_action_has_no_mean(self, states):
        q_SA = [[0.5, 0.6, np.nan], [0.5, 0.3, np.nan]]
        found = calibrate(states(q_SA=q_SA, signal_S=[1, 2]), SETTINGS)
        again = Calibration.from_json(found.to_json())
        assert np.isnan(again.fixed.mean_A[2])

    def test_it_is_strict_json(self, found):
        json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(name))

    def test_an_edited_file_is_refused(self, found):
        whole = json.loads(found.to_json())
        whole["body"]["tau"]["value"] = -0.5
        with pytest.raises(DetectorFileError, match="edited"):
            Calibration.from_json(json.dumps(whole))

    def test_another_version_is_refused(self, found):
        with pytest.raises(DetectorFileError, match="this version reads unmask-detector-1"):
            Calibration.from_json(found.to_json().replace("unmask-detector-1", "unmask-detector-2"))

    def test_a_layout_of_no_consequence_is_accepted(self, found):
        assert Calibration.from_json(json.dumps(json.loads(found.to_json()))).to_json() == found.to_json()

    @pytest.mark.parametrize(
        "edit",
        [
            lambda body: body.pop("tau"),
            lambda body: body.update(more=1),
            lambda body: body["tau"].update(more=1),
            lambda body: body["settings"].update(more=1),
            lambda body: body["fixed"].update(action=99),
            lambda body: body["fixed"].update(mean_A=[0.5]),
            lambda body: body["detector"].update(start_E=body["detector"]["start_E"][::-1]),
            lambda body: body["detector"].update(g_B=[]),
            lambda body: body.update(detector=3),
            lambda body: body["schedule"].update(action_K=[0.5]),
            lambda body: body["settings"].update(bins=0),
        ],
    )
    def test_a_body_that_is_none_is_refused_even_with_its_hash(self, found, edit):
        whole = json.loads(found.to_json())
        edit(whole["body"])
        whole["hash"] = hash_body(FORMAT, whole["body"])
        with pytest.raises(DetectorFileError, match="calibrate again"):
            Calibration.from_json(json.dumps(whole))

    @pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"format": NaN}', '{"a": 1, "a": 2}', "[" * 100_000])
    def test_what_is_no_detector_is_refused(self, text):
        with pytest.raises(DetectorFileError):
            Calibration.from_json(text)

    def test_missing_entries_are_refused(self):
        with pytest.raises(DetectorFileError, match="format, hash and body"):
            Calibration.from_json('{"format": "unmask-detector-1"}')

    def test_the_path_is_named(self, tmp_path):
        path = tmp_path / "x.json"
        path.write_bytes(b"\xff")
        with pytest.raises(DetectorFileError, match=r"x\.json is not text"):
            Calibration.load(path)
        path.write_text("{}")
        with pytest.raises(DetectorFileError, match=r"x\.json: the file names no format"):
            Calibration.load(path)


class TestInspect:
    def test_says_what_was_chosen(self, found):
        text = found.inspect()
        assert "fixed action: best" in text
        assert "stages, most masked first: best" in text
        assert "the selective policy deviates where the expected opportunity is" in text
        assert text.count("  deviates") == found.tau.active(found.detector.g_B).sum() > 0

    def test_never_has_its_reason(self, states):
        found = calibrate(states(q_SA=[[0.5, 0.5]] * 4, signal_S=[1, 2, 3, 4]), SETTINGS)
        assert found.tau.value is None
        assert "never: no validation state has a positive opportunity" in found.inspect()


def test_the_fixed_action_is_that_of_choose_fixed(world):
    table = world(ValidationTable, 0)
    found = calibrate(table, SETTINGS)
    assert found.fixed.action == choose_fixed(table.q_SAR, reference=0).action == 0
    assert found.prompts == 60


def test_nothing_to_find_is_never_and_no_exception(states):
    for signal_S in ([1, 2, 3, 4], [1, 1, 1, 1], [np.nan] * 4):
        found = calibrate(states(q_SA=[[0.5, 0.5]] * 4, signal_S=signal_S), SETTINGS)
        assert found.theta.value is None
        assert found.tau.value is None
        assert Calibration.from_json(found.to_json()).to_json() == found.to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"proposal": "snapped"},
        {"bins": 5},
        {"stages": 8},
        {"prompt_folds": 3},
        {"caution": 100.0},
        {"theta": False},
        {"folds": ((0,), (1, 2))},
    ],
)
def test_every_setting_has_an_effect(world, change):
    """On what was chosen, not only on the record of how."""
    table = world(ValidationTable, 0, noise=0.02)

    def chosen(settings):
        body = json.loads(calibrate(table, settings).to_json())["body"]
        body.pop("settings")
        return body

    assert chosen(SETTINGS) != chosen(replace(SETTINGS, **change))


def test_deterministic_refuses_rollouts_that_differ(world):
    calibrate(world(ValidationTable, 0), replace(SETTINGS, deterministic=True))
    with pytest.raises(ValueError, match="must be"):
        calibrate(world(ValidationTable, 0, noise=0.02), replace(SETTINGS, deterministic=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"bins": 0}, "bins is 0"),
        ({"stages": 0}, "stages is 0"),
        ({"prompt_folds": 1}, "2 or more"),
        ({"caution": np.nan}, "caution is nan"),
        ({"proposal": "x"}, "one of raw, snapped"),
    ],
)
def test_refusals(change, words):
    with pytest.raises(ValueError, match=words):
        replace(SETTINGS, **change)


class TestApart:
    """Eight candidates of equal worth: the best on some prompts is so by luck, which it does not have on others."""

    GAIN = 0.01

    def luck(self, states, seed):
        rng = np.random.default_rng(seed)
        prompt_S = np.repeat(np.arange(40), 4)
        q_SA = 0.5 + np.repeat(rng.uniform(-0.15, 0.15, (40, 8)), 4, 0)
        # The proposal is worth a little more than any candidate, and has luck of its own.
        gain_S = 0.5 + self.GAIN + np.repeat(rng.uniform(-0.15, 0.15, 40), 4) - q_SA[:, 0]
        return states(q_SA=q_SA, signal_S=rng.normal(size=160), gain_S=gain_S, prompt_S=prompt_S)

    def opened(self, states, **settings):
        chosen = [calibrate(self.luck(states, seed), replace(SETTINGS, **settings)) for seed in range(120)]
        return np.mean([c.tau.value is not None for c in chosen])

    def test_the_luck_of_the_fixed_action_does_not_shut_the_gate(self, states):
        assert self.opened(states, apart=False) < 0.3 < 0.4 < self.opened(states)

    def test_gains_are_those_on_new_prompts(self, states):
        def mean_gain(settings):
            tables = [self.luck(states, seed) for seed in range(120)]
            fixed = [choose_fixed(table.q_SAR, reference=0).action for table in tables]
            return np.mean([graded_apart(t, a, settings).gain_S.mean() for t, a in zip(tables, fixed, strict=True)])

        # The standard error is 0.0025; luck is worth 0.019.
        assert mean_gain(SETTINGS) == pytest.approx(self.GAIN, abs=0.008)
        assert mean_gain(replace(SETTINGS, apart=False)) < 0.0

    def test_one_prompt_has_no_others(self, states):
        table = states(q_SA=[[0.5, 0.6]] * 3, signal_S=[1, 2, 3], gain_S=[0.1] * 3, prompt_S=[7, 7, 7])
        found = graded_apart(table, 1, SETTINGS)
        assert found.fixed == 1
        assert found.gain_S == pytest.approx([0.0] * 3)

    def test_states_are_graded_beside_the_choice_of_the_other_folds(self, states):
        """Two prompts that disagree: each is graded beside what the other one likes."""
        table = states(q_SA=[[0.5, 0.9], [0.5, 0.2]], signal_S=[1, 2], gain_S=[0.1, 0.1])
        found = graded_apart(table, 1, SETTINGS)
        assert found.fit.fixed_S.tolist() == [0, 1]
        assert found.gain_S == pytest.approx([0.1, 0.4])
        with pytest.raises(ValueError, match="differ from state to state"):
            found.fixed  # noqa: B018
