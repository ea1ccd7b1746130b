"""The figure of E4 as inline SVG: what selective gains over fixed when it decodes whole answers."""

from unmask.lab.analysis.end_to_end import EndToEndFindings
from unmask.report.figures.svg import WhiskerRow, whiskers
from unmask.report.tables.shared import MEAN, PARTIAL
from unmask.report.verdicts import GAIN, averaged, chosen_cells, chosen_means
from unmask.stats.opportunity import FEWEST

CAPTION = f"""\
Selective less fixed, whole answers on the same evaluation prompts, on the axis that validation chose for each
task. Lines: paired 95 % intervals over prompts. Hollow and dashed: \
the two differ on fewer than {FEWEST} prompts, not to be relied on."""


def end_to_end_figure(findings: EndToEndFindings, model: str, name: str) -> str:
    """Each task on its chosen axis, then their mean; hollow where the two arms differ on few prompts."""
    groups = [
        (c.task, [WhiskerRow(c.axis, c.difference[GAIN], c.wins + c.losses < FEWEST, name=c.diagnostic)])
        for c in chosen_cells(findings, model)
    ]
    for mean in chosen_means(findings):
        if mean.model == model and len(mean.tasks) > 1:
            few = sum(c.wins + c.losses for c in averaged(findings, mean)) < FEWEST
            groups.append((MEAN, [WhiskerRow("mean", mean.difference[GAIN], few, PARTIAL * bool(mean.partial))]))
    title = f"Selective less fixed, end to end, of {model} by task"
    return whiskers(name, groups, title, "selective − fixed, with paired 95 % interval")
