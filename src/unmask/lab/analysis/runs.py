"""E4: is a decoder that adapts better than one that does not, on whole answers?

Every question is asked by one operation: paired arms over prompts, each task counting the same (`paired_numbers`). Arms
of one diagnostic, further gates, searches and all axes together differ in which stored arms stand beside each other;
means, ways to choose the axis and readings of the paper differ in which tasks and diagnostics they are over.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from unmask.adapt import DIAGNOSTICS
from unmask.base.errors import SchemaError
from unmask.base.json_files import HashMismatch
from unmask.lab.analysis.load import MEAN, MISSING, Row, StudyFrames, missing_row, result_rows
from unmask.lab.analysis.steps import Diagnostics, describe_partial_tasks, pair_name, threshold_numbers
from unmask.lab.study.validation import (
    AXIS_BY,
    CONTROLS,
    DECODED_ARMS,
    JOINT,
    JOINT_FIXED,
    LIFT,
    SEARCH,
    choose_axis,
    expected_lift,
    random_arm,
    selective_arm,
)
from unmask.stats import TIE, Calibration, bootstrap, mean_of_task_means, task_seeds

Pairs = Sequence[tuple[str, str]]
CHOSEN_AXIS = "chosen"
"""Name in the column `axis` where each task has the axis that validation chose."""
ARMS = (*DECODED_ARMS, *CONTROLS)
GATED_ARMS = ("always", "selective", "random gate")
GAIN = ("selective", "fixed")
"""Arms of the difference that E4 asks about."""
ARM_PAIRS = (
    GAIN,
    ("selective", "reference"),
    ("selective", "always"),
    ("selective", "end-to-end fixed"),
    ("selective", "random gate"),
    ("always", "fixed"),
    ("fixed", "reference"),
)
GATE_PAIRS = (GAIN, ("selective", "random gate"), ("selective", LIFT))
JOINT_ARMS = ("reference", JOINT_FIXED, JOINT, "selective")
JOINT_PAIRS = ((JOINT, "reference"), (JOINT, JOINT_FIXED), (JOINT, "selective"))
SEARCH_PAIRS = (("search", "control"), ("search", "base"), ("search", "reference"), ("control", "base"))
READING_PAIRS = (GAIN, ("selective", "reference"), ("selective", "random gate"))
_NO_PROMPT = "no evaluation prompt has a judged answer of every arm"


# Whole runs as tables of prompts by arms


class ArmTables(NamedTuple):
    """Whole runs of every arm over the same prompts, as tables of prompts by arms."""

    utility: pd.DataFrame
    """Mean utility over repeated runs; NaN where one was not judged."""
    evaluated: pd.DataFrame
    """Number of steps that had a signal; NaN where they were not counted."""
    deviated: pd.DataFrame

    def select(self, roles: Mapping[str, str], needed: Iterable[str] = ()) -> pd.DataFrame:
        """Return the utilities of arms by role, for prompts on which these and the needed arms were all judged."""
        # A prompt that one arm lacks leaves all arms: otherwise a difference would be between prompts.
        judged = self.utility[[*dict.fromkeys((*roles.values(), *needed))]].notna().all(axis=1)
        return pd.DataFrame({role: self.utility.loc[judged, arm] for role, arm in roles.items()})

    def coverage(self, arm: str, prompts: pd.Index) -> float:
        """Compute the share of steps with a signal at which an arm deviated; NaN without any such step."""
        evaluated, deviated = (float(x.loc[prompts, arm].to_numpy().sum()) for x in (self.evaluated, self.deviated))
        if not isfinite(evaluated):
            return 0.0 if deviated == 0 else nan
        return deviated / evaluated if evaluated else nan


def pivot_arms(runs: pd.DataFrame) -> ArmTables:
    """Pivot the runs of one model, task and diagnostic to tables of prompts by arms."""
    prompts = np.array(sorted(runs["prompt"].unique()))
    columns: dict[str, dict[str, Any]] = {"utility": {}, "evaluated": {}, "deviated": {}}
    for arm, own in runs.groupby("arm", sort=False):
        place_W, draws = np.searchsorted(prompts, own["prompt"]), own["draw"].nunique()
        for name, by_arm in columns.items():
            # NaN goes through sums: a prompt has a mean where each of its draws was judged. `bincount` adds in the
            # order of draws; `groupby.sum` compensates its rounding, which would move last digits of stored tables.
            by_arm[str(arm)] = np.bincount(place_W, own[name].to_numpy(dtype=np.float64), len(prompts))
        whole_P = np.bincount(place_W, minlength=len(prompts)) == draws
        columns["utility"][str(arm)] = np.where(whole_P, columns["utility"][str(arm)] / draws, nan)
    return ArmTables(*(pd.DataFrame(by_arm, index=prompts) for by_arm in columns.values()))


class Sampling(NamedTuple):
    """Seed and number of the resamples behind intervals."""

    seed: int
    resamples: int


def paired_numbers(used: Mapping[str, pd.DataFrame], pairs: Pairs, sampling: Sampling) -> dict[Any, Any]:
    """Estimate utilities of arms and differences of pairs, and count prompts won, lost and tied; tasks count the same.

    `used` has a table of prompts by arms for each task, without a missing value.
    """
    keys = [("utility", arm) for arm in next(iter(used.values()))]
    keys += [("difference", pair_name(*pair)) for pair in pairs]
    gains = {pair: [table[pair[0]] - table[pair[1]] for table in used.values()] for pair in pairs}
    sums_T = []
    for at, table in enumerate(used.values()):
        columns = [*(table[arm] for arm in table), *(gains[pair][at] for pair in pairs)]
        sums_T.append(np.stack([np.ones(len(table)), *columns], 1))
    estimates = bootstrap(
        # The first column counts prompts.
        lambda count_DP: dict(zip(keys, mean_of_task_means(sums_T, count_DP).T[1:], strict=True)),
        [len(table) for table in used.values()],
        task_seeds(sampling.seed, used),
        resamples=sampling.resamples,
        width=len(keys),
    )
    numbers: dict[Any, Any] = {key: estimate for key, estimate in estimates.items() if key[0] == "utility"}
    for pair, by_task in gains.items():
        gain_P, name = np.concatenate(by_task), pair_name(*pair)
        counts = {"won": (gain_P > TIE).sum(), "lost": (gain_P < -TIE).sum(), "tied": (np.abs(gain_P) <= TIE).sum()}
        numbers["difference", name] = estimates["difference", name]
        numbers |= {(what, name): int(count) for what, count in counts.items()}
    return {**numbers, "prompts": sum(map(len, used.values()))}


def mean_paired_numbers(
    used: Mapping[str, pd.DataFrame], pairs: Pairs, coverages: Iterable[float], sampling: Sampling
) -> dict[Any, Any]:
    """Compute paired numbers over tasks, the mean coverage, and the tasks where the first pair is better or worse."""
    one, other = pairs[0]
    gains = [float((table[one] - table[other]).mean()) for table in used.values()]
    # A task without any step with a signal has no coverage, and none of 0 either.
    known = [share for share in coverages if isfinite(share)]
    return {
        **paired_numbers(used, pairs, sampling),
        "tasks": len(used),
        "better": sum(gain > TIE for gain in gains),
        "worse": sum(gain < -TIE for gain in gains),
        "same": sum(abs(gain) <= TIE for gain in gains),
        ("coverage", "selective"): float(np.mean(known)) if known else None,
    }


# What was decoded


class DecodedChoice(NamedTuple):
    """Choices of validation for one diagnostic, from which its arms were made."""

    axis: str
    calibration: Calibration
    opportunity: float
    """Cross-fitted opportunity on validation states."""
    end_to_end: str
    gates: Mapping[str, Calibration]
    """Calibrations of further gates that were decoded, by name; the usual one is `LIFT`."""


@dataclass(frozen=True)
class DecodedTask:
    """Whole runs of one model and task, with the choices from which they were made."""

    model: str
    task: str
    choices: Mapping[str, DecodedChoice]
    """Choices by diagnostic."""
    tables: Mapping[str, ArmTables]
    """Runs by diagnostic; runs of all axes together and of searches go by the names of these."""
    info: Mapping[str, Any]

    def choose_diagnostic(
        self, study: StudyFrames, names: Iterable[str], by: str, revision: bool = False, gate: str = LIFT
    ) -> str | None:
        """Choose the diagnostic that promises most on validation; axes that extend the decoder need `revision`."""
        promised = {}
        for name in names:
            choice = self.choices.get(name)
            if choice and gate in choice.gates and (revision or not study.extends(self.model, choice.axis)):
                promised[name] = (expected_lift(choice.gates[gate]), choice.opportunity)
        return choose_axis(promised, by)


def _load_decoded_task(
    study: StudyFrames, key: tuple[str, str], calibrations: Mapping[tuple[str, str, str], Calibration]
) -> DecodedTask:
    """Load the whole runs of a model and task; refuse runs made by other choices than the study's tables give."""
    info, choices = study.units[key], {}
    for name, entry in info["axes"].items():
        try:
            calibration = Calibration.from_json(entry["calibration"])
            gates = {gate: Calibration.from_json(text) for gate, text in entry.get("gates", {}).items()}
        except HashMismatch as error:
            raise SchemaError(f"the calibration of {', '.join((*key, name))}: {error}") from error
        # Arms of another calibration would be compared with numbers of this one, and nothing would show it.
        if not calibration.agrees(calibrations.get((*key, name), calibration)):
            raise SchemaError(
                f"{', '.join((*key, name))} was decoded with another calibration than the study's tables give; "
                f"allowed: the same; remove its folder from {study.decodes_folder!r} and run the study"
            )
        opportunity = nan if entry["opportunity"] is None else float(entry["opportunity"])
        gates = {LIFT: calibration, **gates}
        choices[name] = DecodedChoice(
            entry.get("axis", name), calibration, opportunity, str(entry["end_to_end"]), gates
        )
    runs = study.decodes[(study.decodes["model"] == key[0]) & (study.decodes["task"] == key[1])]
    tables = {str(name): pivot_arms(own) for name, own in runs.groupby("diagnostic", sort=False)}
    for name, choice in choices.items():
        arms = [*ARMS, *(arm for gate in choice.gates for arm in (selective_arm(gate), random_arm(gate)))]
        if name in tables and (lost := [arm for arm in arms if arm not in tables[name].utility]):
            raise SchemaError(
                f"decodes of {', '.join((*key, name))} have no arm {', '.join(lost)}; allowed: all of them; remove the "
                "folder of their unit and run the study"
            )
    return DecodedTask(*key, choices, tables, info)


