"""The tables of E2: which actions diagnostics choose, and what those are worth."""

from collections.abc import Iterator
from math import isinf

from unmask.lab.analysis.detection import DetectionCell, DetectionFindings, SettingOutcome
from unmask.report.tables.opportunity import CELL, NOTES, Column, Sheet, Value, count, notes, number, share
from unmask.stats import Threshold

PROPOSAL = Column("proposal", "action", left=True)
STATES = (Column("states", "states", count), Column("excluded", "excluded", count))


def threshold(value: Threshold) -> str:
    """From where on to act, in words."""
    if value.value is None:
        return f"never: {value.reason}"
    return "wherever there is a signal" if isinf(value.value) else f"{value.value:.4g}"


def outcomes(found: DetectionFindings) -> Iterator[tuple[DetectionCell, str, SettingOutcome]]:
    for cell in found.cells:
        for proposal, outcome in cell.outcomes.items():
            yield cell, proposal, outcome


def cell_key(cell: DetectionCell) -> tuple[Value, ...]:
    return cell.model, cell.task, cell.axis


def selection(found: DetectionFindings, suffix: str) -> Sheet:
    keys = (
        ("oracle_gap", "oracle gap", number),
        ("lift", "lift", number),
        ("stage_lift", "", number),
        ("regret", "regret", number),
        ("stage_regret", "stage-only regret", number),
        ("less_regret", "regret saved", number),
        ("recovered", "recovered gap", share),
        ("stage_recovered", "", share),
    )
    screen = (Column("viable", "exploratory screen", _passed), Column("lower_regret", ""), Column("recovers", ""))
    wide = tuple(Column(key, head, show, wide=True) for key, head, show in keys)
    return Sheet(
        f"e2-selection{suffix}",
        "Action selection",
        "The diagnostic's action where its signal reaches theta, else the fixed action; raw: its own action, snapped: "
        "the candidate nearest to it. Regret: what the oracle among the candidates gains more; below 0 if proposals "
        "from outside the candidate set beat all of them. Regret saved: stage-only less diagnostic, on the same "
        "prompts. Recovered gap: lift by oracle gap. The screen asks for less regret than stage-only and a recovered "
        "gap above 0; it sees held-out outcomes, so it is exploratory: it describes settings and confirms nothing.",
        (*CELL, PROPOSAL, *screen, *NOTES, *wide, *STATES),
        tuple(
            (
                *cell_key(cell),
                proposal,
                outcome.choice.viability.passed,
                outcome.choice.viability.lower_regret,
                outcome.choice.viability.recovers,
                *notes(outcome.choice, cell.partial),
                *(getattr(outcome.choice, key) for key, _, _ in keys),
                outcome.choice.states,
                outcome.choice.excluded,
            )
            for cell, proposal, outcome in outcomes(found)
        ),
        empty="None.",
    )


def _passed(value: Value) -> str:
    return "passes" if value else "fails"


def diagnostics(found: DetectionFindings, suffix: str) -> Sheet:
    keys = (
        ("abstained", "abstains"),
        ("acted", "acts"),
        ("agrees_fixed", "agrees with fixed"),
        ("agrees_oracle", "with the oracle"),
        ("agrees_any", "with any candidate"),
    )
    columns = (
        *CELL,
        Column("fixed", "fixed action", left=True),
        Column("theta", "", number),
        *(Column(key, head, share, wide=True) for key, head in keys),
        Column("", "acts where the signal is at least", left=True),
        Column("theta_reason", ""),
        *NOTES,
        Column("prompts", "prompts", count),
        *STATES,
        Column("validation_prompts", "validation prompts", count),
    )
    rows = []
    for cell in found.cells:
        choice = cell.raw.choice
        chosen = choice.calibration
        rows.append(
            (
                *cell_key(cell),
                cell.fixed_name,
                chosen.theta.value,
                *(getattr(choice, key) for key, _ in keys),
                threshold(chosen.theta),
                chosen.theta.reason,
                *notes(choice, cell.partial),
                cell.prompts,
                choice.states,
                choice.excluded,
                chosen.prompts,
            )
        )
    return Sheet(
        f"e2-diagnostics{suffix}",
        "What diagnostics do",
        "Shares of held-out states where the diagnostic proposes nothing, and where it acts; of its proposals, the "
        "share that leads to the next state of the fixed action, of the action a fold picks, of any candidate. "
        "Agreement is that of its own actions: studies do not say which candidates lead to the same state as a "
        "snapped one.",
        columns,
        tuple(rows),
        empty="None.",
    )
