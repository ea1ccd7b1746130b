"""Figures of a study: one function each, drawn by matplotlib for the page (SVG that follows its theme) and for a paper.

A figure reads the same frames as the tables. Hollow marks and dashed lines rest on too few prompts to be relied on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unmask.axes import STUDY_AXES
from unmask.lab.analysis import Findings
from unmask.lab.analysis.load import MEAN
from unmask.lab.analysis.steps import ARMS_ALONG_RUN
from unmask.report import files
from unmask.report.drawing import (
    AXIS_COLOURS,
    FAINT,
    GRID,
    INK,
    PAPER,
    Draw,
    Size,
    fit_layout,
    plain_axes,
    save_figure,
    themed_picture,
)
from unmask.report.study_tables import (
    GAIN,
    SETTING,
    STAGE_NAMES,
    arm_settings,
    chosen_rows,
    diagnosed_settings,
    opportunity_settings,
    select_places,
    split_extension,
    spread,
)
from unmask.stats import COVERAGES, FEWEST_PROMPTS
from unmask.stats.measures import CURVE_COVERAGES

WIDTH = 7.2
"""Inches of a figure."""
COLUMNS = 4
"""Panels side by side."""
METHODS_COLOUR = "#9a7500"
MODEL_COLOURS = ("#3d78b0", "#c9404f", "#2b8a3e", "#a8741a", "#a04a86", "#2a8795")
"""Of models in their order; light and dark pages show them alike."""
MARKERS = dict(zip(STUDY_AXES, "osD^v", strict=False))
"""One for each axis: colour alone does not reach everybody."""
FEW = f"fewer than {FEWEST_PROMPTS} prompts with a gain"
HOLLOW = f"Lines: 95 % intervals over prompts. Hollow or dashed: {FEW}, not to be relied on."


@dataclass(frozen=True)
class StudyFigure:
    """A figure with what stands above and below it."""

    name: str
    """Of its file, and of its place on the page."""
    title: str
    caption: str
    table: str
    """The table that has its numbers, by name."""
    size: Size
    draw: Draw

    def to_html(self) -> str:
        """Return the figure as an image that follows the reader's light or dark setting."""
        return themed_picture(self.draw, self.size, self.title)

    def save(self, path: Path) -> Path:
        """Write the figure as the kind that the path's suffix says: pdf, svg or png."""
        return files.write(path, save_figure(self.draw, self.size, path.suffix.removeprefix(".")))


def study_figures(findings: Findings) -> dict[str, list[StudyFigure]]:
    """Return the figures of a study by section: opportunity, concentration, diagnostics, revision, arms, readings."""
    figures: dict[str, list[StudyFigure]] = {"opportunity": [], "concentration": []}
    settings = opportunity_settings(findings)
    native, _ = split_extension(findings, settings[(settings["task"] != MEAN) & settings["axis"].isin(AXIS_COLOURS)])
    # The strongest of one axis is that axis, and one pair of model and task is no comparison.
    if settings["axis"].nunique() > 1 and len(native.groupby(["model", "task"])) > 1:
        figures["opportunity"].append(strongest(native))
    for at, (model, own) in enumerate(settings.groupby("model", sort=False)):
        # The mean over one task would be the same again.
        own = own if own["tasks"].max() > 1 else own[own["task"] != MEAN]
        figures["opportunity"] += [opportunity(own, model, at), stages(own, model, at)]
        if own["concentration_10"].notna().any():
            figures["concentration"].append(concentration(own, model, at))
    diagnosed, rows = diagnosed_settings(findings), findings.select("diagnostics", proposal="raw")
    diagnosed = diagnosed[(diagnosed["proposal"] == "raw") & (diagnosed["task"] != MEAN)]
    places = {
        lift_by_coverage: select_places(rows, float),
        calibration: rows[rows["measure"].str.startswith("bin_")],
        along_the_run: rows[rows["measure"] == "along"],
    }
    tables = {build: spread(own, [*SETTING, "at"]) for build, own in places.items()}
    for key, apart in zip(("diagnostics", "revision"), split_extension(findings, diagnosed), strict=True):
        figures[key] = []
        for at, (model, own) in enumerate(apart.groupby("model", sort=False)):
            suffix = f"{'-revision' * (key == 'revision')}-{at}"
            figures[key] += [build(own, table, model, suffix) for build, table in tables.items()]
    decoded = chosen_rows(split_extension(findings, arm_settings(findings))[0])
    groups = enumerate(decoded.groupby("model", sort=False))
    figures["arms"] = [gain(own, model, at) for at, (model, own) in groups]
    readings = spread(findings.select("readings"), ["model", "at"])
    figures["readings"] = [readings_figure(readings)] if len(readings) else []
    return figures


