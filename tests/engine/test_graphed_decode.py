"""Recorded steps: the tokens, counts and records of the plain loop, without the host."""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import pytest
import torch

from tests.helpers.adaptive_arms import selective
from tests.helpers.cases import each_case
from tests.helpers.recordable import OPEN, POLICIES, four
from tests.helpers.tape import HostFree, HostRead, Recorded, Tape, TapeRecorder
from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.api.load import load
from unmask.base.errors import DenoiserError, InvalidAction, Unfinished
from unmask.core import (
    Action,
    LookAhead,
    Noise,
    Policy,
    SamplingParams,
    State,
    Trajectory,
    Vocabulary,
    row_key,
    tensors,
)
from unmask.engine import decode
from unmask.engine.graphed_decode import GraphedRows, PendingFlags
from unmask.methods import METHODS, LLaDA, fixed_action, make_policy
from unmask.models import ExactDenoiser, JointDistribution, Network, Transformer, TransformerSpec

EXACT = ExactDenoiser(JointDistribution.random(9, 4, dependence=1.5, seed=3), eos_ids=(2, 3))


def rows(denoiser, new_tokens=(2, 6, 4, 5), steps=None, prompts=((0,), (1, 2), (3,), (2, 1))):
    """Rows of several lengths, which end at several times."""
    count = len(new_tokens)
    state = State.from_prompts(
        [list(p) for p in prompts[:count]],
        new_tokens=list(new_tokens),
        steps=list(steps or new_tokens),
        mask_id=denoiser.vocabulary.mask_id,
    )
    return {"start": state, "noise": Noise.of([row_key(0, bytes(p)) for p in prompts[:count]])}


def both(denoiser, policy, run, recorder=None, **options):
    """What the plain loop gives, and what recorded steps give."""
    recorder = recorder or TapeRecorder(replays=False)
    plain = decode(denoiser, policy, run["start"], noise=run["noise"], **options)
    return plain, decode(with_recorder(denoiser, recorder), policy, run["start"], noise=run["noise"], **options)


def with_recorder(denoiser, recorder):
    return replace(denoiser, step_graphs=recorder) if isinstance(denoiser, Network) else Recorded(denoiser, recorder)


@cache
def tiny() -> Network:
    """Two narrow layers; two tokens end the text, so that some tails are closed."""
    model = Transformer.empty(TransformerSpec(24, 16, 2, 2, 1, 32, 1e4, 1e-5, True, True), "cpu", torch.float32)
    torch.manual_seed(1)
    for name, values in model.named_parameters():
        torch.nn.init.ones_(values) if "norm" in name else torch.nn.init.normal_(values, std=0.5)
    return Network(model.requires_grad_(False), Vocabulary(24, 23, (5, 7)), readout=(0, 1))


# Which.


def test_methods_of_one_shape_are_recordable():
    """The others look ahead, have slots of their own, or pick positions out."""
    policies = {name: method for name in METHODS if isinstance(method := make_policy(name), Policy)}
    others = {name for name, policy in policies.items() if not policy.cuda_graph}
    assert others == {"wino", "core", "info-gain", "vsb", "demask", "ddpd"}
    assert four().cuda_graph
    assert not make_policy("fast-dllm", spacing=8).cuda_graph
    assert not make_policy("p2", noisy=True).cuda_graph
    assert not make_policy("revised", base=make_policy("wino")).cuda_graph
    assert not selective(make_policy("fast-dllm", spacing=2), DIAGNOSTICS["score"], OPEN).cuda_graph


# The same as the plain loop.


@each_case("name", POLICIES)
def test_a_step_can_be_recorded(name):
    """Nothing in it reads from or brings from the host, or makes shapes of values; a replay does what it would do."""
    recorder, network = TapeRecorder(rehearses=False), tiny()
    plain, recorded = both(network, POLICIES[name], rows(network, (4, 2)), recorder)
    assert plain.to_bytes() == recorded.to_bytes()
    assert not recorder.refused
    assert recorder.count["recorded"] >= min(2, len(plain.steps))
    assert recorder.count["replayed"] or len(plain.steps) < 3 + POLICIES[name].past_steps