def analyse_runs(study: StudyFrames, diagnostics: Diagnostics, resamples: int) -> list[Row]:
    """Compare whole runs of all arms (E4) for every decoded model and task; no rows where no arms were decoded."""
    if not study.units:
        return []
    sampling = Sampling(study.seed, resamples)
    lost = {(r["model"], r["task"], r["diagnostic"]): r for r in diagnostics.rows if r["measure"] == MISSING}
    calibrations = {(one.model, one.task, one.diagnostic): one.calibration for one in diagnostics.settings}
    axis_of = {one.diagnostic: one.axis for one in diagnostics.settings}
    axis_of |= {row["diagnostic"]: row["axis"] for row in lost.values()}
    axis_of = dict(sorted(axis_of.items(), key=lambda pair: study.config["axes"].index(pair[1])))
    reasons = {key: row["note"] for key, row in lost.items()}
    usual = str(study.config.get("axis_by", AXIS_BY[0]))
    units, rows, missing, cells = [], [], [], {}
    for key in [(model, task) for model in study.references for task in study.config["tasks"]]:
        if key not in study.units:
            not_yet = "not decoded end to end yet"
            missing += [missing_row("arms", *key, a, reasons.get((*key, n), not_yet), n) for n, a in axis_of.items()]
            continue
        unit = _load_decoded_task(study, key, calibrations)
        units.append(unit)
        best = unit.choose_diagnostic(study, axis_of, usual)
        for name, axis in axis_of.items():
            if name not in unit.choices or name not in unit.tables:
                reason = unit.info["missing"].get(name) or reasons.get((*key, name), "no evaluation prompt was decoded")
                missing.append(missing_row("arms", *key, axis, reason, name))
                continue
            used = unit.tables[name].select({arm: arm for arm in ARMS})
            if used.empty:
                missing.append(missing_row("arms", *key, axis, _NO_PROMPT, name))
                continue
            cells[(*key, name)] = cell = _arm_numbers(unit, name, used, name == best, sampling)
            rows += cell.rows
        joint = _joint_rows(unit, best, sampling)
        missing += [row for row in joint if row["measure"] == MISSING]
        rows += [row for row in joint if row["measure"] != MISSING]
        rows += [*_gate_rows(unit, sampling), *_search_rows(unit, sampling)]
    for model in study.references:
        own = {key: cell for key, cell in cells.items() if key[0] == model}
        groups = {(CHOSEN_AXIS, CHOSEN_AXIS): {task: cell for (_, task, _), cell in own.items() if cell.chosen}}
        groups |= {
            (axis, n): {task: c for (_, task, name), c in own.items() if name == n} for n, axis in axis_of.items()
        }
        for (axis, name), by_task in groups.items():
            if by_task:
                where = {"experiment": "arms", "model": model, "task": MEAN, "axis": axis, "diagnostic": name}
                rows += result_rows(where, _arm_means(study, by_task, sampling))
    rows += _headline_rows(study, units, cells, axis_of, usual, sampling)
    if any(len({c.axis for c in u.choices.values()}) < len(u.choices) for u in units) or _further_gates(units):
        rows += _variant_rows(study, units, sampling)
    return [*rows, *missing]


