"""The tables of E2: which actions diagnostics choose, and what those are worth."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf
from operator import attrgetter

from unmask.lab.analysis.detection import DetectionCell, DetectionFindings, SettingOutcome
from unmask.report.formats import count, number, share
from unmask.report.sheet import AnySheet, Column, Sheet, Value, attribute
from unmask.report.tables.shared import counts, diagnosed, measure, notes
from unmask.stats import Threshold


@dataclass(frozen=True)
class OutcomeRow:
    """One kind of proposal of a cell."""

    cell: DetectionCell
    proposal: str
    outcome: SettingOutcome

    @property
    def partial(self) -> str:
        return self.cell.partial


def outcome_rows(findings: DetectionFindings) -> Iterator[OutcomeRow]:
    for cell in findings.cells:
        for proposal, outcome in cell.outcomes.items():
            yield OutcomeRow(cell, proposal, outcome)


PROPOSAL = attribute("proposal", "action", left=True)


def outcome_columns(findings: DetectionFindings) -> tuple[Column[OutcomeRow], ...]:
    """Which outcome a row is about."""
    return (*diagnosed(findings.cells, "model", "task", path="cell."), PROPOSAL)


def threshold(value: Threshold) -> str:
    """From where on to act, in words."""
    if value.value is None:
        return f"never: {value.reason}"
    return "wherever there is a signal" if isinf(value.value) else f"{value.value:.4g}"


def selection_sheet(findings: DetectionFindings, suffix: str) -> AnySheet:
    lifts = (("oracle_gap", "oracle gap", "oracle"), ("lift", "lift", "diagnostic"), ("stage_lift", None, "stage"))
    estimates = (
        ("regret", "regret", number),
        ("stage_regret", "stage-only regret", number),
        ("less_regret", "regret saved", number),
        ("recovered", "recovered gap", share),
        ("stage_recovered", None, share),
    )
    columns: tuple[Column[OutcomeRow], ...] = (
        *outcome_columns(findings),
        attribute("viable", "exploratory screen", _passed, path="outcome.viable"),
        attribute("lower_regret", None, path="outcome.lower_regret"),
        attribute("recovers", None, path="outcome.recovers"),
        *notes(attrgetter("outcome.measures"), attrgetter("partial")),
        *(measure(key, head, number, path="outcome.measures", name="lift", at=arm) for key, head, arm in lifts),
        *(measure(key, head, show, path="outcome.measures") for key, head, show in estimates),
        *counts("states", "excluded", path="outcome.measures."),
    )
    return Sheet(
        f"e2-selection{suffix}",
        "Action selection",
        "The diagnostic's action where its signal reaches theta, else the fixed action; raw: its own action, snapped: "
        "the candidate nearest to it. Regret: what the oracle among the candidates gains more; below 0 if proposals "
        "from outside the candidate set beat all of them. Regret saved: stage-only less diagnostic, on the same "
        "prompts. Recovered gap: lift by oracle gap. The screen asks for less regret than stage-only and a recovered "
        "gap above 0; it sees held-out outcomes, so it is exploratory: it describes settings and confirms nothing.",
        columns,
        list(outcome_rows(findings)),
        empty="None.",
    )


def _passed(value: Value) -> str:
    return "passes" if value else "fails"


def diagnostics_sheet(findings: DetectionFindings, suffix: str) -> AnySheet:
    shares = {
        "abstained": "abstains",
        "acted": "acts",
        "agrees_fixed": "agrees with fixed",
        "agrees_oracle": "with the oracle",
        "agrees_any": "with any candidate",
    }
    columns: tuple[Column[DetectionCell], ...] = (
        *diagnosed(findings.cells, "model", "task"),
        attribute("fixed", "fixed action", path="fixed_name", left=True),
        attribute("theta", None, path="raw.calibration.theta.value"),
        *(measure(key, head, share, path="raw.measures") for key, head in shares.items()),
        Column(None, "acts where the signal is at least", lambda c: threshold(c.raw.calibration.theta), left=True),
        attribute("theta_reason", None, path="raw.calibration.theta.reason"),
        *notes(attrgetter("raw.measures"), attrgetter("partial")),
        *counts("prompts"),
        *counts("states", "excluded", path="raw.measures."),
        attribute("validation_prompts", "validation prompts", count, path="raw.calibration.prompts"),
    )
    return Sheet(
        f"e2-diagnostics{suffix}",
        "What diagnostics do",
        "Shares of held-out states where the diagnostic proposes nothing, and where it acts; of its proposals, the "
        "share that leads to the next state of the fixed action, of the action a fold picks, of any candidate. "
        "Agreement is that of its own actions: studies do not say which candidates lead to the same state as a "
        "snapped one.",
        columns,
        findings.cells,
        empty="None.",
    )