def test_a_longer_memory_is_recorded_step_by_step():
    """Until it is full, every number of steps in it is a recording of its own."""
    recorder, network = TapeRecorder(rehearses=False), tiny()
    plain, recorded = both(network, four(), rows(network, (7, 2)), recorder, sampling=SamplingParams(temperature=0.7))
    assert plain.to_bytes() == recorded.to_bytes()
    assert four().past_steps == 4
    assert [steps.history.most for steps in recorder.kept.values()] == [4, 4], "two rows, then one"
    assert recorder.count["replayed"]


@each_case("name", [*POLICIES][::6])
def test_steps_are_those_of_the_plain_loop(name):
    """To the byte of the record, on rows that end at different times, at temperature 1 and with closed tails."""
    same_on_exact(POLICIES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_all_steps_are_those_of_the_plain_loop(name):
    """The same, and replays on batches of other lengths and ends."""
    same_on_exact(POLICIES[name])
    recorder, network = TapeRecorder(), tiny()
    for first in range(4):
        run = rows(network, (8, 2, 8, 4), (8, 2, 4, 2), prompts=((first, 8), (1, 2), (first,), (4, 4)))
        options = {"sampling": SamplingParams(temperature=0.7), "eos_fill": True, "record": first > 1}
        plain, recorded = both(network, POLICIES[name], run, recorder, **options)
        assert plain.to_bytes() == recorded.to_bytes()
    assert not recorder.refused
    assert recorder.count["replayed"]


def same_on_exact(policy):
    run = rows(EXACT, (4, 6, 2), (2, 6, 2))
    recorder = TapeRecorder(replays=False)
    plain, recorded = both(EXACT, policy, run, recorder, sampling=SamplingParams(temperature=1.0), eos_fill=True)
    assert plain.to_bytes() == recorded.to_bytes()
    assert torch.equal(plain.remasks_B, recorded.remasks_B)
    assert recorder.count["at once"]
    assert not recorder.refused


PROPOSALS = {
    "greedy": SamplingParams(),
    "gumbel": SamplingParams(temperature=0.8, sampler="gumbel"),
    "filtered": SamplingParams(temperature=0.8, top_p=0.9, top_k=5),
    "ends": SamplingParams(confidence_eos_eot_inf=True, eos_penalty=0.5),
    "no end": SamplingParams(temperature=0.5, logits_eos_inf=True, bar_mask=False),
}


@each_case("proposal", PROPOSALS.values(), ids=PROPOSALS)
@each_case("policy", [LLaDA(), make_policy("klass", variant="dream")], ids=["llada", "klass"])
def test_every_proposal_can_be_recorded(policy, proposal):
    recorder, network = TapeRecorder(rehearses=False), tiny()
    plain, recorded = both(network, policy, rows(network, (6, 4)), recorder, sampling=proposal, eos_fill=True)
    assert plain.to_bytes() == recorded.to_bytes()
    assert recorder.count["replayed"]


@pytest.mark.parametrize("model", ["mini", "mini-dream"])
def test_the_shipped_models_decode_alike(model):
    network = load(model, device="cpu").denoiser
    prompts = tuple(tuple(range(20 + n, 26 + 2 * n)) for n in range(4))
    for policy in (
        make_policy("llada" if model == "mini" else "dream"),
        make_policy("fast-dllm", threshold=0.3, block_length=4),
    ):
        run = rows(network, (4, 8, 6, 8), (2, 8, 3, 4), prompts=prompts)
        recorder = TapeRecorder(replays=False)
        plain, recorded = both(network, policy, run, recorder, eos_fill=True, sampling=SamplingParams(temperature=0.4))
        assert plain.to_bytes() == recorded.to_bytes()
        assert len(recorder.kept) > 1, "rows that are done leave in the end"


def test_blanks_between_given_tokens_are_filled_alike():
    blank = tiny().vocabulary.mask_id
    canvases = [[blank, 3, 4, blank, blank, 2], [1, blank, blank, 6], [blank, blank, blank, blank, 9]]
    state = State.from_canvases(canvases, steps=[3, 1, 2], mask_id=blank)
    run = {"start": state, "noise": Noise.of([1, 2, 3])}
    for policy in (LLaDA(), make_policy("dream"), make_policy("remdm"), four()):
        plain, recorded = both(tiny(), policy, run, sampling=SamplingParams(temperature=1.0))
        assert plain.to_bytes() == recorded.to_bytes()


@pytest.mark.parametrize(
    "policy", [LLaDA(), make_policy("remdm"), make_policy("klass"), four()], ids=lambda policy: policy.name
)
def test_canvases_of_many_lengths_share_a_recording(policy):
    """They are padded, and what is returned and recorded is cut off again; also where recording fails on the way."""
    network = tiny()
    for recorder in (TapeRecorder(slots_multiple=16), TapeRecorder(slots_multiple=16, fails="no room")):
        for length in (1, 3, 7):
            run = rows(network, (4, 3), (4, 3), prompts=((2,) * length, (1, 2)))
            plain, recorded = both(network, policy, run, recorder, sampling=SamplingParams(temperature=0.7))
            assert torch.equal(plain.state.tokens_BL, recorded.state.tokens_BL)
            assert torch.equal(plain.state.committed_BL, recorded.state.committed_BL)
            assert len(plain.steps) == len(recorded.steps)
            for one, other in zip(tensors(plain.steps).values(), tensors(recorded.steps).values(), strict=True):
                # Sums over a longer canvas may differ in their last bits.
                torch.testing.assert_close(one, other, equal_nan=True)
            Trajectory.from_bytes(recorded.to_bytes())
    assert recorder.refused
    assert {steps.rows.state.tokens_BL.shape[1] for steps in recorder.kept.values()} <= {16}


def test_other_rows_are_taken_up_by_the_same_recording():
    """Prompts, noise, given tokens and lengths are numbers in buffers; nothing of the last run stays."""
    recorder, network = TapeRecorder(), tiny()
    sampling = SamplingParams(temperature=0.7)
    for seed in range(4):
        prompts = ((seed, seed + 1), (3,), (seed, 4))
        run = rows(network, (4, 5, 4), (4, 5 - seed, 2), prompts=prompts)
        run["noise"] = Noise.of([seed, 7 * seed, 3])
        plain, recorded = both(network, LLaDA(), run, recorder, sampling=sampling)
        assert plain.to_bytes() == recorded.to_bytes()
        assert recorded.config is None
    batches = {steps.rows.state.batch for steps in recorder.kept.values()}
    assert batches == {3, 1}
    assert recorder.count["replayed"] > recorder.count["at once"]


def test_a_configuration_is_that_of_its_own_run():
    recorder = TapeRecorder(replays=False)
    run = rows(EXACT)
    for name in ("one", "two"):
        start = replace(Trajectory.start(run["start"], run["noise"]), config={"name": name})
        assert decode(Recorded(EXACT, recorder), LLaDA(), start).config == {"name": name}


def test_only_the_open_block_gets_logits_where_nothing_else_is_read():
    """Of a run that keeps no steps: tokens are the same, and the head has a fraction of the work."""
    recorder, network = TapeRecorder(), tiny()
    for policy in (
        make_policy("llada", block_length=2),
        make_policy("fast-dllm", block_length=2),
        make_policy("klass", block_length=2),
    ):
        for record in (False, True):
            run = rows(network, (8, 6), (4, 3))
            plain, recorded = both(
                network, policy, run, recorder, record=record, sampling=SamplingParams(temperature=0.7)
            )
            assert plain.to_bytes() == recorded.to_bytes()
    rows_of = [steps.slots.count for steps in recorder.kept.values() if steps.rows.state.batch == 2]
    # KLASS compares with the posteriors of the step before, wherever they are.
    assert rows_of == [4, 14, 4, 14, 14]


def test_rows_that_are_done_leave_once_they_are_half():
    recorder = TapeRecorder(replays=False)
    run = rows(EXACT, (1, 6, 2, 6), (1, 6, 2, 6))
    plain, recorded = both(EXACT, LLaDA(), run, recorder)
    assert plain.to_bytes() == recorded.to_bytes()
    assert [steps.rows.state.batch for steps in recorder.kept.values()] == [4, 2]
    # One step of the four runs ahead; the end of the two is foreseen.
    assert recorder.count["at once"] == 6


def test_a_step_is_started_before_the_flags_of_the_one_before_are_read(monkeypatch):
    """A device that counts: it has work ahead whenever the host waits, but for the last step, whose end is known."""
    launched, reads = [0], []
    step, read = GraphedRows._step, PendingFlags.read

    def counted_step(rows, settings):
        launched[0] += 1
        return step(rows, settings)

    def counted_read(pending):
        reads.append(launched[0])
        return read(pending)

    monkeypatch.setattr(GraphedRows, "_step", counted_step)
    monkeypatch.setattr(PendingFlags, "read", counted_read)
    both(EXACT, LLaDA(), rows(EXACT, (6, 6), (6, 6)))
    assert reads == [2, 3, 4, 5, 6, 6], "steps started when the flags of step 1, 2, ... were read"


def test_an_end_that_is_foreseen_costs_no_step():
    recorder = TapeRecorder(replays=False)
    both(EXACT, LLaDA(), rows(EXACT, (6, 6), (3, 3)), recorder)
    assert recorder.count["at once"] == 3


def test_a_run_that_is_watched_or_taken_up_again_goes_step_by_step():
    recorder = TapeRecorder(replays=False)
    run = rows(EXACT)
    whole = decode(Recorded(EXACT, recorder), LLaDA(), run["start"], noise=run["noise"])
    taken = recorder.count["at once"]
    seen = []
    decode(Recorded(EXACT, recorder), LLaDA(), run["start"], noise=run["noise"], on_step=seen.append)
    again = decode(Recorded(EXACT, recorder), LLaDA(), whole.resume(1, 2))
    assert torch.equal(again.state.tokens_BL[0], whole.state.tokens_BL[1])
    assert len(seen) == 6
    assert recorder.count["at once"] == taken


def test_a_second_decode_of_the_same_moment_runs_the_plain_loop():
    """The buffers hold one run; and they are free again after a run that raised."""
    recorder, run = TapeRecorder(replays=False), rows(EXACT)
    with recorder.busy:
        plain, other = both(EXACT, LLaDA(), run, recorder)
        assert recorder.count["at once"] == 0
        assert plain.to_bytes() == other.to_bytes()
    with pytest.raises(InvalidAction):
        decode(Recorded(EXACT, recorder), Wrong(0), run["start"], noise=run["noise"])
    both(EXACT, LLaDA(), run, recorder)
    assert recorder.count["at once"] > 2


# What goes wrong.


@dataclass(frozen=True)
class Wrong(Policy):
    """Names an impossible kappa at one step of one row, and nothing at all if asked to."""

    name: ClassVar[str] = "wrong"
    steps = "ignore"
    step: int
    row: int = 1
    kappa: float = 2.0
    cuda_graph = True

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        action = fixed_action().act(traj, look_ahead)
        here_B = (traj.state.step_B >= self.step) & (traj.rows_B == self.row)
        return replace(action, kappa_B=torch.where(here_B, self.kappa, action.kappa_B))


@pytest.mark.parametrize("step", [0, 1, 4, 5])
def test_a_fault_is_named_as_in_the_plain_loop(step):
    """Its row and the first step at which it shows, though the host looks later."""
    run = rows(EXACT, (2, 6, 6), (2, 6, 6))
    for denoiser in (EXACT, Recorded(EXACT, TapeRecorder(replays=False))):
        with pytest.raises(InvalidAction, match=rf"row 1, step {step}: kappa is outside"):
            decode(denoiser, Wrong(step), run["start"], noise=run["noise"])


def test_a_fault_of_a_row_that_is_done_is_none():
    run = rows(EXACT, (2, 6, 6), (2, 6, 6))
    plain, recorded = both(EXACT, Wrong(2, row=0), run)
    assert plain.to_bytes() == recorded.to_bytes()


def test_logits_that_are_no_numbers_are_the_models_fault():
    class Broken(Recorded):
        def __call__(self, view, needs):
            output = super().__call__(view, needs)
            return replace(output, logits_RV=output.logits_RV * float("nan"))

    run = rows(EXACT)
    broken = Recorded(Broken(EXACT, TapeRecorder()), TapeRecorder(replays=False))
    with pytest.raises(DenoiserError, match="row 0, step 0: the denoiser returned NaN"):
        decode(broken, LLaDA(), run["start"], noise=run["noise"])


def test_a_run_without_progress_is_ended():
    run = rows(EXACT, (2, 6, 6), (2, 6, 6))
    for denoiser in (EXACT, Recorded(EXACT, TapeRecorder(replays=False))):
        with pytest.raises(Unfinished, match=r"row 2, step 52: the row had not finished"):
            decode(denoiser, Wrong(0, row=2, kappa=0.0), run["start"], noise=run["noise"])


@pytest.mark.parametrize("policy", [LLaDA(), four()], ids=["llada", "four"])
def test_work_that_cannot_be_recorded_goes_on_in_the_plain_loop(policy):
    """From where it stood, with all records; and the next run does not try again."""
    recorder, run = TapeRecorder(fails="no room"), rows(tiny(), (6, 3, 6), (6, 3, 6))
    for _ in range(2):
        plain, recorded = both(tiny(), policy, run, recorder, sampling=SamplingParams(temperature=0.7))
        assert plain.to_bytes() == recorded.to_bytes()
    (why,) = recorder.refused.values()
    assert why.endswith(f"not as a recorded graph: steps of {policy.name} over (3, 7) slots: no room")
    assert recorder.count["recorded"] == 0


@dataclass(frozen=True)
class Forgetful(Policy):
    """Notes something at some steps and not at others: no memory of one form can hold that."""

    name: ClassVar[str] = "forgetful"
    cuda_graph = True

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        action = fixed_action().act(traj, look_ahead)
        return replace(action, notes={} if traj.steps else {"first_B": traj.state.step_B})


@dataclass(frozen=True)
class Nameless(Policy):
    """Notes something of which nobody can tell which axis is the canvas."""

    name: ClassVar[str] = "nameless"
    cuda_graph = True

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        return replace(fixed_action().act(traj, look_ahead), notes={"seen": traj.current_prediction.confidence_BN})


def test_a_note_without_axes_in_its_name_is_not_recorded():
    recorder = TapeRecorder(replays=False)
    plain, recorded = both(EXACT, Nameless(), rows(EXACT), recorder)
    assert plain.to_bytes() == recorded.to_bytes()
    (why,) = recorder.refused.values()
    assert "'seen' of its action does not end in a letter for each of its 2 axes" in why


def test_a_policy_whose_notes_change_their_form_goes_on_in_the_plain_loop():
    recorder = TapeRecorder(replays=False)
    plain, recorded = both(EXACT, Forgetful(), rows(EXACT), recorder)
    assert plain.to_bytes() == recorded.to_bytes()
    (why,) = recorder.refused.values()
    assert "what it keeps of a step changes from step to step" in why


# The tape itself: what it would not let pass.

HOST = {
    "item": lambda x: x.sum().item(),
    "int": lambda x: range(int(x.max())),
    "bool": lambda x: bool(x.any()),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "flags": lambda x: x[x > 0],
    "put by flags": lambda x: x.__setitem__(x > 0, x[:1]),
    "select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "tensor": lambda x: torch.tensor([1, 2]),
    "as_tensor": lambda x: torch.as_tensor(3),
    "list": lambda x: x[[0, 1]],
    "equal": lambda x: torch.equal(x, x),
    "repeat": lambda x: x.repeat_interleave(x),
}


@each_case("work", HOST.values(), ids=HOST)
def test_the_tape_refuses_what_a_graph_cannot_hold(work):
    with pytest.raises(HostRead), torch.inference_mode(), HostFree(), Tape():
        work(torch.tensor([0, 1, 2]))


def test_a_replay_repeats_the_operations_and_not_the_host():
    x, total, numbers = torch.zeros(3), torch.zeros(()), iter((1, 2, 3))
    tape = Tape()
    with torch.inference_mode(), HostFree(), tape:
        x.add_(next(numbers))
        total.copy_((x[:2] * 2).sum())
    tape.replay()
    assert (x.tolist(), float(total), next(numbers)) == ([2.0] * 3, 8.0, 2)


def test_networks_that_share_a_recorder_share_no_recording():
    """The same layers read otherwise: a step that was recorded for one is not the other's."""
    recorder, network = TapeRecorder(), replace(tiny(), shift=1)
    run = rows(network)
    for other in (network, replace(network, shift=0)):
        expected, *found = (
            decode(one, LLaDA(), run["start"], noise=run["noise"]).state.tokens_BL
            for one in (other, *[replace(other, step_graphs=recorder)] * 3)
        )
        assert all(torch.equal(tokens_BL, expected) for tokens_BL in found)