def _further_gates(units: Iterable[DecodedTask]) -> list[str]:
    """List the names of decoded gates besides the usual one."""
    names = dict.fromkeys(gate for unit in units for choice in unit.choices.values() for gate in choice.gates)
    return [gate for gate in names if gate != LIFT]


# Arms of one diagnostic, and their means over tasks


class ArmNumbers(NamedTuple):
    """Numbers of the arms of one model, task and diagnostic, as rows and as values for means over tasks."""

    rows: list[Row]
    numbers: Mapping[Any, Any]
    used: pd.DataFrame
    chosen: bool


def _arm_numbers(unit: DecodedTask, name: str, used: pd.DataFrame, chosen: bool, sampling: Sampling) -> ArmNumbers:
    """Compute utilities, paired differences and coverages of the arms of one diagnostic."""
    choice, tables = unit.choices[name], unit.tables[name]
    tau = choice.calibration.tau
    numbers = {
        **paired_numbers({unit.task: used}, ARM_PAIRS, sampling),
        **{("coverage", arm): tables.coverage(arm, used.index) for arm in GATED_ARMS},
        "unjudged": len(tables.utility) - len(used),
        "chosen": chosen,
        "fixed": choice.calibration.fixed_name,
        "end_to_end": choice.end_to_end,
        "never": tau.reason if tau.value is None else "",
        "shut": tau.value is None,
        "out_of_fold": tau.out_of_fold,
    }
    where = {"experiment": "arms", "model": unit.model, "task": unit.task, "axis": choice.axis, "diagnostic": name}
    return ArmNumbers(list(result_rows(where, numbers)), numbers, used, chosen)


