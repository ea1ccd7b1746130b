"""The next answers of a study in plain sentences: can opportunity be predicted, and does one step on it pay?"""

from collections.abc import Iterator, Sequence
from math import isnan

from unmask.lab.analysis.detection import DetectionCell, DetectionFindings
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.report.formats import counted, number, share
from unmask.report.tables.shared import FEW
from unmask.report.verdicts import DetectionVerdict, lift_verdict
from unmask.report.words.phrases import by_model, chance, flatters, intervals_lie, model_name, place, tally
from unmask.stats import Estimate

EXTENSION = (
    "Dream's native decoder is monotone: what it has revealed stays. Its commitment results are those of a revision "
    "extension of it, with a re-masking operator that it does not have, and are reported apart."
)
_ONE_KIND = "because held-out states are of one kind"
NOT_ASKED = "the study reads no diagnostics; `diagnostics` in its file asks for them."


def notes(opportunity: OpportunityFindings, detection: DetectionFindings) -> Iterator[str]:
    """What the answers leave out. The extension's own answers follow elsewhere."""
    cells = detection.of(extension=False).cells
    for model, of_model in by_model(cells).items():
        less = [c for c in of_model if c.raw.measures["less_regret"].positive and not _doubt(c)]
        passed = [c for c in of_model if c.raw.viable]
        yield (
            f"{model_name(opportunity, model)}: with its own threshold the diagnostic has reliably less regret than "
            f"the stage-only schedule on {len(less)} of {_pairs(of_model)}; {len(passed)} "
            f"{'passes' if len(passed) == 1 else 'pass'} the exploratory screen."
        )
    if detection.missing:
        yield f"Diagnostics of {_pairs(detection.missing)} have no numbers; the tables have the reasons."


def predictable(opportunity: OpportunityFindings, cells: Sequence[DetectionCell]) -> str:
    """Claims only where reliable intervals leave chance behind."""
    if not cells:
        return "Not known: no diagnosed setting has numbers."
    ranked, sure, hints = _ranked(cells)
    what = "lies above 0.5, which is chance, both for all states and for those with a signal"
    sentences = []
    if sure:
        best = max(sure, key=lambda c: _auroc(c).value)
        more = [c for c in sure if c.raw.measures["captured", 0.1].low > 0.1]
        sentences += [
            f"In part: on {tally(opportunity, cells, sure)} the 95 % interval of AUROC {what}"
            f"{chance(len(cells), 'above 0.5', 'at most about')}.",
            f"The highest is {number(_auroc(best))} ({_where(opportunity, best)}{flatters(len(cells))}); on "
            f"{len(more)} of {len(sure)} the 10 % of states ranked first also hold more of the opportunity than 10 % "
            "at random.",
            f"Among states as far into their run, where knowing the stage does not help, the interval still lies above "
            f"0.5 on {sum(c.raw.measures['auroc_within'].low > 0.5 for c in sure)} of {len(sure)}.",
        ]
    elif ranked:
        best = max(ranked, key=lambda c: _auroc(c).value)
        sentences += [
            f"Not shown{' reliably' * bool(hints)}: on {tally(opportunity, cells, [])} is there a reliable 95 % "
            f"interval of AUROC that {what}.",
            f"The highest estimate is {number(_auroc(best))} ({_where(opportunity, best)}), for states with a signal "
            f"{number(best.raw.measures['auroc_among'])}.",
        ]
    else:
        return f"Not known: on {tally(opportunity, cells, [])} does AUROC exist, {_ONE_KIND}."
    rest = [_hint(hints, "above 0.5")] * bool(hints)
    lost = len(cells) - len(ranked)
    rest += [f"on {lost} AUROC does not exist, {_ONE_KIND}"] * bool(lost)
    return " ".join([*sentences, *([_sentence(rest)] if rest else [])])


def predictable_in_short(cells: Sequence[DetectionCell]) -> str:
    """The same in one sentence that needs no definition."""
    _, sure, hints = _ranked(cells)
    if not cells:
        return "Not known: no diagnosed setting has numbers."
    if sure:
        return f"In part: on {len(sure)} of {_pairs(cells)} a signal says better than chance where to act."
    if hints:
        return f"Perhaps: {len(hints)} of {_pairs(cells)} hint at a signal that says where, on too few prompts."
    return f"Not shown: on none of {_pairs(cells)} does a signal say reliably where there is something to gain."


