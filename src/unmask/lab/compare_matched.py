"""Controls of searches that cost the same: best of n of the base method, n as many decodes as the search pays for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Protocol

from unmask.base.errors import ConfigError
from unmask.core import Policy, Search
from unmask.methods import BestOf, describe_policy, method_status


class AnyRow(Protocol):
    """What of an answer a control looks at."""

    @property
    def task(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def forwards(self) -> int: ...


@dataclass(frozen=True)
class MatchedControl:
    """Best of n of a search's base method; n is known once both have decoded the task."""

    of: str
    """The arm of the search."""
    base: str
    """The arm of its base method, decoded once."""
    policy: BestOf
    """With an n of its own to come."""

    def size(self, forwards: Mapping[str, float]) -> int:
        """How many decodes of the base the search's mean forwards pay for, by arm; one at least."""
        return max(1, int(forwards[self.of] / forwards[self.base] + 1e-9))

    def described(self) -> dict[str, Any]:
        """For a comparison's configuration."""
        return {"of": self.of, "base": self.base, "policy": describe_policy(self.policy), **method_status(self.policy)}


def with_controls(
    policies: Mapping[str, Policy | Search],
) -> tuple[dict[str, Policy | Search], dict[str, MatchedControl]]:
    """The arms, the bases of their searches among them, and a control for every search that has one."""
    arms, controls = dict(policies), {}
    for name, search in policies.items():
        base = search.baseline if isinstance(search, Search) else None
        if base is None:
            continue
        there = next((arm for arm, policy in arms.items() if policy == base), None)
        if there is None:
            there = f"base of {name}"
            arms[there] = base
        controls[f"best of n like {name}"] = MatchedControl(name, there, BestOf(base))
    return arms, controls


def sized(control: MatchedControl, rows: Iterable[AnyRow], task: str) -> BestOf:
    """The control of a search that has decoded the task."""
    spent = _mean_forwards(rows, task)
    for arm in (control.of, control.base):
        if arm not in spent:
            raise ConfigError(f"{arm} could not decode {task}; allowed: controls of arms that can; see its own reason")
    return replace(control.policy, n=control.size(spent))


def sizes(controls: Mapping[str, MatchedControl], rows: Sequence[AnyRow]) -> dict[str, Any]:
    """How many decodes each control had on each task, for the configuration; nothing where there are none."""
    found: dict[str, dict[str, int]] = {}
    for name, control in controls.items():
        tasks = dict.fromkeys(row.task for row in rows if row.policy == name)
        found[name] = {task: control.size(_mean_forwards(rows, task)) for task in tasks}
    return {"matched_n": found} if controls else {}


def _mean_forwards(rows: Iterable[AnyRow], task: str) -> dict[str, float]:
    """Of every arm on a task."""
    spent: dict[str, list[int]] = {}
    for row in rows:
        if row.task == task:
            spent.setdefault(row.policy, []).append(row.forwards)
    return {arm: fmean(forwards) for arm, forwards in spent.items()}
