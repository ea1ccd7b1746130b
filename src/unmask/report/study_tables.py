"""Every table of a study as a frame; study_tables.toml has its title, its note and its columns.

`spread` turns the findings' frame into one row per setting with a column per measure, which the columns of a table
name. Names, columns and digits of CSV files are stable.
"""

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files as resources
from math import inf
from typing import Any

import numpy as np
import pandas as pd

from unmask.lab.analysis import Findings
from unmask.lab.analysis.load import MEAN, MISSING
from unmask.lab.analysis.runs import CHOSEN_AXIS
from unmask.report.headlines import NEVER, conclusion
from unmask.report.paper import compare_with_paper
from unmask.report.table import NONE, Table, format_number
from unmask.stats import COVERAGES, FEWEST_PROMPTS, STAGES

UNRELIABLE, PARTIAL = "†", "‡"
LEGEND = {
    UNRELIABLE: f"fewer than {FEWEST_PROMPTS} prompts have a state with a gain: do not rely on the interval, which is "
    "then too short as a rule. Where the number is 0, no state gained; rare gains may have been missed.",
    PARTIAL: "some prompts are not finished, of those that choose the fixed action or of those it is measured on.",
    NONE: "does not exist or is not known; never 0.",
}
STAGE_NAMES = tuple(f"masked {25 * (STAGES - 1 - k)}–{25 * (STAGES - k)} %" for k in range(STAGES))
"""By the masked share of the answer, beginning with the start."""
SETTING = ("model", "task", "axis", "diagnostic")
TEXTS = ("unreliable", "partial", "reason", "theta_reason", "tau_reason", "never", "bins_never", "changed")
"""Measures that are texts, also where all of them are empty."""
GAIN, CONTROL = "selective - fixed", "selective - random gate"
_NOTES = "<marks=note | unreliable | partial"
_MISSING_TABLES = {
    "opportunity": "missing",
    "methods": "methods-missing",
    "diagnostics": "e23-missing",
    "learned": "e3-learned-missing",
    "arms": "e4-missing",
}


@cache
def _read_entries() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources("unmask.report").joinpath("study_tables.toml").read_text(encoding="utf-8"))


def make_table(name: str, frame: pd.DataFrame, suffix: str = "", **macros: str) -> Table:
    """Make a table from its entry in study_tables.toml and its rows; the suffix goes into the names of its files."""
    entry = dict(_read_entries()[name])
    columns = entry.pop("columns").format(notes=_NOTES, **macros)
    return Table(name + suffix, entry.pop("title", ""), entry.pop("note", ""), columns, frame, **entry)


# From the findings' frame to one row per setting


