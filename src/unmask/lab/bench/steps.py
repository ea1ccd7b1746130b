"""A step of the decode loop beside its own forwards; and what the diagnostics add to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from unmask.adapt import PAPER_DIAGNOSTICS, Adaptive, DetectorRule
from unmask.core import Denoiser, DenoiserWrapper, ModelInput, ModelOutput, Needs, Policy, SamplingParams, Trajectory
from unmask.engine import decode
from unmask.lab.bench.clock import Effort, Stopwatch, Work, interleaved
from unmask.lab.bench.lines import Found, Line, Ratio
from unmask.lab.bench.subject import Subject
from unmask.methods import LLaDA, fixed_action

PART = "step"
LLADA, SAMPLED, WATCHED = "llada", "llada, sampled", "llada, watched"
FIXED, FOUR = "fixed", "selective, four diagnostics"
FORWARDS = "forwards of llada"


@dataclass
class Views(DenoiserWrapper):
    """Remembers what the network was asked."""

    denoiser: Denoiser
    asked: list[tuple[ModelInput, Needs]] = field(default_factory=list)

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self.asked.append((inputs, needs))
        return self.denoiser(inputs, needs)

    def again(self) -> None:
        """The same forwards without all that happens between them."""
        for inputs, needs in self.asked:
            self.denoiser(inputs, needs)


def measure(subject: Subject, batch: int, effort: Effort, clock: Stopwatch, quick: bool) -> Found:
    """Whole decodes in turns, by the step; the forwards are those that the decode by LLaDA asks for."""
    llada, fixed, joint = policies(subject)
    views = Views(subject.network)
    # Watched at every step, so that each forward is asked for by itself.
    decoding(subject, views, llada, batch, on_step=_look)()
    works: dict[str, Work] = {
        FORWARDS: views.again,
        LLADA: decoding(subject, subject.network, llada, batch),
        WATCHED: decoding(subject, subject.network, llada, batch, on_step=_look),
        SAMPLED: decoding(subject, subject.network, llada, batch, sampling=SamplingParams(temperature=0.7)),
        FIXED: decoding(subject, subject.network, fixed, batch),
        FOUR: decoding(subject, subject.network, joint, batch),
    }
    if quick:
        del works[SAMPLED]
    steps = len(views.asked)
    lines = {
        name: Line(PART, name, batch, "forward" if name == FORWARDS else "step", spent.per(steps))
        for name, spent in interleaved(works, clock, effort).items()
    }
    over = {name: f"a step of {name} over its forward" for name in (LLADA, SAMPLED, WATCHED) if name in lines}
    ratios = [Ratio.between(text, lines[name], lines[FORWARDS]) for name, text in over.items()]
    return Found(tuple(lines.values()), (*ratios, Ratio.between(f"{FOUR} over fixed", lines[FOUR], lines[FIXED])))


def _look(traj: Trajectory) -> None:
    """At every step: what is asked for then is the plain loop."""


def policies(subject: Subject) -> tuple[Policy, Policy, Policy]:
    """LLaDA's, the fixed action, and the four diagnostics around it behind gates that never open."""
    shut = DetectorRule((), (0.0,), None)
    fixed = fixed_action()
    return LLaDA(subject.canvas.block), fixed, Adaptive(fixed, [(one, shut) for one in PAPER_DIAGNOSTICS])


def decoding(
    subject: Subject,
    denoiser: Denoiser,
    policy: Policy,
    batch: int,
    *,
    steps: int | None = None,
    sampling: SamplingParams | None = None,
    on_step: Callable[[Trajectory], None] | None = None,
) -> Callable[[], Trajectory]:
    """Every row to its end, without a record; where it starts is made beforehand."""
    start, noise = subject.state(batch, steps=steps), subject.noise(batch)
    return partial(decode, denoiser, policy, start, noise=noise, sampling=sampling, record=False, on_step=on_step)
