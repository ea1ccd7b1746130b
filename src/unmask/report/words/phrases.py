"""Parts of sentences that every answer is put together from."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from unmask.lab.analysis.opportunity import OpportunityFindings


class OfModel(Protocol):
    """Anything that is about one model."""

    @property
    def model(self) -> str: ...


Cell = TypeVar("Cell", bound=OfModel)


def by_model(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """In the order in which models come."""
    return {model: [c for c in cells if c.model == model] for model in dict.fromkeys(c.model for c in cells)}


def model_name(findings: OpportunityFindings, model: str) -> str:
    """A model by its name here and, where that differs, by what was loaded: a name is not the model."""
    spec = next(spec for spec in findings.manifest["study"]["models"] if spec["name"] == model)
    source = str(spec["model"])
    last = source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return model if last.lower() == model.lower() else f"{model} ({source})"


def place(findings: OpportunityFindings, model: str, task: str, axis: str) -> str:
    """One setting; the model only where there are several."""
    where = f"{axis} on {task}"
    return f"{model_name(findings, model)}, {where}" if len(findings.models) > 1 else where


def tally(findings: OpportunityFindings, cells: Sequence[OfModel], hits: Sequence[OfModel]) -> str:
    """`2 of 6 task-axis pairs of mini and none of 4 of other`: a count never stands without what was looked at."""
    parts: list[str] = []
    for model, of_model in by_model(cells).items():
        hit = sum(c.model == model for c in hits)
        noun = "" if parts else f" task-axis pair{'s' * (len(of_model) != 1)}"
        parts.append(f"{hit or 'none'} of {len(of_model)}{noun} of {model_name(findings, model)}")
    return listed(parts)


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(parts[:-1])] * (len(parts) > 1) + list(parts[-1:]))


def intervals_lie(cells: Sequence[object]) -> str:
    return "interval lies" if len(cells) == 1 else "intervals lie"


def flatters(looks: int) -> str:
    """The winner's curse, where there was more than one to choose from."""
    return f"; the best of {looks} looks better than it is" if looks > 1 else ""


def chance(looks: int, where: str = "above zero", most: str = "about", what: str = "settings") -> str:
    """What many looks do, where there were many: a clause to be put behind a count."""
    if looks < 2:
        return ""
    return f"; of {looks} {what}, {most} 2.5 % each would show such an interval {where} by chance"
