"""The table of a study's searches: each beside what the same forwards buy without it."""

from unmask.lab.analysis.searches import SearchCell
from unmask.report.formats import count, number, point
from unmask.report.sheet import AnySheet, Column, Sheet, attribute
from unmask.report.tables.shared import counts, named
from unmask.report.verdicts import plain_verdict

_HEADS = {"reference": "Ref.", "base": "Base", "search": "Search", "control": "Best of n"}
_PAIRS = {
    "over_control": (("search", "control"), "Search − Best of n"),
    "over_base": (("search", "base"), "Search − Base"),
    "over_reference": (("search", "reference"), "Search − Ref."),
    "control_over_base": (("control", "base"), "Best of n − Base"),
}


def searches_sheet(cells: tuple[SearchCell, ...]) -> AnySheet:
    columns: tuple[Column[SearchCell], ...] = (
        *named("model", "task"),
        # `search` is the column of its utility.
        attribute("method", "search", path="search", left=True),
        *(_utility(arm, head) for arm, head in _HEADS.items()),
        *(column for key in _PAIRS for column in _difference(key)),
        attribute("n", "n", count),
        *(_forwards(arm, head) for arm, head in _HEADS.items()),
        *counts("prompts", "unjudged"),
    )
    return Sheet(
        "e4-searches",
        "Searches, and what the same forwards buy without them",
        "Whole answers of searches, of the methods they build on, and of the best of n answers of those, n as many as "
        "the search's mean forwards pay for (one at least): the first as the study decodes, the others at temperature "
        "0.6, the most probable kept by the sum of log p of its tokens when they were revealed. Differences have "
        "paired 95 % intervals over prompts.",
        columns,
        cells,
        empty="None.",
    )


def _utility(arm: str, head: str) -> Column[SearchCell]:
    return Column(arm, head, lambda cell: cell.utility[arm], point, wide=True)


def _forwards(arm: str, head: str) -> Column[SearchCell]:
    return Column(f"forwards_{arm}", f"forwards, {head}", lambda cell: cell.forwards[arm], lambda x: f"{x:.1f}")


def _difference(key: str) -> tuple[Column[SearchCell], ...]:
    pair, head = _PAIRS[key]
    return (
        Column(key, head, lambda cell: cell.difference[pair], number, wide=True),
        Column(f"{key}_verdict", "interval", lambda cell: plain_verdict(cell.difference[pair]), left=True),
    )