def spread(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return a row for each setting, in the order of their first rows, and a column for each measure.

    A column is called after its measure, arm and place, such as `lift_selective`, `captured_10` (at 10 %) or `delta_0`
    (a stage); beside it stand `_low`, `_high` and `_undefined`. Measures without any number are texts.
    """
    code_N, settings = pd.factorize(pd.MultiIndex.from_frame(rows[list(by)]))
    frame = pd.DataFrame(list(settings), columns=list(by))
    at_N = (
        [""] * len(rows) if "at" in by else [f"{100 * x:.0f}" if isinstance(x, float) else str(x) for x in rows["at"]]
    )
    parts = zip(rows["measure"], rows["arm"], at_N, strict=True)
    name_N, names = pd.factorize(np.array(["_".join(filter(None, part)) for part in parts], dtype=object))
    shape = (len(frame), len(names))
    numbers = {end: np.full(shape, np.nan) for end in ("value", "low", "high", "undefined")}
    for end, grid in numbers.items():
        grid[code_N, name_N] = rows[end]
    # None where a setting has no such row; an empty text is an answer.
    texts = np.full(shape, None, dtype=object)
    texts[code_N, name_N] = rows["note"]
    columns: dict[str, Any] = {}
    for at, name in enumerate(names):
        is_text = np.isnan(numbers["value"][:, at]).all() and any(texts[:, at])
        columns[name] = texts[:, at] if is_text else numbers["value"][:, at]
        columns |= {f"{name}_{end}": grid[:, at] for end, grid in numbers.items() if end != "value"}
    # Where no setting has a reason, the column of reasons has neither numbers nor texts.
    empty = {name: "" for name in TEXTS if name in columns and columns[name].dtype == float}
    empty |= {name: "" for name in ("unreliable", "partial") if name not in columns}
    return _add_marks(pd.concat([frame, pd.DataFrame(columns, index=frame.index)], axis=1).assign(**empty))


def _add_marks(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the signs of the legend, from the reasons why a row may not be relied on."""
    reasons = zip(frame["unreliable"], frame["partial"], strict=True)
    return frame.assign(marks=[UNRELIABLE * bool(few) + PARTIAL * bool(partial) for few, partial in reasons])


def _copy_marks(frame: pd.DataFrame, settings: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Copy the marks of each setting to its rows of coverages or stages."""
    reasons = settings[[*by, *columns]]
    return _add_marks(frame.drop(columns=list(columns)).merge(reasons, on=list(by), how="left"))


def select_places(rows: pd.DataFrame, kind: type) -> pd.DataFrame:
    """Return the rows whose place has this type: a coverage is a float; a stage, bin or rank is an int."""
    return rows[np.array([type(at) is kind for at in rows["at"]], dtype=bool)]


def split_extension(findings: Findings, frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of native decoders, and those of an axis that extends a decoder which does not have it."""
    pairs = zip(frame["model"], frame["axis"], strict=True)
    extends = np.array([findings.study.extends(model, axis) for model, axis in pairs], dtype=bool)
    return frame[~extends], frame[extends]


def setting_columns(frame: pd.DataFrame, *keys: str) -> str:
    """Return the columns that name a setting, with the diagnostic where its name differs from its axis."""
    names = " | ".join(f"{key}={key}" for key in (*keys, "axis"))
    same = all(name in ("", axis) for name, axis in zip(frame["diagnostic"], frame["axis"], strict=True))
    # `diagnostic` is the name of an arm.
    return names if same else f"{names} | by<diagnostic=diagnosed by"


def conclude_rows(frame: pd.DataFrame, number: str, prompts: str, shut: str = "") -> list[str]:
    """Return the conclusion that each row's interval allows; `prompts` is the column with the number of prompts."""
    closed = frame[shut].fillna(0) > 0 if shut else [False] * len(frame)
    ends = zip(frame[f"{number}_low"], frame[f"{number}_high"], frame[prompts], closed, strict=True)
    return [conclusion(low, high, count, never) for low, high, count, never in ends]


def add_conclusions(frame: pd.DataFrame, *pairs: str) -> pd.DataFrame:
    """Add `PAIR_differ`, the prompts won or lost, and `PAIR_verdict`, the conclusion from the paired difference.

    A shut gate decodes as the fixed action, and so does its control: there is nothing to conclude_rows.
    """
    if not len(frame):
        return frame
    frame = frame.assign(**{f"{pair}_differ": frame[f"won_{pair}"] + frame[f"lost_{pair}"] for pair in pairs})
    for pair in pairs:
        shut = "shut" if pair in (GAIN, CONTROL) else ""
        frame[f"{pair}_verdict"] = conclude_rows(frame, f"difference_{pair}", f"{pair}_differ", shut)
    return frame


def missing_table(findings: Findings, experiment: str) -> Table:
    """Return the table of settings for which an experiment has no numbers, each with its reason."""
    rows = findings.select(experiment, measure=MISSING)
    return make_table(_MISSING_TABLES[experiment], rows, setting=setting_columns(rows, "model", "task"))


def _rows_with_numbers(findings: Findings, experiment: str) -> pd.DataFrame:
    rows = findings.select(experiment)
    return rows[rows["measure"] != MISSING]


# E1


def opportunity_settings(findings: Findings) -> pd.DataFrame:
    """Return a frame of opportunity (E1): a row for each model, task and axis, and for each mean over tasks."""
    rows = _rows_with_numbers(findings, "opportunity")
    return spread(rows[rows["measure"] != "pairwise"], ["model", "task", "axis"])


def opportunity_tables(findings: Findings) -> dict[str, Table]:
    """Return the tables of E1 (opportunity) by name."""
    by = ["model", "task", "axis"]
    rows, whole = _rows_with_numbers(findings, "opportunity"), opportunity_settings(findings)
    cells, means = whole[whole["task"] != MEAN], whole[whole["task"] == MEAN]
    stages = spread(select_places(rows[rows["task"] != MEAN], int), [*by, "at"])
    stages = _copy_marks(stages, cells, by, ["partial"]).assign(stage_name=[STAGE_NAMES[k] for k in stages["at"]])
    pairs = rows[rows["measure"] == "pairwise"]
    ends = {"value": "pairwise", **{end: f"pairwise_{end}" for end in ("low", "high", "undefined")}}
    names = pairs["at"].str.partition(" ⇄ ")
    pairs = pairs.rename(columns=ends).assign(a=names[0], b=names[2]) if len(pairs) else pairs
    frames = {
        "opportunity": cells,
        "means": means,
        "stages": stages,
        "audit": cells,
        "concentration": cells,
        "reversal": cells,
        "pairs": pairs,
    }
    return {name: make_table(name, frame) for name, frame in frames.items()}


def method_tables(findings: Findings) -> list[Table]:
    """Return the tables of the policy axis, on which whole methods are compared."""
    cells = spread(_rows_with_numbers(findings, "methods"), ["model", "task"])
    costs = make_table("methods-cost", findings.study.method_costs)
    return [make_table("methods", cells), costs, missing_table(findings, "methods")]


# E2 and E3


def diagnosed_settings(findings: Findings) -> pd.DataFrame:
    """Return a row of E2 and E3 for every setting with a diagnostic and kind of proposal, and for means over tasks."""
    rows = _rows_with_numbers(findings, "diagnostics")
    frame = spread(rows[~rows["measure"].str.startswith(("bin_", "along"))], [*SETTING, "proposal"])
    if not len(frame):
        return frame
    for name in ("theta", "tau"):
        columns = (frame["task"], frame[name], frame[f"{name}_never"] > 0, frame[f"{name}_reason"])
        frame[f"{name}_words"] = [
            "" if task == MEAN else _describe_thresholds(x, reason if never else "")
            for task, x, never, reason in zip(*columns, strict=True)
        ]
    return frame.assign(verdict=conclude_rows(frame, "lift_selective", "positive_prompts", "tau_never"))


def _describe_thresholds(value: float, never: str) -> str:
    if never or np.isnan(value):
        return f"never: {never}"
    return "wherever there is a signal" if value == -inf else f"{value:.4g}"


def diagnostic_tables(findings: Findings, extension: bool) -> list[Table]:
    """Return the tables of E2 and E3, for native decoders or for the revision extension."""
    suffix, by = "-revision" if extension else "", [*SETTING, "proposal"]
    whole = split_extension(findings, diagnosed_settings(findings))[extension]
    cells, means = whole[whole["task"] != MEAN], whole[whole["task"] == MEAN]
    raw = cells[cells["proposal"] == "raw"]
    rows = split_extension(findings, _rows_with_numbers(findings, "diagnostics"))[extension]
    rows = rows[rows["task"] != MEAN]
    covered = select_places(rows, float)
    covered = spread(covered[covered["at"].isin(COVERAGES)], [*by, "at"])
    frames = {
        "e2-selection": cells,
        "e2-diagnostics": raw,
        "e3-lift": cells,
        "e3-utility": cells,
        "e3-detection": cells,
        "e3-means": means,
        "e3-coverage": _copy_marks(covered, cells, by, ["unreliable", "partial"]),
        "e3-bins": spread(rows[rows["measure"].str.startswith("bin_")], [*by, "at"]),
        "e3-concentration": raw,
    }
    names = {"setting": setting_columns(cells, "model", "task")}
    means_names = {"setting": setting_columns(means, "model")}
    return [make_table(n, x, suffix, **(means_names if n == "e3-means" else names)) for n, x in frames.items()]


# The learned detector


def learned_settings(findings: Findings) -> pd.DataFrame:
    """Return a row for every setting that has the binned and the learned detector, and for their means over tasks."""
    rows = _put_detector_first(_rows_with_numbers(findings, "learned"))
    frame = spread(rows[~rows["measure"].str.startswith("weight")], SETTING)
    if not len(frame):
        return frame
    frame = pd.concat([own for _, own in frame.groupby("model", sort=False)])
    return frame.assign(verdict=conclude_rows(frame, "difference_ranked_lift_10", "positive_prompts"))


def _put_detector_first(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the detector's name before each measure, as the columns of the tables are called."""
    return rows.assign(measure=rows["arm"].where(rows["arm"] == "", rows["arm"] + "_") + rows["measure"], arm="")


def learned_tables(findings: Findings, extension: bool) -> list[Table]:
    """Return the tables of the binned and the learned detector, for native decoders or for the revision extension."""
    suffix = "-revision" if extension else ""
    whole = split_extension(findings, learned_settings(findings))[extension]
    cells = whole[whole["task"] != MEAN]
    rows = split_extension(findings, _rows_with_numbers(findings, "learned"))[extension]
    rows = rows[rows["task"] != MEAN]
    covered = spread(select_places(_put_detector_first(rows), float), [*SETTING, "at"])
    weights = spread(rows[rows["measure"].str.startswith("weight")], [*SETTING, "at"])
    frames = {
        "e3-learned": whole,
        "e3-learned-coverage": _copy_marks(covered, cells, SETTING, ["unreliable", "partial"]),
        "e3-learned-weights": weights,
    }
    return [
        make_table(
            name, frame, suffix, setting=setting_columns(whole if name == "e3-learned" else cells, "model", "task")
        )
        for name, frame in frames.items()
    ]


# E4


def arm_settings(findings: Findings) -> pd.DataFrame:
    """Return a row of E4 for every diagnostic that was decoded end to end, and for means over tasks."""
    frame = spread(_rows_with_numbers(findings, "arms"), SETTING)
    if not len(frame):
        return frame
    # Cells are never partial, and means have neither an action nor a gate of their own.
    texts = ["partial", "never", "fixed", "end_to_end"]
    frame[texts] = frame[texts].fillna("")
    frame = add_conclusions(frame, GAIN, "selective - end-to-end fixed", CONTROL)
    mean, shut = frame["task"] == MEAN, frame["shut"] > 0
    counts = ["better", "worse", "same", "significant_up", "significant_down"]
    frame["verdict_words"] = frame[f"{GAIN}_verdict"]
    for at in frame.index[mean]:
        better, worse, same, up, down = (int(frame.loc[at, name]) for name in counts)
        frame.loc[at, "verdict_words"] += (
            f"; {better} better, {worse} worse, {same} same; intervals exclude 0 on {up} above, {down} below"
        )
    frame["covered"] = _describe_coverages(frame["coverage_selective"], shut & ~mean)
    frame["random_covered"] = np.where(mean, "", _describe_coverages(frame["coverage_random gate"], shut))
    return frame


def _describe_coverages(coverage: Iterable[float], shut: Iterable[bool]) -> list[str]:
    share = format_number("{:.1%}")
    pairs = zip(coverage, shut, strict=True)
    return [(NEVER if never else "no step had a signal") if np.isnan(x) else share(x) for x, never in pairs]


def chosen_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each model's tasks on the axis that validation chose, and then their mean."""
    chosen = frame[(frame["chosen"] > 0) | (frame["axis"] == CHOSEN_AXIS)] if len(frame) else frame
    return pd.concat([own for _, own in chosen.groupby("model", sort=False)]) if len(chosen) else chosen


def arm_tables(findings: Findings, extension: bool) -> list[Table]:
    """Return the tables of E4, which compare whole answers, for native decoders or for the revision extension."""
    suffix = "-revision" if extension else ""
    whole = split_extension(findings, arm_settings(findings))[extension]
    frames = {} if extension else {"e4-end-to-end": chosen_rows(whole)}
    frames |= {"e4-axes": whole[whole["axis"] != CHOSEN_AXIS], "e4-controls": whole}
    names = setting_columns(whole[whole["task"] != MEAN], "model", "task")
    return [make_table(name, frame, suffix, setting=names) for name, frame in frames.items()]


def choice_tables(findings: Findings) -> list[Table]:
    """Return the tables that compare readings of the paper, ways to choose the axis, and kinds of gates."""
    readings = add_conclusions(
        spread(findings.select("readings"), ["model", "at"]), GAIN, "selective - reference", CONTROL
    )
    if len(readings):
        readings["changed"] = readings["changed"].replace("", "-")
    headlines = add_conclusions(spread(findings.select("headlines"), ["model", "at"]), GAIN)
    gates = add_conclusions(spread(findings.select("gates"), [*SETTING, "at"]), GAIN, CONTROL, "selective - lift")
    tables = {"e4-readings": readings, "e4-headlines": headlines, "e4-gates": gates}
    names = setting_columns(gates, "model", "task")
    return [make_table(name, frame, setting=names) for name, frame in tables.items() if len(frame)]


def joint_table(findings: Findings) -> Table:
    """Return the table of runs in which all axes are adapted together."""
    frame = spread(findings.select("joint"), ["model", "task"])
    frame = add_conclusions(frame, "joint - reference", "joint - joint fixed", "joint - selective")
    share = format_number("{:.1%}")
    covered = []
    for row in frame.to_dict("records"):
        shares = {axis: row[f"coverage_{axis}"] for axis in row["axes"].split(", ")}
        covered.append(", ".join(f"{axis} {'no signal' if np.isnan(x) else share(x)}" for axis, x in shares.items()))
    joined = " | by<diagnostics=diagnosed by" if len(frame) and frame["named"].any() else ""
    return make_table("e4-joint", frame.assign(covered=covered), joined=joined)


def search_table(findings: Findings) -> Table:
    """Return the table of searches beside plain decoding with as many forwards."""
    pairs = ("search - control", "search - base", "search - reference", "control - base")
    return make_table(
        "e4-searches", add_conclusions(spread(findings.select("searches"), ["model", "task", "at"]), *pairs)
    )


# Beside the paper, and what a study has


def paper_table(findings: Findings) -> Table:
    """Return the table of the paper's numbers beside ours, where model and task are the same."""
    return make_table("paper", compare_with_paper(findings))


def inventory_tables(findings: Findings) -> list[Table]:
    """Return the tables of a study's models, cost and extent, and of what is missing from it."""
    study, models = findings.study, []
    for spec in study.config["models"]:
        loaded = study.manifest["models"].get(spec["name"], {})
        options = {**spec.get("options", {}), **loaded.get("options", {})}
        about = {"model": spec["name"], "loaded": spec["model"], "reference": spec["reference"]}
        models.append(
            {**about, "device": loaded.get("device"), **{x: options.get(x) for x in ("family", "fingerprint", "dtype")}}
        )
    mixed = len({code for codes in study.extents["code"] for code in codes.split()}) > 1
    return [
        missing_table(findings, "opportunity"),
        make_table("unjudged", study.unjudged),
        make_table("extent", study.extents, code=" | code=code (more than one: the user accepted it)" if mixed else ""),
        make_table("cost", study.costs),
        make_table("models", pd.DataFrame(models)),
    ]
