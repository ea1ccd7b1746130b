"""Controls of searches that cost as much: best of n of the base method, n as many decodes as the search pays for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unmask.core import Policy, Search
from unmask.methods import BestOf, describe_policy, method_status


@dataclass(frozen=True)
class ComputeMatchedControl:
    """Control of a search: best of n of its base method, with n chosen so that both cost the same.

    n is known once search and base have decoded a task.
    """

    search: str
    """Name of the search's arm."""
    base: str
    """Name of the arm of its base method, decoded once."""
    policy: BestOf
    """Best of n, with n not yet known."""

    def affordable_n(self, forwards: Mapping[str, float]) -> int:
        """Compute how many decodes of the base method cost as much as one search, at least 1; `forwards` is by arm."""
        # A ratio of means may lie a rounding error below its whole number.
        return max(1, int(forwards[self.search] / forwards[self.base] + 1e-9))

    def describe(self) -> dict[str, Any]:
        """Return the entry of this control in a comparison's configuration."""
        return {
            "of": self.search,
            "base": self.base,
            "policy": describe_policy(self.policy),
            **method_status(self.policy),
        }


def add_controls(
    policies: Mapping[str, Policy | Search],
) -> tuple[dict[str, Policy | Search], dict[str, ComputeMatchedControl]]:
    """Return the arms with the base method of every search added, and a control for every search that has a base."""
    arms, controls = dict(policies), {}
    for name, search in policies.items():
        base = search.baseline if isinstance(search, Search) else None
        if base is None:
            continue
        base_arm = next((arm for arm, policy in arms.items() if policy == base), None)
        if base_arm is None:
            base_arm = f"base of {name}"
            arms[base_arm] = base
        controls[f"best of n like {name}"] = ComputeMatchedControl(name, base_arm, BestOf(base))
    return arms, controls