def _arm_means(study: StudyFrames, by_task: Mapping[str, ArmNumbers], sampling: Sampling) -> dict[Any, Any]:
    """Compute the means over tasks of the arms of one diagnostic."""
    gains = [cell.numbers["difference", pair_name(*GAIN)] for cell in by_task.values()]
    coverages = [cell.numbers["coverage", "selective"] for cell in by_task.values()]
    return {
        **mean_paired_numbers({task: cell.used for task, cell in by_task.items()}, ARM_PAIRS, coverages, sampling),
        "unjudged": sum(cell.numbers["unjudged"] for cell in by_task.values()),
        # A mean never deviates where none of its tasks does.
        "shut": all(cell.numbers["shut"] for cell in by_task.values()),
        "significant_up": sum(gain.low > 0 for gain in gains),
        "significant_down": sum(gain.high < 0 for gain in gains),
        "partial": describe_partial_tasks([task for task in study.config["tasks"] if task not in by_task], ()),
    }


def _headline_rows(
    study: StudyFrames,
    units: Sequence[DecodedTask],
    cells: Mapping[tuple[str, str, str], ArmNumbers],
    axis_of: Mapping[str, str],
    usual: str,
    sampling: Sampling,
) -> Iterator[Row]:
    """Yield the mean over tasks for every way to choose the axis, with and without the revision extension."""
    for model in dict.fromkeys(unit.model for unit in units):
        own = [unit for unit in units if unit.model == model]
        extends = any(study.extends(model, axis_of[name]) for unit in own for name in unit.choices)
        for by, revision in product(AXIS_BY, (False, True) if extends else (False,)):
            best = {unit.task: unit.choose_diagnostic(study, axis_of, by, revision) for unit in own}
            chosen = {task: name for task, name in best.items() if name and (model, task, name) in cells}
            if not chosen:
                continue
            where = {"experiment": "headlines", "model": model, "at": f"{by}{', with revision' * revision}"}
            facts: dict[str, Any] = {
                "by": by,
                "revision": revision,
                "usual": by == usual and not revision,
                "axes": _count_names(chosen),
            }
            by_task = {task: cells[model, task, name] for task, name in chosen.items()}
            yield from result_rows(where, {**_arm_means(study, by_task, sampling), **facts})


