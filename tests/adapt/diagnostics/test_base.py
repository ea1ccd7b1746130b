"""What every diagnostic promises: abstention, batch invariance, valid proposals, settings that matter."""

from dataclasses import fields, replace

import pytest
import torch

from tests.helpers.cases import each_case
from unmask.adapt.diagnostics import (
    DIAGNOSTICS,
    CardinalityDiagnostic,
    CommitmentDiagnostic,
    RegionDiagnostic,
    ScoreDiagnostic,
)
from unmask.adapt.diagnostics.base import ordered_sum
from unmask.adapt.diagnostics.context_transfer import context_received, context_supplied
from unmask.base.errors import ConfigError
from unmask.core import Noise, SamplingParams, select
from unmask.engine import apply, decode

AXIS_FIELDS = {
    "score": {"alpha_BJ"},
    "region": {"region_BL", "kappa_B"},
    "cardinality": {"kappa_B"},
    "commitment": {"commit_BL"},
}


def same(a, b):
    return torch.equal(a.nan_to_num(123.0), b.nan_to_num(123.0)) if a.is_floating_point() else torch.equal(a, b)


def assert_same_reading(one, other):
    assert same(one.signal_B, other.signal_B)
    assert same(one.abstains_B, other.abstains_B)
    length = one.action.region_BL.shape[1]
    for name in ("alpha_BJ", "region_BL", "kappa_B", "commit_BL"):
        theirs = getattr(other.action, name)
        assert same(getattr(one.action, name), theirs[:, :length] if name.endswith("L") else theirs), name


@pytest.fixture(scope="module")
def problem(kit):
    denoiser, start = kit.exact_problem(seed=3, n=9, rows=(0, 2, 1, 1), steps=5, dependence=3.0)
    return denoiser, start, kit.states_of(denoiser, start, sampling=SamplingParams(temperature=1.0))


@pytest.fixture(scope="module")
def slow_history(kit):
    """With more steps: a support of half the answer is no wider than k_min and one more at the other pace."""
    denoiser, start = kit.exact_problem(seed=3, n=9, rows=(0, 2, 1, 1), steps=7, dependence=3.0)
    return kit.states_of(denoiser, start, sampling=SamplingParams(temperature=1.0))


@each_case("axis", DIAGNOSTICS)
def test_only_its_own_axis_changes_and_the_action_is_valid(problem, slow_history, axis):
    history = [*problem[2], *slow_history]
    diagnostic = DIAGNOSTICS[axis]
    mine_alone, changed = AXIS_FIELDS[diagnostic.axis], 0
    for traj, action in history:
        reading = diagnostic.read(traj, action)
        assert torch.equal(reading.signal_B.isnan(), reading.abstains_B)
        for field in fields(action):
            mine, theirs = getattr(reading.action, field.name), getattr(action, field.name)
            if field.name == "rule":  # a remark about alpha, which may go where alpha changes
                assert mine in (theirs, None)
            elif field.name not in mine_alone:
                assert mine is theirs
            elif reading.abstains_B.any():
                assert torch.equal(mine[reading.abstains_B], theirs[reading.abstains_B])
        apply(traj.state, traj.current_prediction, reading.action).check()
        changed += any(not torch.equal(getattr(reading.action, name), getattr(action, name)) for name in mine_alone)
    assert changed


@each_case("axis", DIAGNOSTICS)
def test_without_a_past_it_abstains(problem, axis):
    _, _, history = problem
    traj, action = history[0]
    reading = DIAGNOSTICS[axis].read(traj, action)
    assert reading.abstains_B.all()
    assert reading.signal_B.isnan().all()
    assert reading.action is action


def test_too_little_history_makes_it_abstain(kit):
    # Two steps of one position each: at the second, one position is left, so there is no pair and no boundary.
    denoiser, start = kit.exact_problem(n=3, steps=2, rows=(0, 1))
    traj, action = kit.states_of(denoiser, start)[1]
    assert ScoreDiagnostic().read(traj, action).abstains_B.all()
    assert RegionDiagnostic().read(traj, action).abstains_B.all()
    assert not CardinalityDiagnostic().read(traj, action).abstains_B.any()
    # A step that revealed nothing calibrates no sensitivity.
    nothing = replace(traj.last, revealed_BL=torch.zeros_like(traj.last.revealed_BL))
    waited = replace(traj, steps=(nothing,))
    assert CardinalityDiagnostic().read(waited, action).abstains_B.all()


def test_commitment_needs_a_calibrated_target_unless_nobody_waits(problem):
    _, _, history = problem
    traj, action = history[2]
    nothing = replace(traj.last, revealed_BL=torch.zeros_like(traj.last.revealed_BL))
    waited = replace(traj, steps=(*traj.steps[:-1], nothing))
    assert CommitmentDiagnostic().read(waited, action).abstains_B.all()
    everything = replace(action, kappa_B=torch.ones_like(action.kappa_B))
    reading = CommitmentDiagnostic().read(waited, everything)
    assert not reading.abstains_B.any()
    assert (reading.ingredients["beta_BL"].nan_to_num(0.0) == 0).all()


