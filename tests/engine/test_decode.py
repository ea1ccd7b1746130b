"""The loop: many rows at once, rows that leave, options that act, a record that tells what happened."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.cases import each_case
from tests.helpers.operations import Counted, Uncounted
from unmask.base.errors import ConfigError
from unmask.core import Needs, Noise, SamplingParams, State, Trajectory, row_key
from unmask.engine import LookAheadCache, StepSettings, decode, predict
from unmask.methods import InfoGain, LLaDA, fixed_action, make_policy
from unmask.models import ExactDenoiser, GuidedDenoiser, JointDistribution

JOINT = JointDistribution.random(8, 4, dependence=1.5, seed=3)
EXACT = ExactDenoiser(JOINT, eos_ids=(2, 3))


def start(prompts, new_tokens, steps, seed=0):
    state = State.from_prompts(prompts, new_tokens=new_tokens, steps=steps, mask_id=EXACT.mask_id)
    return state, Noise.of([row_key(seed, bytes(p)) for p in prompts])


def run(policy=None, prompts=((0,), (1, 2)), new_tokens=6, steps=3, seed=0, denoiser=EXACT, **options):
    state, noise = start([list(p) for p in prompts], new_tokens, steps, seed)
    return decode(denoiser, policy or LLaDA(), state, noise=noise, **options)


def test_a_thousand_rows_of_all_lengths_decode_like_single_ones():
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 4, (1000,), generator=generator).tolist()
    prompts = [torch.randint(0, 4, (n,), generator=generator).tolist() for n in lengths]
    new = [int(torch.randint(1, 8 - n + 1, (1,), generator=generator)) for n in lengths]
    steps = [max(1, n - 1) for n in new]
    state, noise = start(prompts, new, steps)
    whole = decode(EXACT, LLaDA(), state, noise=noise, record=False)
    assert not whole.state.masked_BL.any()
    assert whole.forwards_B.tolist() == steps
    for row in range(0, 1000, 97):
        one = torch.tensor([row])
        alone = decode(EXACT, LLaDA(), state.select(one), noise=noise.select(one))
        assert torch.equal(alone.state.tokens_BL, whole.state.tokens_BL[one])


@each_case("policy", ["llada", "klass", "wino", "info-gain", "revised", "remdm"])
@each_case("temperature", [0.0, 0.9])
def test_more_recorded_probabilities_change_nothing_else(policy, temperature):
    made = make_policy(policy, **({"block_length": 4} if policy == "wino" else {}))
    sampling = SamplingParams(temperature=temperature, top_p=0.95)
    plain, wide = (run(made, sampling=sampling, record_top=top) for top in (0, 4))
    assert torch.equal(plain.state.tokens_BL, wide.state.tokens_BL)
    assert torch.equal(plain.forwards_B, wide.forwards_B)
    for few, many in zip(plain.steps, wide.steps, strict=True):
        assert many.prediction.clean.top_BNK.shape[-1] == 4
        k = few.prediction.clean.top_BNK.shape[-1]
        same = replace(
            many.prediction, clean=many.prediction.clean.keep_top(k), filtered=many.prediction.filtered.keep_top(k)
        )
        assert replace(wide, steps=(replace(many, prediction=same),)).to_bytes() == (
            replace(plain, steps=(few,)).to_bytes()
        )


def test_the_record_says_what_was_revealed_by_whom_with_what_confidence():
    traj = run(steps=3).row(0)
    shown = traj.steps[0].state
    for at, step in enumerate(traj.steps):
        assert step.policy == "llada"
        after = traj.steps[at + 1].state if at + 1 < len(traj.steps) else traj.state
        assert torch.equal(step.revealed_BL, shown.masked_BL & ~after.masked_BL)
        seen = {i: int(t) for i, t in enumerate(shown.tokens_BL[0]) if int(t) != shown.mask_id and i < 7}
        marginals = torch.from_numpy(JOINT.prefix(7).marginals(seen))
        for i in step.revealed_BL[0].nonzero().flatten().tolist():
            expected = marginals[i, int(after.tokens_BL[0, i])]
            torch.testing.assert_close(step.confidence_BL[0, i], expected)
        assert (step.confidence_BL[~step.revealed_BL] == 0).all()
        assert step.forwards_B.tolist() == [1]
        assert step.processed_B.tolist() == [7]
        shown = after
    assert sum(int(s.revealed_BL.sum()) for s in traj.steps) == 6


def test_temperature_one_and_one_token_per_step_samples_the_joint():
    """Chain rule: one position at a time from exact conditionals draws from the joint itself.

    Not so under `confidence`, which looks at the drawn token before it picks the position.
    """
    joint = JointDistribution.random(3, 2, dependence=2.0, seed=5)
    denoiser = ExactDenoiser(joint)
    rows = 4000
    state = State.from_prompts([[0]] * rows, new_tokens=2, steps=2, mask_id=denoiser.mask_id)
    noise = Noise.of([row_key(11, b"x", stream) for stream in range(rows)])
    for policy in (
        fixed_action(score="margin", cardinality="count:1"),
        fixed_action(cardinality="count:1", region="last-block:1"),
    ):
        end = decode(denoiser, policy, state, noise=noise, sampling=SamplingParams(temperature=1.0), record=False)
        counts = torch.zeros(2, 2, dtype=torch.float64)
        for a, b in end.state.tokens_BL[:, 1:].tolist():
            counts[a, b] += 1
        expected = torch.from_numpy(joint.p[0] / joint.p[0].sum()) * rows
        chi2 = float(((counts - expected) ** 2 / expected).sum())
        assert chi2 < 16.27, chi2  # 3 degrees of freedom, 0.1 %


def test_looks_are_charged_to_their_owner_and_remembered():
    state, noise = start([[0], [1]], 4, 4)
    settings = StepSettings(EXACT, SamplingParams())
    traj = Trajectory.start(state, noise)
    traj, cost = predict(settings, traj, LLaDA().model_input(traj), Needs())
    assert cost.forwards_B.tolist() == [1, 1]
    looks = LookAheadCache(settings)
    looks.start_counting(traj.rows_B)
    next_state = replace(state, tokens_BL=state.tokens_BL.clone().index_fill(1, torch.tensor([2]), 3))
    looks.predict(next_state, torch.tensor([0, 1]))
    looks.predict(next_state, torch.tensor([1, 1]))
    assert looks.cost.forwards_B.tolist() == [1, 3]
    came_true = replace(traj, state=next_state)
    again, cost = predict(settings, came_true, LLaDA().model_input(came_true), Needs(), looks)
    assert cost.forwards_B.tolist() == [0, 0]
    fresh, _ = predict(settings, came_true, LLaDA().model_input(came_true), Needs())
    assert torch.equal(again.current_prediction.confidence_BN, fresh.current_prediction.confidence_BN)
    assert torch.equal(again.current_prediction.clean.entropy_BN, fresh.current_prediction.clean.entropy_BN)


@pytest.mark.parametrize("guidance", [0.0, 1.5])
def test_a_resumed_look_ahead_reports_what_the_whole_run_does(guidance, tmp_path):
    """The forward that a look had paid for is run again, from memory or from a file, and counted once."""
    denoiser = GuidedDenoiser(EXACT, guidance) if guidance else EXACT
    policy = InfoGain(threshold=None, candidates=4)
    traj = run(policy, prompts=((0,), (3,)), steps=6, denoiser=denoiser)
    traj.save(tmp_path / "run.npz")
    assert any(bool(s.prepaid_B.any()) for s in traj.steps if s.prepaid_B is not None)
    for source in (traj, Trajectory.load(tmp_path / "run.npz")):
        for step in range(6):
            resumed = decode(denoiser, policy, source.resume(1, step))
            assert [int(s.forwards_B) for s in resumed.steps] == [int(s.forwards_B) for s in traj.row(1).steps]
            assert torch.equal(resumed.forwards_B, traj.forwards_B[1:])
            assert torch.equal(resumed.processed_B, traj.processed_B[1:])


def test_a_resumed_run_gets_its_previous_posterior_back():
    """Stability reads the step before; a recording does not keep posteriors, so resuming runs that forward again."""
    policy = fixed_action(score="stability", cardinality="count:1")
    traj = run(policy, prompts=((0,), (3,)), steps=6)
    for step in range(1, 6):
        resumed = decode(EXACT, policy, traj.resume(1, step))
        assert torch.equal(resumed.state.tokens_BL[0], traj.state.tokens_BL[1])
        assert torch.equal(resumed.forwards_B, traj.forwards_B[1:])


def test_guided_look_ahead_does_not_mix_rows_that_share_a_canvas():
    """Two rows may reach one canvas with different given tokens; guidance hides those, so their logits differ."""
    for seed in range(12):
        denoiser = GuidedDenoiser(ExactDenoiser(JointDistribution.random(5, 2, dependence=2.0, seed=seed)), 3.0)
        m = denoiser.vocabulary.mask_id
        canvases = [[0, m, m, m, m], [m, 0, m, m, m], [m, m, 0, m, m], [0, 0, m, m, m], [m, 0, 0, m, m]]
        state = State.from_canvases(canvases, steps=[4, 4, 4, 3, 3], mask_id=m)
        noise = Noise.of([row_key(0, bytes(c)) for c in canvases])
        policy = InfoGain(threshold=None, candidates=6)
        whole = decode(denoiser, policy, state, noise=noise)
        for row in range(len(canvases)):
            one = torch.tensor([row])
            alone = decode(denoiser, policy, state.select(one), noise=noise.select(one))
            assert torch.equal(alone.state.tokens_BL[0], whole.state.tokens_BL[row])
            assert int(alone.forwards_B) == int(whole.forwards_B[row])


def test_a_state_of_another_model_and_missing_noise_are_refused():
    state = State.from_prompts([[0]], new_tokens=2, steps=1, mask_id=77)
    with pytest.raises(ConfigError, match="mask_id of the state is 77; allowed: 4"):
        decode(EXACT, LLaDA(), state, noise=Noise.of([0]))
    with pytest.raises(ConfigError, match="noise is None"):
        decode(EXACT, LLaDA(), start([[0]], 2, 1)[0])


@pytest.mark.parametrize(("proposal", "most"), [(SamplingParams(), 207), (SamplingParams(temperature=0.7), 275)])
def test_a_step_takes_few_tensor_operations_beside_its_forward(proposal, most):
    """Of a short row nearly all of a step's time is their number, on a GPU of a small batch too."""
    counted = Counted()
    denoiser = Uncounted(EXACT, counted)
    states, noise = start([[0]], 6, 6)
    with torch.inference_mode(), counted:
        decode(denoiser, LLaDA(), states, noise=noise, sampling=proposal)
    assert counted.forwards == 6
    assert counted.count / counted.forwards < most
