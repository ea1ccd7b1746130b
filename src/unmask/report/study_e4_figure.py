"""The figure of E4 as inline SVG: what selective gains over fixed when it decodes whole answers."""

from unmask.lab.e4 import CHOSEN, E4
from unmask.report.study_e4_tables import GAIN, MEAN, averaged, chosen_cells
from unmask.report.study_figure import Row, whiskers
from unmask.report.study_tables import PARTIAL
from unmask.stats.opportunity import FEWEST


def end_to_end_figure(found: E4, model: str, name: str) -> str:
    """Each task on its chosen axis, then their mean; hollow where the two arms differ on few prompts."""
    groups = [
        (c.task, [Row(c.axis, c.difference[GAIN], c.wins + c.losses < FEWEST)]) for c in chosen_cells(found, model)
    ]
    for mean in found.means:
        if (mean.model, mean.axis) == (model, CHOSEN) and len(mean.tasks) > 1:
            few = sum(c.wins + c.losses for c in averaged(found, mean)) < FEWEST
            groups.append((MEAN, [Row("mean", mean.difference[GAIN], few, PARTIAL * bool(mean.partial))]))
    title = f"Selective less fixed, end to end, of {model} by task"
    return whiskers(name, groups, title, "selective − fixed, with paired 95 % interval")
