"""What `unmask study plan --on ray` says of a cluster: wall time, GPU hours, and where more workers do not help."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import require

if TYPE_CHECKING:
    from unmask.lab.study import Study
    from unmask.lab.study.cluster_cost import ClusterCost, Cut
    from unmask.lab.study.forecast import CostEstimate

LoadSeconds = Annotated[
    float | None,
    typer.Option(min=0, help="With --on ray: until a worker has read a model. Default: measured, or left out."),
]


@dataclass(frozen=True)
class ClusterAsked:
    """The options of a cluster, checked together."""

    on: str | None
    workers: int | None
    gpus_per_worker: float | None
    load_seconds: float | None

    def check(self, timed: bool) -> None:
        """Before anything is counted."""
        require(self.on in (None, "ray"), "--on", self.on, "ray", "leave it out to plan for this machine")
        given = {f"--{name.replace('_', '-')}": value for name, value in vars(self).items() if name != "on"}
        idle = [name for name, value in given.items() if value is not None and self.on is None]
        require(not idle, idle[0] if idle else "", given.get(idle[0]) if idle else None, "with --on ray", "add it")
        if self.on is None:
            return
        require(self.workers is not None, "--workers", None, "1 or more with --on ray", "say how many there will be")
        require(timed, "--rate", None, "a rate or --measure with --on ray", "`unmask bench` measures one")

    def cost(
        self, study: "Study", rows: "Sequence[CostEstimate]", cuts: "Mapping[str, Cut]", measured: float
    ) -> "ClusterCost":
        """`measured` is how long a model took to load here; 0 where none was."""
        from unmask.lab.study.cluster_cost import cluster_cost

        return cluster_cost(
            study,
            rows,
            cuts,
            workers=self.workers or 1,
            gpus_per_worker=1.0 if self.gpus_per_worker is None else self.gpus_per_worker,
            load_seconds=measured if self.load_seconds is None else self.load_seconds,
        )


def cost_document(cost: "ClusterCost") -> dict[str, Any]:
    """For machines."""
    return {**cost._asdict(), "phases": [phase._asdict() for phase in cost.phases]}


def cost_table(cost: "ClusterCost", span: Any) -> Any:
    """One line per phase, and one for all."""
    from unmask.report.terminal import columns

    heads = ("on the cluster", "model", "pieces", "one worker", "all workers", "at least")
    lines = [
        [phase.name, phase.model, f"{phase.pieces:,}", *map(span, (phase.work, phase.wall, phase.longest))]
        for phase in cost.phases
    ]
    return columns(heads, [*lines, ["all", "", "", span(cost.one_worker), span(cost.wall), ""]])


def cost_remarks(cost: "ClusterCost", span: Any) -> list[str]:
    """What it comes to, and what more workers would change."""
    from unmask.lab.study.cluster_cost import LOAD

    held = f"{cost.gpu_hours:,.1f} GPU hours" if cost.gpus else "no GPU"
    lines = [
        f"{cost.workers} workers: {span(cost.wall)}, {held}, {cost.busy:.0%} of the time computing. A phase ends with "
        "its last piece; writing goes on beside the forwards and is not counted."
    ]
    tails = [phase for phase in cost.phases if phase.name != LOAD and phase.wall <= 1.001 * phase.longest]
    if tails and cost.workers > 1:
        named = ", ".join(f"{phase.name} of {phase.model}" for phase in tails)
        lines.append(f"More workers change nothing for {named}: what has to come one after the other takes as long.")
    return lines
