"""The demonstration in one sentence for each question: what a newcomer takes home, and nothing that was not shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unmask.lab.demo import AT_ONCE
from unmask.report.demo.summary import DemoSummary
from unmask.report.headlines import Answer

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
        """Beginning of the sentence, colon included; empty where that is the sentence itself."""
        word, colon, _ = self.sentence.partition(": ")
        return f"{word}{colon}" if colon and len(word) <= _LEAD else ""

    @property
    def rest(self) -> str:
        return self.sentence[len(self.lead) :]


def verdicts(summaries: Sequence[DemoSummary], answers: Sequence[Answer]) -> tuple[DemoVerdict, ...]:
    """On the methods first, then the four questions that every study is asked."""
    return (*_on_methods(summaries), *_on_study(answers))


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


def _on_study(answers: Sequence[Answer]) -> Iterator[DemoVerdict]:
    for answer in answers:
        yield DemoVerdict(_PLAIN.get(answer.question, answer.question), answer.verdict)


_PLAIN = {
    "How much?": "Could another choice help?",
    "How concentrated?": "Is that in few places?",
    "Predictable?": "Can it be predicted?",
    "Does acting pay?": "Does acting on it pay?",
}
"""What every study is asked, for who has not read its other answers."""
