"""The demonstration in one sentence for each question: what a newcomer takes home, and nothing that was not shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan

from unmask.lab.analysis.detection import DetectionCell
from unmask.lab.analysis.end_to_end import EndToEndFindings
from unmask.lab.analysis.findings import Findings
from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings
from unmask.lab.demo import AT_ONCE
from unmask.report.demo.summary import DemoSummary
from unmask.report.verdicts import GAIN, EndToEndVerdict, chosen_means, mean_verdict
from unmask.stats.opportunity import FEWEST

_LEAD = 24
"""Characters of an answer in a word or two."""
_AS_GOOD = 0.99
"""Share of the best utility from which on a cheaper policy counts as good as the best."""


@dataclass(frozen=True)
class DemoVerdict:
    """A question and its answer in one sentence, which may begin with a word or two and a colon."""

    question: str
    sentence: str

    @property
    def lead(self) -> str:
        """What the sentence begins with, colon included; empty where that is the sentence itself."""
        word, colon, _ = self.sentence.partition(": ")
        return f"{word}{colon}" if colon and len(word) <= _LEAD else ""

    @property
    def rest(self) -> str:
        return self.sentence[len(self.lead) :]


def verdicts(summaries: Sequence[DemoSummary], findings: Findings) -> tuple[DemoVerdict, ...]:
    """On the methods first, then the four questions that every study is asked."""
    return (*_on_methods(summaries), *_on_study(findings))


# Problems with known answers


def _on_methods(summaries: Sequence[DemoSummary]) -> Iterator[DemoVerdict]:
    policies = [s for s in summaries if not s.baseline and s.forwards is not None]
    at_once = next((s for s in summaries if s.label == AT_ONCE), None)
    if not policies or at_once is None:
        return
    best = policies[0]
    cheap = min((s for s in policies if s.utility >= _AS_GOOD * best.utility), key=lambda s: s.spent)
    said = "Yes, up to a point" if best.utility > at_once.utility else "No"
    yield DemoVerdict(
        "Do more forwards help?",
        f"{said}: where the best answer is known, one forward for everything reaches a utility of "
        f"{at_once.utility:.2f}, the best method {best.utility:.2f}; {cheap.label} gets {cheap.utility:.2f} with "
        f"{cheap.spent:.1f} forwards for {cheap.spent * (cheap.tokens_per_forward or 0):.0f} tokens.",
    )


# The study


def _on_study(findings: Findings) -> Iterator[DemoVerdict]:
    opportunity = findings.opportunity
    cells = [c for c in opportunity.cells if not isnan(c.overall.delta.value)]
    above = [c for c in cells if c.overall.delta.positive]
    sure = [c for c in above if not c.overall.unreliable]
    yield _how_much(opportunity, cells, above, sure)
    yield _how_concentrated(sure or above)
    detection = findings.detection
    if detection is None:
        yield DemoVerdict("Can it be predicted?", "Not asked: the study reads no signals.")
        yield DemoVerdict("Does acting on it pay?", "Not measured: without signals there is nothing to act on.")
        return
    native = detection.of(extension=False).cells
    yield _predictable(native)
    yield _pays(findings.end_to_end)


def _how_much(
    findings: OpportunityFindings,
    cells: Sequence[OpportunityCell],
    above: Sequence[OpportunityCell],
    sure: Sequence[OpportunityCell],
) -> DemoVerdict:
    question = "Could another choice help?"
    if not cells:
        return DemoVerdict(question, "Not known: nothing could be measured.")
    best = max(sure or above or cells, key=lambda c: c.overall.delta.value)
    model = "" if len(findings.models) == 1 else f" with {best.model}"
    most = f"up to {best.overall.delta.value:.2f} ({best.axis} on {best.task}{model})"
    looked = f"{len(cells)} pairs of a task and an axis"
    if sure:
        reliably = f"on {len(sure)} of {looked} the best choice at one step reliably adds to the utility"
        return DemoVerdict(question, f"Yes: in hindsight, {reliably}, {most}.")
    if above:
        few = f"fewer than {FEWEST} prompts show it"
        return DemoVerdict(question, f"A hint: in hindsight, the best choice at one step adds {most}, but {few}.")
    return DemoVerdict(
        question, f"Not shown: on none of {looked} is the gain of the best choice at one step above chance."
    )


def _how_concentrated(cells: Sequence[OpportunityCell]) -> DemoVerdict:
    question = "Is that in few places?"
    if not cells:
        return DemoVerdict(question, "Not known: where no gain was shown, there is none that could be concentrated.")
    tenth = [c.overall.concentration[0.1].value for c in cells]
    gain = [c.overall.positive_rate.value for c in cells]
    said = "Yes" if min(tenth) > 0.2 else "Hardly"
    return DemoVerdict(
        question,
        f"{said}: {_shares(gain)} of the states gain at all, and the best tenth of all holds {_shares(tenth)} of the "
        "gain.",
    )


def _shares(values: Sequence[float]) -> str:
    least, most = f"{min(values):.0%}".rstrip("%"), f"{max(values):.0%}".rstrip("%")
    return f"{least} %" if least == most else f"{least} to {most} %"


def _predictable(cells: Sequence[DetectionCell]) -> DemoVerdict:
    question = "Can it be predicted?"
    ranked = [c for c in cells if not isnan(c.raw.utility.detection.auroc.value)]
    if not ranked:
        return DemoVerdict(question, "Not known: there are too few states of both kinds to tell.")
    above = [c for c in ranked if min(c.raw.utility.detection.auroc.low, c.raw.auroc_among.low) > 0.5]
    sure = [c for c in above if not c.raw.utility.unreliable]
    if sure:
        told = f"on {len(sure)} of {len(cells)} pairs a signal tells states that gain from others better than chance"
        return DemoVerdict(question, f"In part: {told}.")
    if above:
        return DemoVerdict(
            question, f"A hint: {len(above)} of {len(cells)} signals beat chance, but on too few prompts."
        )
    return DemoVerdict(
        question, "Not shown: no signal tells the states that gain from the others reliably better than chance."
    )


_PAYS = {
    EndToEndVerdict.BETTER: ("Yes", "whole answers get better"),
    EndToEndVerdict.WORSE: ("No, it costs", "whole answers get worse"),
    EndToEndVerdict.HINT_BETTER: ("A hint", "whole answers look better, but few prompts differ"),
    EndToEndVerdict.HINT_WORSE: ("A hint of a loss", "whole answers look worse, but few prompts differ"),
    EndToEndVerdict.NOTHING: ("Not shown", "whole answers get neither better nor worse beyond chance"),
    EndToEndVerdict.UNKNOWN: ("Not known", "no answer could be judged"),
}


def _pays(end_to_end: EndToEndFindings | None) -> DemoVerdict:
    question = "Does acting on it pay?"
    native = None if end_to_end is None else end_to_end.of(extension=False)
    means = [] if native is None else chosen_means(native)
    if native is None or not means:
        return DemoVerdict(question, "Not measured: no whole answers were decoded with it.")
    said = {mean.model: mean_verdict(native, mean) for mean in means}
    if all(verdict is EndToEndVerdict.NEVER for verdict in said.values()):
        never = "No: the rule learned on other prompts never found a reason to deviate, so answers stay as they were."
        return DemoVerdict(question, never)
    mean = max(means, key=lambda m: m.difference[GAIN].value)
    answer, words = _PAYS.get(said[mean.model], ("Not shown", "whole answers stay as they were"))
    gain = mean.difference[GAIN]
    interval = f" ({gain.value:+.3f}, from {gain.low:+.3f} to {gain.high:+.3f})" if not isnan(gain.value) else ""
    return DemoVerdict(question, f"{answer}: deviating where the signal says so, {words}{interval}.")
