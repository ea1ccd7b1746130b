"""The last answer of a study, in plain sentences: does acting pay when whole answers are decoded?"""

from collections.abc import Iterator, Sequence

from unmask.lab.analysis.end_to_end import CHOSEN, JOINT, EndToEndFindings, EndToEndMean
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.report.compare import count
from unmask.report.tables.end_to_end import (
    GAIN,
    EndToEndVerdict,
    averaged,
    cell_verdict,
    mean_verdict,
    plain_verdict,
    score_line,
)
from unmask.report.tables.opportunity import number
from unmask.report.words.opportunity import chance, listed, name
from unmask.stats.opportunity import FEWEST

NOT_MEASURED = (
    "End to end, where one answer has many deviations, was not measured; `end_to_end = true` in the study file asks "
    "for it."
)
BEYOND = (
    "Beyond the paper: it adapts one axis at a time. Here all diagnosed axes deviate in one decoder, each by its own "
    "gate. These results count in no answer above."
)
_SAID = {
    EndToEndVerdict.BETTER: "a significant lift",
    EndToEndVerdict.WORSE: "a significant loss",
    EndToEndVerdict.HINT_BETTER: f"no more than a hint, fewer than {FEWEST} prompts differ",
    EndToEndVerdict.HINT_WORSE: f"a hint of a loss, fewer than {FEWEST} prompts differ",
    EndToEndVerdict.NOTHING: "no significant lift",
    EndToEndVerdict.NEVER: "no gate ever opens",
    EndToEndVerdict.UNKNOWN: "not known",
}


def pays(found: OpportunityFindings, decoded: EndToEndFindings) -> str:
    """Native decoders, each task on the axis that validation chose for it."""
    means = [m for m in decoded.means if m.axis == CHOSEN]
    if not means:
        return "End to end: not known, no axis could be chosen or nothing was judged; the tables have the reasons."
    beside = [f"{_beside(m)} with {name(found, m.model)}" for m in means]
    return (
        f"End to end, each task on the axis that validation chose, {_gains(found, decoded, means)}. Selective differs "
        f"{'; '.join(beside)}."
    )


def extension(found: OpportunityFindings, decoded: EndToEndFindings) -> str:
    """The revision extension alone."""
    return f"End to end, {_gains(found, decoded, decoded.means)}." if decoded.means else ""


def _gains(found: OpportunityFindings, decoded: EndToEndFindings, means: Sequence[EndToEndMean]) -> str:
    """Means over tasks, won and lost tasks, and how many looks these were."""
    told = [_mean(found, decoded, m) for m in means]
    partial = "".join(f"; {m.model} {m.partial}" for m in means if m.partial)
    # Without a significant result there is nothing that chance could have made; nor can it move a gate that stays shut.
    found_some = any(m.significant_up or m.significant_down for m in means)
    open_ = [c for m in means for c in averaged(decoded, m) if cell_verdict(c) is not EndToEndVerdict.NEVER]
    by_chance = chance(len(open_) if found_some else 0, what="open gates")
    return f"selective − fixed is {listed(told)}{by_chance}{_hints(decoded, means)}{partial}"


def _mean(found: OpportunityFindings, decoded: EndToEndFindings, mean: EndToEndMean) -> str:
    over = f"over {count(len(mean.tasks), 'task')} of {name(found, mean.model)}"
    return f"{number(mean.difference[GAIN])} {over} ({_SAID[mean_verdict(decoded, mean)]}: {score_line(mean)})"


def _hints(decoded: EndToEndFindings, means: Sequence[EndToEndMean]) -> str:
    said = [cell_verdict(c) for m in means for c in averaged(decoded, m)]
    hints = sum(s in (EndToEndVerdict.HINT_BETTER, EndToEndVerdict.HINT_WORSE) for s in said)
    if not hints:
        return ""
    rest = "rests" if hints == 1 else "rest"
    return f"; {hints} of the intervals {rest} on fewer than {FEWEST} prompts that differ: a hint, no more"


def _beside(mean: EndToEndMean) -> str:
    heads = {
        "reference": "from the reference",
        "end-to-end fixed": "from the best fixed action end to end",
        "random gate": "from a random gate of equal coverage",
    }
    told = []
    for to, head in heads.items():
        difference = mean.difference["selective", to]
        told.append(f"{head} by {number(difference)} ({plain_verdict(difference)})")
    return listed(told)


def notes(decoded: EndToEndFindings) -> Iterator[str]:
    """What the answer leaves out."""
    if decoded.joints:
        told = [
            f"joint − {to} lies above zero on {said.count(EndToEndVerdict.BETTER)} and below on "
            f"{said.count(EndToEndVerdict.WORSE)}"
            for to in ("reference", "selective")
            for said in ([plain_verdict(j.difference[JOINT, to]) for j in decoded.joints],)
        ]
        yield f"{BEYOND} Of {count(len(decoded.joints), 'model-task pair')}, the interval of {listed(told)}."
    counts = [(c.prompts, c.unjudged) for c in decoded.cells] + [(j.prompts, j.unjudged) for j in decoded.joints]
    lost = sum(unjudged for _, unjudged in counts)
    if lost:
        whole = sum(prompts + unjudged for prompts, unjudged in counts)
        yield (
            f"End to end, {lost:,} of {whole:,} prompts, counted once for each axis, are left out because some arm's "
            "answer could not be judged; they are missing, not 0."
        )
    if decoded.missing:
        axes: dict[str, list[str]] = {}
        for m in decoded.missing:
            axes.setdefault(f"{m.task} of {m.model}", []).append(m.axis)
        told = [f"{where} ({', '.join(which)})" for where, which in axes.items()]
        yield f"End to end without numbers: {listed(told)}; the tables have the reasons."
