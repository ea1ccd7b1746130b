"""The figures of E4: what selective gains over fixed on whole answers, and under which reading of the paper."""

from collections.abc import Iterator

from unmask.lab.analysis.end_to_end import EndToEndFindings
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.lab.analysis.readings import ReadingMean
from unmask.report.figures.chart import INK, MEAN_SHAPE, MODELS, Dot, ReportFigure, Whiskers, colour_of, shape_of
from unmask.report.formats import counted, share
from unmask.report.tables.shared import MEAN
from unmask.report.verdicts import GAIN, averaged, chosen_cells, chosen_means
from unmask.report.words.phrases import model_name
from unmask.stats import FEWEST

CAPTION = (
    "Selective less fixed, whole answers on the same evaluation prompts, on the axis that validation chose for each "
    "task. Lines: paired 95 % intervals over prompts. Hollow: "
    f"the two differ on fewer than {FEWEST} prompts, not to be relied on."
)
READINGS_CAPTION = (
    "Selective less fixed, the mean over tasks, under our reading of the paper and under its letter, and with one "
    "choice at a time changed in each. Lines: paired 95 % intervals over prompts."
)
_X = "selective − fixed"


def gain_figures(opportunity: OpportunityFindings, findings: EndToEndFindings) -> Iterator[ReportFigure]:
    """Of each model: each task on its chosen axis, then their mean."""
    for at, model in enumerate(dict.fromkeys(c.model for c in chosen_cells(findings))):
        title = f"Selective less fixed, end to end: {model_name(opportunity, model)}"
        chart = Whiskers(list(_rows(findings, model)), _X)
        yield ReportFigure(f"e4-gain-{at}", title, (chart,), CAPTION, "e4-end-to-end")


def _rows(findings: EndToEndFindings, model: str) -> Iterator[tuple[str, list[Dot]]]:
    for c in chosen_cells(findings, model):
        about = (
            f"{c.task}: {c.diagnostic}",
            f"n: {counted(c.prompts, 'prompt')}, {c.wins} won, {c.losses} lost, {c.ties} the same",
            *((f"the gate never opens: {c.never}",) if c.never else ()),
        )
        few = c.wins + c.losses < FEWEST
        yield c.task, [Dot(c.diagnostic, c.difference[GAIN], shape_of(c.axis), colour_of(c.axis), few, about)]
    for mean in chosen_means(findings):
        if mean.model == model and len(mean.tasks) > 1:
            few = sum(c.wins + c.losses for c in averaged(findings, mean)) < FEWEST
            about = (MEAN, f"n: {counted(len(mean.tasks), 'task')}", *((mean.partial,) if mean.partial else ()))
            yield MEAN, [Dot(MEAN, mean.difference[GAIN], MEAN_SHAPE, INK, few, about)]


def readings_figures(findings: EndToEndFindings) -> Iterator[ReportFigure]:
    """Readings side by side; none where there is one only."""
    if not findings.readings:
        return
    models = list(dict.fromkeys(row.model for row in findings.readings))
    rows: dict[str, list[Dot]] = {}
    for row in findings.readings:
        rows.setdefault(_reading(row), []).append(_reading_dot(row, MODELS[models.index(row.model) % len(MODELS)]))
    chart = Whiskers(list(rows.items()), _X)
    yield ReportFigure("e4-readings-figure", "Readings side by side", (chart,), READINGS_CAPTION, "e4-readings")


def _reading(row: ReadingMean) -> str:
    anchor, changed = row.reading.anchor, row.reading.changed
    return f"{anchor}, but for {changed}" if changed else f"{anchor}, as it is"


def _reading_dot(row: ReadingMean, colour: str) -> Dot:
    value = row.difference[GAIN]
    prompts = f"n: {counted(value.n, 'prompt')}, " if value.n else "n: "
    about = (
        f"{row.model}: {_reading(row)}",
        f"{prompts}{counted(len(row.chosen), 'task')}; {row.open} gates may open, coverage {share(row.coverage)}",
    )
    return Dot(row.model, value, MEAN_SHAPE, colour, False, about)
