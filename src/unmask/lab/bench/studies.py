"""The branch engine: row-forwards a second, as a share of what the network does at the same shape without it."""

from unmask.adapt import PAPER_DIAGNOSTICS
from unmask.api import Request, start_trajectory
from unmask.axes import ReMDM
from unmask.core import ModelInput, Needs
from unmask.lab.bench.clock import Effort, Stopwatch, Times, interleaved
from unmask.lab.bench.lines import Found, Line, Ratio
from unmask.lab.bench.subject import Subject
from unmask.lab.branching import BatchSettings, BranchFrames, BranchPlan, branch
from unmask.methods import candidates, reference_of

PART = "study"
STEADY, ENGINE = "network alone", "branch engine"
SHARE = "branch engine's share of the network's rate"


def measure(subject: Subject, rows: int, effort: Effort, clock: Stopwatch, quick: bool) -> Found:
    """The network before and after the engine, so that a drift shows in neither."""
    # Trajectories come first, one row of a prompt each: fewer prompts than rows would measure dummies.
    prompts = rows + rows // 2 if subject.network.device.type == "cuda" else 2
    requests, settings, plan = requests_of(subject, prompts), BatchSettings(rows), plan_of(quick)
    slots = requests[0].padded_length(settings.bucket)
    many = [requests[at % len(requests)] for at in range(rows)]
    state = start_trajectory(subject.network, many, 0, slots).state
    inputs = ModelInput.of(state, Needs())
    alone = {STEADY: lambda: subject.network(inputs, Needs())}
    branch(subject.network, plan_of(True), requests[:1], settings)
    before = interleaved(alone, clock, effort)[STEADY]
    results: list[BranchFrames] = []
    seconds = clock.seconds(lambda: results.append(branch(subject.network, plan, requests, settings)))
    after = interleaved(alone, clock, effort)[STEADY]
    steady = before.and_later(after)
    # Rows of work: dummies that fill a forward up are none.
    done = int(results[0].costs["done"].sum())
    more = {"row-forwards/s": done / seconds, "rows filled": done / (results[0].calls * rows)}
    lines = (
        Line(PART, STEADY, rows, "forward", steady, {"row-forwards/s": rows / steady.median}),
        Line(PART, ENGINE, rows, "row-forward", Times.of([seconds]).per(done), more),
    )
    return Found(lines, (Ratio(PART, SHARE, rows, (done / seconds) / (rows / steady.median)),))


def plan_of(quick: bool) -> BranchPlan:
    """All axes and diagnostics around LLaDA's decoder."""
    sets = candidates("llada")
    return BranchPlan(
        reference=reference_of(sets),
        candidates=sets,
        operator=ReMDM("conf"),
        rollouts=1,
        states=2 if quick else 4,
        seed=0,
        diagnostics={one.name: one for one in PAPER_DIAGNOSTICS},
    )


def requests_of(subject: Subject, prompts: int = 2) -> list[Request]:
    """Prompts of random tokens with a short answer."""
    answer = subject.canvas.block
    length = subject.canvas.slots - answer
    mask_id = subject.network.vocabulary.mask_id
    return [
        Request(
            f"p{at}",
            (*prompt, *(mask_id,) * answer),
            (*(True,) * length, *(False,) * answer),
            answer // 2,
            (length, length + answer),
        )
        for at, prompt in enumerate(subject.prompts(prompts, length))
    ]