# Dots with intervals


def draw_intervals(ax: Axes, rows: pd.DataFrame, x: str) -> None:
    """Draw a dot with its interval for each row, under common names.

    Columns: group, value, low, high, colour, marker, hollow, and label, which the legend shows.
    """
    y, ticks, labels = 0.0, {}, set()
    for group, own in rows.groupby("group", sort=False):
        ticks[group] = y + (len(own) - 1) / 2
        for row in own.itertuples():
            if isfinite(row.low):
                ax.plot([row.low, row.high], [y, y], color=row.colour, lw=1.4, solid_capstyle="butt")
            face = PAPER if row.hollow else row.colour
            label = None if row.label in labels else row.label
            ax.plot([row.value], [y], row.marker, mfc=face, mec=row.colour, ms=5, mew=1.2, label=label, ls="")
            labels.add(row.label)
            y += 1
        y += 0.7
    ax.axvline(0, color=FAINT, lw=0.8, zorder=0)
    ax.set_yticks(list(ticks.values()), list(ticks))
    ax.set_ylim(y - 0.2, -0.8)
    ax.set_xlabel(x)
    plain_axes(ax)
    ax.yaxis.grid(False)
    if len(labels) > 1:
        ax.figure.legend(loc="outside upper left", ncols=5, frameon=False, handletextpad=0.2, columnspacing=1.2)


def _interval_height(rows: pd.DataFrame) -> float:
    return 0.9 + 0.17 * (len(rows) + 0.7 * rows["group"].nunique())


def _intervals(name: str, title: str, caption: str, table: str, rows: pd.DataFrame, x: str) -> StudyFigure:
    size = (WIDTH, _interval_height(rows))
    return StudyFigure(
        name, title, caption, table, size, lambda fig: draw_intervals(fit_layout(fig).subplots(), rows, x)
    )


def axis_colour(axis: str) -> str:
    """Return the colour of an axis; whole methods have one of their own, and rows without an axis have ink."""
    return AXIS_COLOURS.get(axis, METHODS_COLOUR if axis in STUDY_AXES else INK)


def interval_rows(
    frame: pd.DataFrame, number: str, group: Iterable[str], hollow: Iterable[bool], label: Iterable[str]
) -> pd.DataFrame:
    """Return rows for `draw_intervals` in the colours and shapes of their axes."""
    return pd.DataFrame(
        {
            "group": list(group),
            **{
                name: frame[f"{number}{end}"].to_numpy()
                for name, end in (("value", ""), ("low", "_low"), ("high", "_high"))
            },
            "colour": [axis_colour(axis) for axis in frame["axis"]],
            "marker": [MARKERS.get(axis, "h") for axis in frame["axis"]],
            "hollow": list(hollow),
            "label": list(label),
        }
    )


def opportunity(frame: pd.DataFrame, model: str, at: int) -> StudyFigure:
    """Return the figure of the opportunity Δ_adapt of every task and axis of one model."""
    frame = pd.concat([frame[frame["task"] != MEAN], frame[frame["task"] == MEAN]])
    rows = interval_rows(frame, "delta", frame["task"], frame["unreliable"] != "", frame["axis"])
    caption = f"Gain of each state's best action over the fixed one. {HOLLOW}"
    return _intervals(
        f"e1-gap-{at}",
        f"Opportunity by task and axis: {model}",
        caption,
        "opportunity",
        rows,
        "gain in utility (Δ_adapt)",
    )


