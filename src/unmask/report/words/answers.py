"""The four answers to what every study is asked, and the notes that go with them."""

from collections.abc import Iterator

from unmask.axes import POLICY
from unmask.lab.analysis.detection import DetectionFindings
from unmask.lab.analysis.end_to_end import EndToEndFindings
from unmask.lab.analysis.findings import Findings
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.report.report import Answer
from unmask.report.words import detection as detection_words
from unmask.report.words import end_to_end as end_to_end_words
from unmask.report.words import learned as learned_words
from unmask.report.words import opportunity as opportunity_words

GLOSSARY = {
    "state": "an answer part-way through decoding, with some positions still masked",
    "axis": "one part of the next step: how positions are ranked (score), which may be chosen (region), how many are "
    "revealed (cardinality), whether they may still change (commitment)",
    "action": "one choice on an axis; the fixed action is the choice that was best everywhere on validation prompts",
    "opportunity": "what the best action of each state would have gained over the fixed one, in task utility from 0 "
    "to 1, seen in hindsight (Δ_adapt)",
    "gate": "the rule that decides, from a signal known before acting, whether to leave the fixed action",
}
"""The words that the answers use, for who has read nothing else."""

METHODS = (
    "The policy axis has no diagnostic: it has opportunity, a fixed method and one for each stage, and no part in "
    "what is said of predicting and acting. Its methods act for one transition with empty notes; what they take beside "
    "one forward is in the table of their costs, not in their utilities."
)


def answers(findings: Findings) -> Iterator[Answer]:
    """The four questions that every study is asked."""
    opportunity, detection = findings.opportunity, findings.detection
    short = opportunity_words.much_in_short(opportunity)
    yield Answer("How much?", opportunity_words.how_much(opportunity), short)
    short = opportunity_words.concentrated_in_short(opportunity)
    yield Answer("How concentrated?", opportunity_words.how_concentrated(opportunity), short)
    if detection is None:
        alone = opportunity.manifest["study"]["axes"] == [POLICY]
        why = "no diagnostic exists for the policy axis." if alone else detection_words.NOT_ASKED
        yield Answer("Predictable?", f"Not asked: {why}", "Not asked by this study.")
        yield Answer("Does acting pay?", f"Not measured: {why}", "Not measured by this study.")
        return
    native = detection.of(extension=False).cells
    short = detection_words.predictable_in_short(native)
    yield Answer("Predictable?", detection_words.predictable(opportunity, native), short)
    text = f"{detection_words.pays(opportunity, native)}\n{_end_to_end_answer(findings)}"
    yield Answer("Does acting pay?", text, _pays_in_short(findings))


def _pays_in_short(findings: Findings) -> str:
    """What counts is whole answers; one step where those were not decoded."""
    if findings.end_to_end is not None:
        return end_to_end_words.pays_in_short(findings.opportunity, findings.end_to_end.of(extension=False))
    cells = () if findings.detection is None else findings.detection.of(extension=False).cells
    return detection_words.pays_in_short(cells)


def _end_to_end_answer(findings: Findings) -> str:
    if findings.end_to_end is None:
        return end_to_end_words.NOT_MEASURED
    return end_to_end_words.pays(findings.opportunity, findings.end_to_end.of(extension=False))


def notes(findings: Findings) -> Iterator[str]:
    """What goes with the answers: how far to trust them, what stands apart, what is not in them."""
    yield from opportunity_words.notes(findings.opportunity)
    if findings.methods is not None:
        yield METHODS
    if findings.detection is not None:
        yield from detection_words.notes(findings.opportunity, findings.detection)
        yield from _extension_note(findings.opportunity, findings.detection, findings.end_to_end)
    if findings.learned is not None:
        yield from learned_words.helps(findings.opportunity, findings.learned)
    if findings.end_to_end is not None:
        yield from end_to_end_words.notes(findings.end_to_end)


def _extension_note(
    opportunity: OpportunityFindings, detection: DetectionFindings, end_to_end: EndToEndFindings | None
) -> Iterator[str]:
    """The revision extension counts in no answer and has its own."""
    cells = detection.of(extension=True).cells
    if not cells:
        return
    sentences = [
        detection_words.EXTENSION,
        "Predictable?",
        detection_words.predictable(opportunity, cells),
        "Does acting pay?",
        detection_words.pays(opportunity, cells),
    ]
    if end_to_end is not None:
        sentences.append(end_to_end_words.extension(opportunity, end_to_end.of(extension=True)))
    yield " ".join(sentences).rstrip()