def _count_names(chosen: Mapping[str, str]) -> str:
    """List the chosen diagnostics, each with its number of tasks."""
    return ", ".join(f"{name} {tasks}" for name, tasks in Counter(chosen.values()).most_common())


# Further gates, searches, all axes together


def _gate_rows(unit: DecodedTask, sampling: Sampling) -> Iterator[Row]:
    """Compare the gates of each diagnostic that was decoded with several, on the same prompts; yield the rows."""
    for name, choice in unit.choices.items():
        if len(choice.gates) < 2 or name not in unit.tables:
            continue
        tables = unit.tables[name]
        needed = [*ARMS, *(arm for gate in choice.gates for arm in (selective_arm(gate), random_arm(gate)))]
        for gate, calibration in choice.gates.items():
            roles = {
                "selective": selective_arm(gate),
                "fixed": "fixed",
                "random gate": random_arm(gate),
                LIFT: "selective",
            }
            used = tables.select(roles, needed)
            if used.empty:
                continue
            never = calibration.tau.value is None
            numbers = {
                **paired_numbers({unit.task: used}, GATE_PAIRS, sampling),
                **threshold_numbers("tau", calibration.tau),
                "never": calibration.tau.reason if never else "",
                "shut": never,
                ("coverage", "selective"): tables.coverage(selective_arm(gate), used.index),
            }
            where = {"experiment": "gates", "model": unit.model, "task": unit.task, "axis": choice.axis}
            yield from result_rows({**where, "diagnostic": name, "at": gate}, numbers)


def _search_rows(unit: DecodedTask, sampling: Sampling) -> Iterator[Row]:
    """Compare searches with best of n of their base methods, which costs no more forwards; yield the rows."""
    tables = unit.tables.get(SEARCH)
    for search, entry in unit.info.get("searches", {}).items() if tables else ():
        assert tables is not None
        roles = {"reference": "reference", "search": search, "base": entry["base"], "control": entry["control"]}
        used = tables.select(roles)
        if used.empty:
            continue
        numbers = {
            **paired_numbers({unit.task: used}, SEARCH_PAIRS, sampling),
            **{("forwards", role): float(entry["forwards"][arm]) for role, arm in roles.items()},
            "best_of": int(entry["n"]),
            "unjudged": len(tables.utility) - len(used),
        }
        yield from result_rows(
            {"experiment": "searches", "model": unit.model, "task": unit.task, "at": search}, numbers
        )


def _joint_rows(unit: DecodedTask, best: str | None, sampling: Sampling) -> list[Row]:
    """Compare adapting all axes together with the reference and the selective arm of the chosen axis; list the rows."""
    tables, about = unit.tables.get(JOINT), unit.info["joint"]
    if tables is None or about is None or best is None:
        return []
    # Reindexed: the joint arm may have been decoded for fewer prompts.
    beside = unit.tables[best].utility["selective"].reindex(tables.utility.index)
    whole = tables._replace(utility=tables.utility.assign(selective=beside))
    used = whole.select({arm: arm for arm in JOINT_ARMS})
    if used.empty:
        return [missing_row("arms", unit.model, unit.task, JOINT, _NO_PROMPT)]
    # Steps of every axis are counted by prompt in the unit's file: [evaluated or None, deviated].
    steps = {
        axis: pd.DataFrame.from_dict(counts, orient="index", dtype=float) for axis, counts in about["gates"].items()
    }
    gates = ArmTables(tables.utility, *(pd.DataFrame({a: counts[k] for a, counts in steps.items()}) for k in (0, 1)))
    numbers = {
        **paired_numbers({unit.task: used}, JOINT_PAIRS, sampling),
        **{("coverage", axis): gates.coverage(axis, used.index) for axis in about["axes"]},
        "unjudged": len(tables.utility) - len(used),
        "axes": ", ".join(about["axes"]),
        "diagnostics": ", ".join(about.get("diagnostics") or about["axes"]),
        "named": bool(about.get("diagnostics")),
    }
    return list(result_rows({"experiment": "joint", "model": unit.model, "task": unit.task, "axis": JOINT}, numbers))


