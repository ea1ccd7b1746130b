"""What the constructed tasks share: how one is declared, its levels, and the spelling of numbered answers."""

from collections.abc import Sequence

from unmask.base.errors import require
from unmask.tasks.base import LEVELS, Generator, Task, TaskJudge, split_counts

COUNTS = split_counts(100, 100, 500)


def constructed_task(
    name: str,
    title: str,
    judge: TaskJudge,
    generator: Generator,
    *,
    horizon: int,
    output: str,
    version: str,
    drawn_as: str = "",
    twin: str = "",
) -> Task:
    """A task whose examples are drawn. Who changes what its generator returns changes its version too.

    Who changes its scoring alone raises the version and keeps the old one in `drawn_as`: ids and prompts stay.
    """
    return Task(
        name, title, horizon, "constructed", output, judge, COUNTS, version, generator, twin=twin, drawn_as=drawn_as
    )


def check_level(level: int) -> None:
    """Generators know the four levels and no other."""
    require(level in LEVELS, "level", level, "1 to 4", "choose one of them")


def indexed(parts: Sequence[str]) -> str:
    """The answers to numbered blanks: `[1]=gate; [2]=courier`."""
    return "; ".join(f"[{i}]={part}" for i, part in enumerate(parts, start=1))
