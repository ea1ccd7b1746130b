"""The next answers of a study in plain sentences: can opportunity be predicted, and does one step on it pay?"""

from collections.abc import Iterator, Sequence
from math import isnan

from unmask.lab.analysis.detection import DetectionCell, DetectionFindings
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.report.tables.detection import DetectionVerdict, verdict
from unmask.report.tables.opportunity import number, share
from unmask.report.words.opportunity import FEW, by_model, chance, flatters, name, place, tally
from unmask.stats import Estimate

EXTENSION = (
    "Dream's native decoder is monotone: what it has revealed stays. Its commitment results are those of a revision "
    "extension of it, with a re-masking operator that it does not have, and are reported apart."
)
NOT_ASKED = "the study reads no diagnostics; `diagnostics` in its file asks for them."


def notes(found: OpportunityFindings, detected: DetectionFindings) -> Iterator[str]:
    """What the answers leave out. The extension's own answers follow elsewhere."""
    cells = detected.of(extension=False).cells
    for model, mine in by_model(cells).items():
        less = [c for c in mine if c.raw.choice.less_regret.positive and not _doubt(c)]
        passed = [c for c in mine if c.raw.choice.viability.passed]
        yield (
            f"{name(found, model)}: with its own threshold the diagnostic has reliably less regret than the stage-only "
            f"schedule on {len(less)} of {_pairs(mine)}; {len(passed)} {'passes' if len(passed) == 1 else 'pass'} the "
            "exploratory screen."
        )
    if detected.missing:
        yield f"Diagnostics of {_pairs(detected.missing)} have no numbers; the tables have the reasons."


def predictable(found: OpportunityFindings, cells: Sequence[DetectionCell]) -> str:
    """Claims only where reliable intervals leave chance behind."""
    if not cells:
        return "Not known: no diagnosed setting has numbers."
    known = [c for c in cells if not isnan(_auroc(c).value)]
    # A detector that knows only where there is no signal has predicted nothing.
    above = [c for c in known if _auroc(c).low > 0.5 and c.raw.auroc_among.low > 0.5]
    sure, hints = [c for c in above if not _doubt(c)], [c for c in above if _doubt(c)]
    what = "lies above 0.5, which is chance, both for all states and for those with a signal"
    told = []
    if sure:
        best = max(sure, key=lambda c: _auroc(c).value)
        more = [c for c in sure if c.raw.utility.detection.at[0.1].captured.low > 0.1]
        told += [
            f"In part: on {tally(found, cells, sure)} the 95 % interval of AUROC {what}"
            f"{chance(len(cells), 'above 0.5', 'at most about')}.",
            f"The highest is {number(_auroc(best))} ({_where(found, best)}{flatters(len(cells))}); on {len(more)} of "
            f"{len(sure)} the 10 % of states ranked first also hold more of the opportunity than 10 % at random.",
            f"Among states as far into their run, where knowing the stage does not help, the interval still lies above "
            f"0.5 on {sum(c.raw.auroc_within.low > 0.5 for c in sure)} of {len(sure)}.",
        ]
    elif known:
        best = max(known, key=lambda c: _auroc(c).value)
        told += [
            f"Not shown{' reliably' * bool(hints)}: on {tally(found, cells, [])} is there a reliable 95 % interval of "
            f"AUROC that {what}.",
            f"The highest estimate is {number(_auroc(best))} ({_where(found, best)}), for states with a signal "
            f"{number(best.raw.auroc_among)}.",
        ]
    else:
        return f"Not known: on {tally(found, cells, [])} does AUROC exist, because held-out states are of one kind."
    rest = [_hint(hints, "above 0.5")] * bool(hints)
    lost = len(cells) - len(known)
    rest += [f"on {lost} AUROC does not exist, because held-out states are of one kind"] * bool(lost)
    return " ".join([*told, *([_sentence(rest)] if rest else [])])


def pays(found: OpportunityFindings, cells: Sequence[DetectionCell]) -> str:
    """One deviation, after which the reference goes on to the end."""
    if not cells:
        return "One step at a time: not known, no diagnosed setting has numbers."
    by_verdict = {said: [c for c in cells if verdict(c.raw.utility) == said] for said in DetectionVerdict}
    sure, hints = by_verdict[DetectionVerdict.LIFT], by_verdict[DetectionVerdict.HINT]
    losses, never = by_verdict[DetectionVerdict.LOSS], by_verdict[DetectionVerdict.NEVER]
    what = "the 95 % interval of the selective policy's lift over the fixed action"
    best = max(sure or cells, key=lambda c: _lift(c).value)
    # A gate that stays shut has a lift of exactly 0: chance cannot move it.
    by_chance = chance(len(cells) - len(never), what="open gates")
    if sure:
        told = [
            f"One step at a time, yes on {tally(found, cells, sure)}: there {what} lies above zero{by_chance}",
            f"the largest is {number(_lift(best))} ({_where(found, best)}{flatters(len(cells))}), deviating at "
            f"{share(best.raw.utility.coverage.value)} of states",
        ]
    else:
        told = [f"One step at a time, no significant lift: on {tally(found, cells, [])} does {what} lie above zero"]
        told[0] += " reliably" * bool(hints)
        told += [f"the largest estimate is {number(_lift(best))} ({_where(found, best)})"] * (len(never) < len(cells))
    told += [_hint(hints, "above zero")] * bool(hints)
    told += [f"on {len(losses)} it lies below zero, so that deviating costs"] * bool(losses)
    told += [f"on {len(never)} the gate never opens, because validation gave no reason to deviate"] * bool(never)
    return _sentence(told)


def _sentence(clauses: Sequence[str]) -> str:
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}."


def _hint(cells: Sequence[DetectionCell], where: str) -> str:
    more = "interval lies" if len(cells) == 1 else "intervals lie"
    return f"{len(cells)} {more} {where}, but on {FEW}: a hint, no more"


def _auroc(cell: DetectionCell) -> Estimate:
    return cell.raw.utility.detection.auroc


def _lift(cell: DetectionCell) -> Estimate:
    return cell.raw.utility.lift["selective"]


def _doubt(cell: DetectionCell) -> bool:
    return bool(cell.raw.utility.unreliable)


def _where(found: OpportunityFindings, cell: DetectionCell) -> str:
    return place(found, cell.model, cell.task, cell.axis)


def _pairs(cells: Sequence[object]) -> str:
    return f"{len(cells)} task-axis {'pair' if len(cells) == 1 else 'pairs'}"