def strongest(frame: pd.DataFrame) -> StudyFigure:
    """Return the largest opportunity of each model and task among the axes of the model's own decoder."""
    known = frame[frame["delta"].notna()]
    best = known.loc[known.groupby(["task", "model"], sort=False)["delta"].idxmax()]
    best = pd.concat([best[best["task"] == task] for task in dict.fromkeys(frame["task"])])
    models = list(dict.fromkeys(frame["model"]))
    several = len(models) > 1
    labels = best["model"] + ": " + best["axis"] if several else best["axis"]
    rows = interval_rows(best, "delta", best["task"], best["unreliable"] != "", labels)
    if several:
        rows["colour"] = [MODEL_COLOURS[models.index(model) % len(MODEL_COLOURS)] for model in best["model"]]
    caption = (
        "Of each model and task the axis with the largest Δ_adapt: the largest of several looks better than it is. "
        f"{HOLLOW}"
    )
    return _intervals(
        "e1-all", "Opportunity of the strongest axis", caption, "opportunity", rows, "gain in utility (Δ_adapt)"
    )


def gain(frame: pd.DataFrame, model: str, at: int) -> StudyFigure:
    """Return the figure of selective less fixed on whole answers: each task on its chosen axis, then their mean."""
    frame = frame if (frame["task"] != MEAN).sum() > 1 else frame[frame["task"] != MEAN]
    few = frame[f"{GAIN}_differ"] < FEWEST_PROMPTS
    labels = frame["diagnostic"].where(frame["task"] != MEAN, MEAN)
    rows = interval_rows(frame, f"difference_{GAIN}", frame["task"], few, labels)
    caption = (
        "Selective less fixed, whole answers on the same evaluation prompts, on the axis that validation chose for "
        f"each task. Lines: paired 95 % intervals over prompts. Hollow: the two differ on fewer than {FEWEST_PROMPTS} "
        "prompts."
    )
    return _intervals(
        f"e4-gain-{at}",
        f"Selective less fixed, end to end: {model}",
        caption,
        "e4-end-to-end",
        rows,
        "selective − fixed",
    )


def readings_figure(frame: pd.DataFrame) -> StudyFigure:
    """Return the figure of selective less fixed under both readings of the paper, with one choice changed at a time."""
    few = frame[f"won_{GAIN}"] + frame[f"lost_{GAIN}"] < FEWEST_PROMPTS
    rows = interval_rows(frame.assign(axis=""), f"difference_{GAIN}", frame["at"], few, frame["model"])
    models = list(dict.fromkeys(frame["model"]))
    rows["colour"] = [MODEL_COLOURS[models.index(model) % len(MODEL_COLOURS)] for model in frame["model"]]
    caption = (
        "Selective less fixed, the mean over tasks, under our reading of the paper and under its letter, and with one "
        f"choice at a time changed in each. Lines: paired 95 % intervals. Hollow: they differ on fewer than "
        f"{FEWEST_PROMPTS} prompts."
    )
    return _intervals("e4-readings-figure", "Readings side by side", caption, "e4-readings", rows, "selective − fixed")


# Small panels side by side


def _panels(
    name: str,
    title: str,
    caption: str,
    table: str,
    panels: Sequence[tuple[str, Any]],
    draw: Callable[[Axes, Any], None],
    x: str,
    y: str,
) -> StudyFigure:
    """Return a figure with a panel for each entry, all on one scale."""
    columns = min(COLUMNS, len(panels))
    rows = ceil(len(panels) / columns)
    height = 1.0 + 1.5 * rows

    def draw_all(fig: Figure) -> None:
        # Panels are alike, so that fixed margins do: to lay them out by their texts takes as long as to draw them.
        margins = {"left": 0.6 / WIDTH, "right": 1 - 0.12 / WIDTH, "bottom": 0.48 / height, "top": 1 - 0.52 / height}
        grid = {**margins, "wspace": 0.08, "hspace": 0.3}
        axes = fig.subplots(rows, columns, squeeze=False, sharex=True, sharey=True, gridspec_kw=grid).ravel()
        for ax, (heading, content) in zip(axes, panels, strict=False):
            draw(ax, content)
            # With a place of its own: to find one, matplotlib would measure every label twice.
            ax.set_title(heading, fontsize="x-small", loc="left", y=1.0, pad=4)
            plain_axes(ax)
            ax.tick_params(labelsize="x-small")
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        # The last panel of every column has the scale, also above an empty place.
        for ax in axes[max(len(panels) - columns, 0) : len(panels)]:
            ax.tick_params(labelbottom=True)
        fig.supxlabel(x, fontsize="small", y=0.05 / height)
        fig.supylabel(y, fontsize="small", x=0.02 / WIDTH)
        handles, labels = axes[0].get_legend_handles_labels()
        if len(labels) > 1:
            fig.legend(handles, labels, loc="upper left", ncols=6, frameon=False, columnspacing=1.2)

    return StudyFigure(name, title, caption, table, (WIDTH, height), draw_all)


