"""A run as it happens, told to a page step by step in the plain values of `look.run`."""

from collections.abc import Callable
from typing import Any

from unmask.base.files import storable
from unmask.core import Search, State, Trajectory
from unmask.methods import METHODS
from unmask.models import Codec
from unmask.report.run_data import FORMAT, step_data, token_speller, token_texts
from unmask.viewer.sessions import PageWork

Plain = dict[str, Any]
OnStep = Callable[[Trajectory], None]


def watching(job: PageWork, codec: Codec, *, prompt: str, model: str, policy: str) -> OnStep:
    """Tells the empty canvas, then every step; ends the run at its next step once nobody listens."""
    spell, begun = token_speller(codec), False

    def on_step(traj: Trajectory) -> None:
        nonlocal begun
        job.check()
        if traj.last is None:
            return
        if not begun:
            begun = True
            job.tell(
                "start", {"record": empty_record(traj.last.state, codec, prompt=prompt, model=model, policy=policy)}
            )
        tell_step(job, traj, spell)

    return on_step


def watching_branch(job: PageWork, codec: Codec, start: State, label: str) -> OnStep:
    """The same for a branch. Its own first step is not shown to `on_step`: it is what the next one begins with."""
    spell, begun = token_speller(codec), False

    def on_step(traj: Trajectory) -> None:
        nonlocal begun
        job.check()
        if traj.last is None:
            return
        first, before = int(start.step_B[0]), int(traj.last.state.step_B[0])
        if not begun and before == first + 1:
            job.tell("step", difference(start, traj.last.state, spell, label))
        begun = True
        tell_step(job, traj, spell)

    return on_step


def watching_search(job: PageWork) -> OnStep:
    """Of a method that owns its loop: its best path may change as a whole, so only what it has spent is told."""

    def on_step(traj: Trajectory) -> None:
        job.tell("progress", {"forwards": int(traj.forwards_B.sum())})

    return on_step


def is_search(policy: Any) -> bool:
    """Whether a policy, or the one of this name, owns its loop."""
    return isinstance(policy, Search) or (policy in METHODS and issubclass(METHODS[policy].kind, Search))


def tell_step(job: PageWork, traj: Trajectory, spell: Callable[[int], str]) -> None:
    assert traj.last is not None
    job.tell("step", step_data(traj.last, traj.state, spell, number=int(traj.state.step_B[0])))


def difference(before: State, after: State, spell: Callable[[int], str], policy: str) -> Plain:
    """A step of which only both ends are known: what changed between them."""
    was, now = token_texts(before, spell), token_texts(after, spell)
    changes = [[at, new, None] for at, (old, new) in enumerate(zip(was, now, strict=True)) if old != new]
    nothing = {"why": "", "signal": None, "threshold": None, "open": None}
    return {"step": int(after.step_B[0]), "changes": changes, "policy": policy, **nothing}


def empty_record(state: State, codec: Codec, *, prompt: str, model: str, policy: str) -> Plain:
    """A run before its first step."""
    length = int(state.length_B[0])
    return {
        "format": FORMAT,
        "model": model,
        "policy": policy,
        "prompt": storable(prompt),
        "text": "",
        "score": None,
        "explanation": None,
        "tokens": token_texts(state, token_speller(codec)),
        "fixed": (~state.answer_BL[0, :length]).tolist(),
        "filler": [False] * length,
        "steps": [],
    }


def prefix(record: Plain, step: int, policy: str) -> Plain:
    """A run as far as one of its states, where another future begins."""
    unknown = {"text": "", "score": None, "explanation": None, "filler": [False] * len(record["tokens"])}
    return {**record, **unknown, "policy": policy, "steps": record["steps"][:step]}
