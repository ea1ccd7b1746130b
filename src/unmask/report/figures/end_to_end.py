"""The figure of E4 as inline SVG: what selective gains over fixed when it decodes whole answers."""

from unmask.lab.analysis.end_to_end import CHOSEN, EndToEndFindings
from unmask.report.figures.opportunity import WhiskerRow, whiskers
from unmask.report.tables.end_to_end import GAIN, MEAN, averaged, chosen_cells
from unmask.report.tables.opportunity import PARTIAL
from unmask.stats.opportunity import FEWEST


def end_to_end_figure(found: EndToEndFindings, model: str, name: str) -> str:
    """Each task on its chosen axis, then their mean; hollow where the two arms differ on few prompts."""
    groups = [
        (c.task, [WhiskerRow(c.axis, c.difference[GAIN], c.wins + c.losses < FEWEST)])
        for c in chosen_cells(found, model)
    ]
    for mean in found.means:
        if (mean.model, mean.axis) == (model, CHOSEN) and len(mean.tasks) > 1:
            few = sum(c.wins + c.losses for c in averaged(found, mean)) < FEWEST
            groups.append((MEAN, [WhiskerRow("mean", mean.difference[GAIN], few, PARTIAL * bool(mean.partial))]))
    title = f"Selective less fixed, end to end, of {model} by task"
    return whiskers(name, groups, title, "selective − fixed, with paired 95 % interval")