@each_case("axis", DIAGNOSTICS)
def test_a_row_does_not_know_its_neighbours_their_order_or_the_padding(problem, kit, axis):
    denoiser, start, history = problem
    diagnostic = DIAGNOSTICS[axis]
    padded = kit.states_of(denoiser, start.pad_to(23), sampling=SamplingParams(temperature=1.0))
    for (traj, action), (wide, wide_action) in zip(history, padded, strict=True):
        reading = diagnostic.read(traj, action)
        for rows in ([2], [3, 1, 0, 2], [1, 1]):
            rows_U = torch.tensor([row for row in rows if row < traj.state.batch])
            part = diagnostic.read(traj.select(rows_U), select(action, rows_U))
            assert_same_reading(part, select(reading, rows_U))
        assert_same_reading(reading, diagnostic.read(wide, wide_action))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [9, 150, 300])
def test_sums_over_long_rows_do_not_see_the_padding(length, dtype):
    """Kernels split a plain sum by its length, and round by the split."""
    draw = torch.Generator().manual_seed(length)
    phi_BLL = torch.rand(2, length, length, generator=draw, dtype=torch.float64).to(dtype)
    weight_BL = torch.rand(2, length, generator=draw, dtype=torch.float64)
    wide_BLL = torch.nn.functional.pad(phi_BLL, (0, 61, 0, 61))
    wide_BL = torch.nn.functional.pad(weight_BL, (0, 61))
    assert torch.equal(context_received(wide_BLL, wide_BL)[:, :length], context_received(phi_BLL, weight_BL))
    assert torch.equal(context_supplied(wide_BLL, wide_BL)[:, :length], context_supplied(phi_BLL, weight_BL))
    assert torch.equal(ordered_sum(wide_BL), ordered_sum(weight_BL))


@pytest.mark.parametrize(
    ("default", "other"),
    [
        (ScoreDiagnostic(), ScoreDiagnostic(pairs=3)),
        (ScoreDiagnostic(), ScoreDiagnostic(ridge=0.5)),
        (RegionDiagnostic(), RegionDiagnostic(budget=0.9)),
        (CardinalityDiagnostic(), CardinalityDiagnostic(epsilon=1.0)),
        (CommitmentDiagnostic(), CommitmentDiagnostic(epsilon=10.0)),
        (CommitmentDiagnostic(), CommitmentDiagnostic(window=1)),
    ],
)
def test_every_setting_has_an_effect(problem, default, other):
    _, _, history = problem
    differs = False
    for traj, action in history[1:]:
        one, two = default.read(traj, action), other.read(traj, action)
        differs |= not same(one.signal_B, two.signal_B) or not torch.equal(one.action.region_BL, two.action.region_BL)
    assert differs


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (ScoreDiagnostic, {"pairs": 0}),
        (ScoreDiagnostic, {"ridge": 0.0}),
        (RegionDiagnostic, {"budget": 0.0}),
        (RegionDiagnostic, {"budget": 1.5}),
        (CardinalityDiagnostic, {"epsilon": 0.0}),
        (CommitmentDiagnostic, {"epsilon": -1.0}),
        (CommitmentDiagnostic, {"window": 0}),
    ],
)
def test_impossible_settings_are_refused(kind, setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        kind(**setting)


@pytest.mark.parametrize("axis", ["score", "cardinality", "commitment"])
def test_a_prediction_without_the_needs_is_refused(problem, axis):
    _, _, history = problem
    traj, action = history[2]
    poor = replace(
        traj, prediction=replace(traj.current_prediction, drift_BN=None, displacement_BN=None, attention_BNN=None)
    )
    with pytest.raises(ConfigError, match="needs"):
        DIAGNOSTICS[axis].read(poor, action)
    last = replace(traj.last, prediction=replace(traj.last.prediction, drift_BN=None, attention_BNN=None))
    poor = replace(traj, steps=(*traj.steps[:-1], last))
    with pytest.raises(ConfigError, match="needs"):
        DIAGNOSTICS[axis].read(poor, action)


def test_a_resumed_trajectory_reads_the_same(problem, kit):
    """`recall` gives back the last step's posterior and attention; the rest is recorded."""
    denoiser, start, _ = problem
    one = start.select(torch.tensor([1]))
    whole = kit.Watched()
    run = decode(denoiser, whole, one, noise=Noise.of([7]))
    again = kit.Watched()
    decode(denoiser, again, run.resume(0, 3), noise=Noise.of([7]))
    for diagnostic in kit.every_diagnostic():
        assert_same_reading(diagnostic.read(*whole.seen[3]), diagnostic.read(*again.seen[0]))
