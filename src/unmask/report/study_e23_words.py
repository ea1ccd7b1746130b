"""Two more answers of a study, in plain sentences: can opportunity be predicted, and would acting on it pay?"""

from collections.abc import Iterator, Sequence
from math import isnan

from unmask.lab.e1 import E1
from unmask.lab.e23 import E23, Cell
from unmask.report.study_e23_tables import Verdict, verdict
from unmask.report.study_tables import number, share
from unmask.report.study_words import name
from unmask.stats import Estimate
from unmask.stats.opportunity import FEWEST

EXTENSION = (
    "Dream's native decoder is monotone: what it has revealed stays. Its commitment results are those of a revision "
    "extension of it, with a re-masking operator that it does not have, and are reported apart."
)


def answer(found: E1, detected: E23) -> tuple[str, ...]:
    """Claims only where a reliable interval leaves chance, or zero, behind."""
    told = [*_answers(found, detected.of(extension=False))]
    apart = detected.of(extension=True)
    if apart.cells:
        told.append(" ".join([EXTENSION, *_answers(found, apart)]))
    if detected.missing:
        told.append(f"Diagnostics of {_pairs(detected.missing)} have no numbers; the reasons are below.")
    return tuple(told)


def _answers(found: E1, detected: E23) -> Iterator[str]:
    models = tuple(dict.fromkeys(cell.model for cell in detected.cells))
    by_model = {model: [c for c in detected.cells if c.model == model] for model in models}
    if models:
        predicted = [f"{name(found, model)}: {_predictable(cells)}" for model, cells in by_model.items()]
        paid = [f"{name(found, model)}: {_pays(cells)}" for model, cells in by_model.items()]
        yield f"Predictable before acting? {' '.join(predicted)}"
        yield (
            f"Would acting on it pay, one step at a time? {' '.join(paid)} This is one deviation, then the reference "
            "to the end; it does not say what many deviations in one answer do."
        )


def _predictable(cells: Sequence[Cell]) -> str:
    known = [c for c in cells if not isnan(_auroc(c).value)]
    # A detector that knows only where there is no signal has predicted nothing.
    above = [c for c in known if _auroc(c).low > 0.5 and c.raw.auroc_among.low > 0.5]
    sure = [c for c in above if not _doubt(c)]
    hints = [c for c in above if _doubt(c)]
    told = []
    if sure:
        best = max(sure, key=lambda c: _auroc(c).value)
        more = [c for c in sure if c.raw.utility.detection.at[0.1].captured.low > 0.1]
        told.append(
            f"in part. On {len(sure)} of {_pairs(cells)} the 95 % interval of AUROC lies above 0.5, which is chance, "
            f"both for all states and for those with a signal. The highest is {number(_auroc(best))} "
            f"({_where(best)}{_flatters(cells)}). On {len(more)} of {len(sure)} the 10 % of states ranked first also "
            "hold more of the opportunity than 10 % at random."
        )
    elif known:
        best = max(known, key=lambda c: _auroc(c).value)
        told.append(
            f"not shown{' reliably' * bool(hints)}. On none of {_pairs(cells)} does a reliable 95 % interval of AUROC "
            "lie above 0.5, which is chance, both for all states and for those with a signal. The highest estimate is "
            f"{number(_auroc(best))} ({_where(best)}), for states with a signal {number(best.raw.auroc_among)}."
        )
    else:
        told.append(f"not known. On none of {_pairs(cells)} does AUROC exist.")
    if hints:
        told.append(_hint(hints, "above 0.5"))
    lost = len(cells) - len(known)
    if lost and known:
        told.append(f"On {lost} AUROC does not exist: all held-out states are of one kind.")
    return " ".join(told)


def _pays(cells: Sequence[Cell]) -> str:
    by_verdict = {said: [c for c in cells if verdict(c.raw.utility) == said] for said in Verdict}
    sure, hints = by_verdict[Verdict.LIFT], by_verdict[Verdict.HINT]
    losses, never = by_verdict[Verdict.LOSS], by_verdict[Verdict.NEVER]
    told = []
    if sure:
        best = max(sure, key=lambda c: _lift(c).value)
        utility = best.raw.utility
        told.append(
            f"on {len(sure)} of {_pairs(cells)}. There the 95 % interval of the selective policy's lift over the fixed "
            f"action lies above zero. The largest is {number(_lift(best))} ({_where(best)}{_flatters(cells)}), "
            f"deviating at {share(utility.coverage.value)} of states; the oracle would gain "
            f"{number(utility.lift['oracle'].value)}, the stage-only schedule {number(utility.lift['stage'].value)}."
        )
        if len(cells) > 1:
            told.append("Without any effect, one interval in forty or a little more would lie above zero by chance.")
    else:
        told.append(f"no significant lift. On none of {_pairs(cells)} does a reliable 95 % interval lie above zero.")
    if hints:
        told.append(_hint(hints, "above zero"))
    if losses:
        told.append(f"On {len(losses)} the interval lies below zero: deviating would cost.")
    if never:
        told.append(f"On {len(never)} the gate never opens: validation prompts gave no reason to deviate.")
    less = [c for c in cells if c.raw.choice.less_regret.positive and not _doubt(c)]
    passed = [c for c in cells if c.raw.choice.viability.passed]
    told.append(
        f"With its own threshold the diagnostic has reliably less regret than the stage-only schedule on {len(less)} "
        f"of {len(cells)}; {len(passed)} {'passes' if len(passed) == 1 else 'pass'} the exploratory screen."
    )
    return " ".join(told)


def _hint(cells: Sequence[Cell], where: str) -> str:
    more = "interval lies" if len(cells) == 1 else "intervals lie"
    return f"{len(cells)} {more} {where}, but on fewer than {FEWEST} prompts with a gain: a hint, no more."


def _auroc(cell: Cell) -> Estimate:
    return cell.raw.utility.detection.auroc


def _lift(cell: Cell) -> Estimate:
    return cell.raw.utility.lift["selective"]


def _doubt(cell: Cell) -> bool:
    return bool(cell.raw.utility.unreliable)


def _where(cell: Cell) -> str:
    return f"{cell.axis} on {cell.task}"


def _flatters(cells: Sequence[Cell]) -> str:
    return f"; the best of {len(cells)} looks better than it is" if len(cells) > 1 else ""


def _pairs(cells: Sequence[object]) -> str:
    return f"{len(cells)} task-axis {'pair' if len(cells) == 1 else 'pairs'}"