def stages(frame: pd.DataFrame, model: str, at: int) -> StudyFigure:
    """Return the figure of Δ_adapt along the run: the mean over tasks first, then each task."""
    tasks = [
        *(task for task in (MEAN,) if (frame["task"] == task).any()),
        *dict.fromkeys(frame["task"][frame["task"] != MEAN]),
    ]
    ks = [k for k in range(len(STAGE_NAMES)) if f"delta_{k}" in frame]

    def draw(ax: Axes, own: pd.DataFrame) -> None:
        for shift, row in zip(
            np.linspace(-0.2, 0.2, len(own)) if len(own) > 1 else [0.0], own.to_dict("records"), strict=True
        ):
            colour = axis_colour(row["axis"])
            place, value, low, high = (
                np.array([x[k] for k in range(len(ks))])
                for x in zip(
                    *((k + shift, row[f"delta_{k}"], row[f"delta_{k}_low"], row[f"delta_{k}_high"]) for k in ks),
                    strict=True,
                )
            )
            ax.vlines(place, low, high, color=colour, lw=1)
            face = PAPER if row["unreliable"] else colour
            ax.plot(
                place,
                value,
                MARKERS.get(row["axis"], "h") + "-",
                color=colour,
                mfc=face,
                ms=3.5,
                lw=0.8,
                label=row["axis"],
            )
        ax.set_xticks(ks, [STAGE_NAMES[k].removeprefix("masked ").removesuffix(" %") for k in ks])
        ax.axhline(0, color=FAINT, lw=0.8, zorder=0)

    caption = f"Δ_adapt by how much of the answer is still masked, from the start of decoding on the left. {HOLLOW}"
    panels = [(task, frame[frame["task"] == task]) for task in tasks]
    return _panels(
        f"e1-stages-{at}",
        f"Opportunity by stage: {model}",
        caption,
        "stages",
        panels,
        draw,
        "masked share of the answer, %",
        "Δ_adapt",
    )


def concentration(frame: pd.DataFrame, model: str, at: int) -> StudyFigure:
    """Return the figure of C*(c), the share of the gain in the best states, with a panel for each axis."""
    known = frame[frame[[f"concentration_{100 * c:.0f}" for c in COVERAGES]].notna().all(axis=1)]
    axes = [axis for axis in STUDY_AXES if (known["axis"] == axis).any()]

    def draw(ax: Axes, own: pd.DataFrame) -> None:
        ax.plot([0, 1], [0, 1], ":", color=FAINT, lw=1)
        for row in own.to_dict("records"):
            held = [0.0, *(row[f"concentration_{100 * c:.0f}"] for c in COVERAGES)]
            width = 2.2 if row["task"] == MEAN else 0.9
            ax.plot(
                [0.0, *COVERAGES], held, "--" if row["unreliable"] else "-", color=axis_colour(row["axis"]), lw=width
            )
        _percent(ax.xaxis)
        _percent(ax.yaxis)

    caption = (
        "C*(c), the Lorenz curve of opportunity: the share of all of it that the best c per cent of states hold. Thin: "
        f"a task; thick: mean over tasks; dotted: opportunity spread evenly over states. Dashed: {FEW}."
    )
    panels = [(axis, known[known["axis"] == axis]) for axis in axes]
    return _panels(
        f"e1-concentration-{at}", f"Concentration of opportunity: {model}", caption, "concentration", panels, draw,
        "share of states, best first", "share of the opportunity",
    )  # fmt: skip


def _percent(axis: Any) -> None:
    axis.set_major_formatter(lambda share, _: f"{share:.0%}")


def _setting_panels(frame: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{row['task']}: {row['diagnostic']}{' †' * bool(row['unreliable'])}", row) for row in frame.to_dict("records")
    ]


