"""Searches of a study beside best of n of their base methods, which cost no more forwards."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from unmask.lab.analysis.decoded import ArmGrid
from unmask.stats import Estimate, paired_estimates

ARMS = ("reference", "search", "base", "control")
DIFFERENCES = (("search", "control"), ("search", "base"), ("search", "reference"), ("control", "base"))


@dataclass(frozen=True)
class SearchCell:
    """One model, task and search, on evaluation prompts that all its arms have a judged answer for."""

    model: str
    task: str
    search: str
    n: int
    """Decodes of the base method that the control is the best of."""
    utility: Mapping[str, Estimate]
    """By `ARMS`: the model's reference, the search, its base method, best of n of that."""
    difference: Mapping[tuple[str, str], Estimate]
    """By pair of `DIFFERENCES`, paired over prompts."""
    forwards: Mapping[str, float]
    """Mean per prompt, by `ARMS`."""
    prompts: int
    unjudged: int


def search_cells(
    model: str, task: str, about: Mapping[str, Any], grid: ArmGrid | None, *, seed: int, resamples: int
) -> Iterator[SearchCell]:
    """A cell for every search of a unit that has judged prompts; `about` is what the unit says of its searches."""
    for search, entry in about.items() if grid is not None else ():
        assert grid is not None
        arms = {"reference": "reference", "search": search, "base": entry["base"], "control": entry["control"]}
        used_P = grid.judged(tuple(arms.values()))
        if not used_P.any():
            continue
        used = grid.select(used_P, arms)
        means, differences = paired_estimates({task: used}, ARMS, DIFFERENCES, seed=seed, resamples=resamples)
        forwards = {role: float(entry["forwards"][arm]) for role, arm in arms.items()}
        prompts, unjudged = int(used_P.sum()), int((~used_P).sum())
        yield SearchCell(model, task, search, int(entry["n"]), means, differences, forwards, prompts, unjudged)
