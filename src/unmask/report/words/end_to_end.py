"""The last answer of a study, in plain sentences: does acting pay when whole answers are decoded?"""

from collections.abc import Iterator, Sequence

from unmask.lab.analysis.end_to_end import JOINT, EndToEndFindings, EndToEndMean
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.report.formats import counted, number
from unmask.report.verdicts import (
    GAIN,
    EndToEndVerdict,
    averaged,
    cell_verdict,
    chosen_means,
    mean_verdict,
    plain_verdict,
    score_line,
)
from unmask.report.words.phrases import chance, listed, model_name
from unmask.stats import FEWEST

NOT_MEASURED = (
    "End to end, where one answer has many deviations, was not measured; `end_to_end = true` in the study file asks "
    "for it."
)
BEYOND = (
    "Beyond the paper: it adapts one axis at a time. Here all diagnosed axes deviate in one decoder, each by its own "
    "gate. These results count in no answer above."
)
READINGS = (
    "Where the paper leaves room, a conclusion may depend on the reading. Each row changes one choice; the tables "
    "above are those of the study's own."
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


def pays(opportunity: OpportunityFindings, end_to_end: EndToEndFindings) -> str:
    """Native decoders, each task on the axis that validation chose for it."""
    means = chosen_means(end_to_end)
    if not means:
        return "End to end: not known, no axis could be chosen or nothing was judged; the tables have the reasons."
    beside = [f"{_beside(m)} with {model_name(opportunity, m.model)}" for m in means]
    return (
        f"End to end, each task on the axis that validation chose, {_gains(opportunity, end_to_end, means)}. "
        f"Selective differs {'; '.join(beside)}."
    )


_IN_SHORT = {
    EndToEndVerdict.BETTER: "Yes: adapting changes the utility of whole answers by {}",
    EndToEndVerdict.WORSE: "No, it costs: adapting changes the utility of whole answers by {}",
    EndToEndVerdict.HINT_BETTER: "Perhaps: adapting changes the utility of whole answers by {}, but few prompts differ",
    EndToEndVerdict.HINT_WORSE: "It seems to cost: adapting changes whole answers by {}, but few prompts differ",
    EndToEndVerdict.NOTHING: "Not shown: adapting changes the utility of whole answers by {}, which may be chance",
    EndToEndVerdict.NEVER: "No: validation prompts gave no gate a reason to open, so nothing is adapted",
    EndToEndVerdict.UNKNOWN: "Not known: no whole answer could be judged",
}


def pays_in_short(opportunity: OpportunityFindings, end_to_end: EndToEndFindings) -> str:
    """Whole answers, in one sentence that needs no definition; a clause for each model."""
    means = chosen_means(end_to_end)
    if not means:
        return "Not known: whole answers have no numbers."
    clauses = []
    for mean in means:
        said = _IN_SHORT[mean_verdict(end_to_end, mean)].format(f"{mean.difference[GAIN].value:+.3f}")
        whose = f" with {model_name(opportunity, mean.model)}" if len(means) > 1 else ""
        clauses.append(f"{said} ({counted(len(mean.tasks), 'task')}{whose})")
    return f"{'; '.join(clauses)}."


def extension(opportunity: OpportunityFindings, end_to_end: EndToEndFindings) -> str:
    """The revision extension alone."""
    return f"End to end, {_gains(opportunity, end_to_end, end_to_end.means)}." if end_to_end.means else ""


def _gains(opportunity: OpportunityFindings, end_to_end: EndToEndFindings, means: Sequence[EndToEndMean]) -> str:
    """Means over tasks, won and lost tasks, and how many looks these were."""
    gains = [_mean(opportunity, end_to_end, m) for m in means]
    partial = "".join(f"; {m.model} {m.partial}" for m in means if m.partial)
    # Without a significant result there is nothing that chance could have made; nor can it move a gate that stays shut.
    some = any(m.significant_up or m.significant_down for m in means)
    open_ = [c for m in means for c in averaged(end_to_end, m) if cell_verdict(c) is not EndToEndVerdict.NEVER]
    by_chance = chance(len(open_) if some else 0, what="open gates")
    return f"selective − fixed is {listed(gains)}{by_chance}{_hints(end_to_end, means)}{partial}"


def _mean(opportunity: OpportunityFindings, end_to_end: EndToEndFindings, mean: EndToEndMean) -> str:
    over = f"over {counted(len(mean.tasks), 'task')} of {model_name(opportunity, mean.model)}"
    return f"{number(mean.difference[GAIN])} {over} ({_SAID[mean_verdict(end_to_end, mean)]}: {score_line(mean)})"


def _hints(end_to_end: EndToEndFindings, means: Sequence[EndToEndMean]) -> str:
    said = [cell_verdict(c) for m in means for c in averaged(end_to_end, m)]
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
    differences = {head: mean.difference["selective", to] for to, head in heads.items()}
    return listed([f"{head} by {number(x)} ({plain_verdict(x)})" for head, x in differences.items()])


def notes(end_to_end: EndToEndFindings) -> Iterator[str]:
    """What the answer leaves out."""
    if end_to_end.joints:
        clauses = [
            f"joint − {to} lies above zero on {said.count(EndToEndVerdict.BETTER)} and below on "
            f"{said.count(EndToEndVerdict.WORSE)}"
            for to in ("reference", "selective")
            for said in ([plain_verdict(j.difference[JOINT, to]) for j in end_to_end.joints],)
        ]
        yield f"{BEYOND} Of {counted(len(end_to_end.joints), 'model-task pair')}, the interval of {listed(clauses)}."
    counts = [(c.prompts, c.unjudged) for c in end_to_end.cells] + [(j.prompts, j.unjudged) for j in end_to_end.joints]
    lost = sum(unjudged for _, unjudged in counts)
    if lost:
        whole = sum(prompts + unjudged for prompts, unjudged in counts)
        yield (
            f"End to end, {lost:,} of {whole:,} prompts, counted once for each axis, are left out because some arm's "
            "answer could not be judged; they are missing, not 0."
        )
    if end_to_end.missing:
        axes: dict[str, list[str]] = {}
        for m in end_to_end.missing:
            axes.setdefault(f"{m.task} of {m.model}", []).append(m.diagnostic or m.axis)
        places = [f"{where} ({', '.join(which)})" for where, which in axes.items()]
        yield f"End to end without numbers: {listed(places)}; the tables have the reasons."