# Readings of the paper


@dataclass(frozen=True)
class ProtocolVariant:
    """One interpretation of the paper's protocol, among those that whole runs of one study can tell apart."""

    anchor: str
    """Name of the interpretation that this one starts from: `ours` or `literal`."""
    changed: str
    """The one choice that is not the anchor's; empty for the anchor itself."""
    diagnostics: Mapping[str, str]
    """Diagnostic of each axis."""
    gate: str = LIFT
    by: str = AXIS_BY[0]
    revision: bool = False
    """Whether the axis that extends a decoder without revision may be chosen."""


LITERAL_DIAGNOSTICS = ("region:diagnosed", "region:diagnosed:share", "cardinality:program")
"""Diagnostics that follow the paper's text where our usual one does not."""


def protocol_variants(diagnostics: Iterable[str], gates: Sequence[str], extends: bool) -> Iterator[ProtocolVariant]:
    """Yield our and the literal interpretation of the protocol, each followed by variants with one choice changed.

    What depends on the steps, the scoring or what the region axis holds takes a study of its own.
    """
    by_axis: dict[str, list[str]] = {}
    for name in diagnostics:
        by_axis.setdefault(DIAGNOSTICS[name].axis, []).append(name)
    plain = {
        axis: next((n for n in names if n not in LITERAL_DIAGNOSTICS), names[0]) for axis, names in by_axis.items()
    }
    literal = {axis: next((n for n in names if n in LITERAL_DIAGNOSTICS), names[0]) for axis, names in by_axis.items()}
    gates = (LIFT, *gates)
    together = "mean-together" if "mean-together" in gates else LIFT
    for anchor in (
        ProtocolVariant("ours", "", plain),
        ProtocolVariant("literal", "", literal, together, AXIS_BY[1], revision=extends),
    ):
        yield anchor
        for axis, names in by_axis.items():
            for name in (n for n in names if n != anchor.diagnostics[axis]):
                yield replace(anchor, changed=name, diagnostics={**anchor.diagnostics, axis: name})
        yield from (replace(anchor, changed=f"gate {gate}", gate=gate) for gate in gates if gate != anchor.gate)
        yield from (replace(anchor, changed=f"axis by {by}", by=by) for by in AXIS_BY if by != anchor.by)
        if extends:
            changed = "without revision" if anchor.revision else "with revision"
            yield replace(anchor, changed=changed, revision=not anchor.revision)


def _variant_rows(study: StudyFrames, units: Sequence[DecodedTask], sampling: Sampling) -> Iterator[Row]:
    """Yield the mean over tasks for every model and protocol variant."""
    for model in dict.fromkeys(unit.model for unit in units):
        own = [unit for unit in units if unit.model == model]
        names = dict.fromkeys(name for unit in own for name in unit.choices)
        extends = any(study.extends(model, c.axis) for unit in own for c in unit.choices.values())
        for variant in protocol_variants(names, _further_gates(own), extends):
            chosen, used, coverages, shut = {}, {}, [], []
            arm, control = selective_arm(variant.gate), random_arm(variant.gate)
            roles = {"reference": "reference", "fixed": "fixed", "selective": arm, "random gate": control}
            for unit in own:
                name = unit.choose_diagnostic(
                    study, variant.diagnostics.values(), variant.by, variant.revision, variant.gate
                )
                if name is None or name not in unit.tables or (table := unit.tables[name].select(roles)).empty:
                    continue
                chosen[unit.task], used[unit.task] = name, table
                coverages.append(unit.tables[name].coverage(arm, table.index))
                shut.append(unit.choices[name].gates[variant.gate].tau.value is None)
            if not used:
                continue
            where = {"experiment": "readings", "model": model, "at": variant.anchor}
            where["at"] += f", but for {variant.changed}" if variant.changed else ", as it is"
            facts: dict[str, Any] = {"anchor": variant.anchor, "changed": variant.changed, "axes": _count_names(chosen)}
            facts |= {"open": shut.count(False), "shut": all(shut)}
            yield from result_rows(where, {**mean_paired_numbers(used, READING_PAIRS, coverages, sampling), **facts})