def _select_setting(rows: pd.DataFrame, row: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of one setting: its coverages, bins or places along the run."""
    chosen = rows["task"] == row["task"]
    for name in ("model", "diagnostic"):
        chosen &= rows[name] == row[name]
    return rows[chosen]


def lift_by_coverage(frame: pd.DataFrame, rows: pd.DataFrame, model: str, suffix: str) -> StudyFigure:
    """Return the figure of lift by coverage for the detector, random states and an oracle gate, with bands."""

    def draw(ax: Axes, row: dict[str, Any]) -> None:
        wide = _select_setting(rows, row).set_index("at")
        cover = [0.0, *CURVE_COVERAGES]
        at_all = wide.loc[list(CURVE_COVERAGES)]
        known = wide.loc[list(COVERAGES)]
        colour = axis_colour(row["axis"])
        for name, hue in (("random_lift", FAINT), ("oracle_lift", INK)):
            ax.fill_between(
                [0.0, *COVERAGES],
                [0.0, *known[f"{name}_low"]],
                [0.0, *known[f"{name}_high"]],
                color=hue,
                alpha=0.12,
                lw=0,
            )
        ax.plot(cover, [c * row["lift_always"] for c in cover], ":", color=FAINT, lw=1, label="random states")
        ax.plot(cover, [0.0, *at_all["oracle_lift"]], "-", color=INK, lw=1, label="oracle gate")
        ax.fill_between(
            cover, [0.0, *at_all["ranked_lift_low"]], [0.0, *at_all["ranked_lift_high"]], color=colour, alpha=0.18, lw=0
        )
        ax.plot(
            cover,
            [0.0, *at_all["ranked_lift"]],
            "--" if row["unreliable"] else "-",
            color=colour,
            lw=1.8,
            label="detector",
        )
        _percent(ax.xaxis)

    caption = (
        "Lift over the fixed action when only the best-ranked share of states takes the diagnostic's action: thick, "
        f"the detector; dotted, random states; thin, an oracle gate with the same actions. Bands: 95 % intervals. "
        f"Dashed and †: {FEW}."
    )
    return _panels(
        f"e3-lift{suffix}", f"Lift by coverage: {model}", caption, "e3-coverage", _setting_panels(frame), draw,
        "share of states, best-ranked first", "lift",
    )  # fmt: skip


def calibration(frame: pd.DataFrame, rows: pd.DataFrame, model: str, suffix: str) -> StudyFigure:
    """Return the figure of mean opportunity by bin of the signal: predicted from validation, and held out."""

    def draw(ax: Axes, row: dict[str, Any]) -> None:
        bins = _select_setting(rows, row)
        colour, marker = axis_colour(row["axis"]), MARKERS.get(row["axis"], "h")
        place = bins["at"].astype(float) + 1
        ax.plot(place - 0.1, bins["bin_predicted"], marker, color=colour, ms=3.5, ls="", label="predicted")
        ax.plot(place + 0.1, bins["bin_held_out"], marker, color=colour, mfc=PAPER, ms=3.5, ls="", label="held out")
        if isfinite(row["tau"]):
            ax.axhline(row["tau"], color=INK, ls="--", lw=0.8)
        ax.axhline(0, color=GRID, lw=0.8, zorder=0)

    caption = (
        "Mean opportunity of the states in each bin of the signal: filled on validation prompts, which is what the "
        "detector predicts, hollow on evaluation prompts. The gate is open in bins at or above the dashed line, τ; "
        "without a line it is open always or never."
    )
    return _panels(
        f"e3-calibration{suffix}", f"Calibration: {model}", caption, "e3-bins", _setting_panels(frame), draw,
        "bin of the signal, smallest first", "opportunity",
    )  # fmt: skip


def along_the_run(frame: pd.DataFrame, rows: pd.DataFrame, model: str, suffix: str) -> StudyFigure:
    """Return the figure of mean utility at a prompt's states, in the order of the run."""
    looks = {
        "fixed": (":", FAINT, 1.0),
        "always": ("-", INK, 0.9),
        "selective": ("-", "", 2.0),
        "oracle": ("--", "", 1.0),
    }

    def draw(ax: Axes, row: dict[str, Any]) -> None:
        own = _select_setting(rows, row)
        for arm in ARMS_ALONG_RUN:
            line, colour, width = looks[arm]
            ax.plot(
                own["at"].astype(float) + 1,
                own[f"along_{arm}"],
                line,
                color=colour or axis_colour(row["axis"]),
                lw=width,
                label=arm,
            )

    caption = "Mean utility at each of a prompt's states, one step at a time, of four ways to choose the action."
    return _panels(
        f"e3-along{suffix}", f"Utility along the run: {model}", caption, "e3-utility", _setting_panels(frame), draw,
        "state, first to last", "mean utility",
    )  # fmt: skip