def _ranked(
    cells: Sequence[DetectionCell],
) -> tuple[list[DetectionCell], list[DetectionCell], list[DetectionCell]]:
    """Cells that have an AUROC; of those the ones above chance: to rely on, and on too few prompts."""
    ranked = [c for c in cells if not isnan(_auroc(c).value)]
    # A detector that knows only where there is no signal has predicted nothing.
    above = [c for c in ranked if _auroc(c).low > 0.5 and c.raw.measures["auroc_among"].low > 0.5]
    return ranked, [c for c in above if not _doubt(c)], [c for c in above if _doubt(c)]


def pays_in_short(cells: Sequence[DetectionCell]) -> str:
    """One step at a time, in one sentence that needs no definition."""
    said = [lift_verdict(c.raw) for c in cells]
    if not cells:
        return "Not known: no diagnosed setting has numbers."
    if sure := said.count(DetectionVerdict.LIFT):
        return f"One step at a time, yes on {sure} of {_pairs(cells)}; whole answers were not decoded."
    if hints := said.count(DetectionVerdict.HINT):
        return f"Perhaps: {hints} of {_pairs(cells)} hint at it, one step at a time; whole answers were not decoded."
    return "Not shown: no gain of acting, one step at a time; whole answers were not decoded."


def pays(opportunity: OpportunityFindings, cells: Sequence[DetectionCell]) -> str:
    """One deviation, after which the reference goes on to the end."""
    if not cells:
        return "One step at a time: not known, no diagnosed setting has numbers."
    by_verdict = {said: [c for c in cells if lift_verdict(c.raw) == said] for said in DetectionVerdict}
    sure, hints = by_verdict[DetectionVerdict.LIFT], by_verdict[DetectionVerdict.HINT]
    losses, never = by_verdict[DetectionVerdict.LOSS], by_verdict[DetectionVerdict.NEVER]
    what = "the 95 % interval of the selective policy's lift over the fixed action"
    best = max(sure or cells, key=lambda c: _lift(c).value)
    # A gate that stays shut has a lift of exactly 0: chance cannot move it.
    by_chance = chance(len(cells) - len(never), what="open gates")
    if sure:
        clauses = [
            f"One step at a time, yes on {tally(opportunity, cells, sure)}: there {what} lies above zero{by_chance}",
            f"the largest is {number(_lift(best))} ({_where(opportunity, best)}{flatters(len(cells))}), deviating at "
            f"{share(best.raw.measures['coverage'].value)} of states",
        ]
    else:
        none = tally(opportunity, cells, [])
        clauses = [f"One step at a time, no significant lift: on {none} does {what} lie above zero"]
        clauses[0] += " reliably" * bool(hints)
        if len(never) < len(cells):
            clauses.append(f"the largest estimate is {number(_lift(best))} ({_where(opportunity, best)})")
    clauses += [_hint(hints, "above zero")] * bool(hints)
    clauses += [f"on {len(losses)} it lies below zero, so that deviating costs"] * bool(losses)
    clauses += [f"on {len(never)} the gate never opens, because validation gave no reason to deviate"] * bool(never)
    return _sentence(clauses)


def _sentence(clauses: Sequence[str]) -> str:
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}."


def _hint(cells: Sequence[DetectionCell], where: str) -> str:
    return f"{len(cells)} {intervals_lie(cells)} {where}, but on {FEW}: a hint, no more"


def _auroc(cell: DetectionCell) -> Estimate:
    return cell.raw.measures["auroc"]


def _lift(cell: DetectionCell) -> Estimate:
    return cell.raw.measures["lift", "selective"]


def _doubt(cell: DetectionCell) -> bool:
    return bool(cell.raw.measures.unreliable)


def _where(opportunity: OpportunityFindings, cell: DetectionCell) -> str:
    return place(opportunity, cell.model, cell.task, cell.diagnostic)


def _pairs(cells: Sequence[object]) -> str:
    return counted(len(cells), "task-axis pair")
