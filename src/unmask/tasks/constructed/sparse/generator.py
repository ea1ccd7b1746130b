"""TD07 Sparse Mask: three words missing from one sentence, far apart, and what is needed to find them.

The control task takes the same sentence with the same evidence and the same number of blanks, but the blanks are next
to each other. Both come from one source, so a pair that is drawn from the same key differs in nothing else.

The evidence settles every word that is hidden: a record of the facts, questions and answers, the pieces of the
sentence out of order, a list of its words, several records of which the sentence matches one, a record in base forms,
or a record with corrections.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unmask.tasks import scorers
from unmask.tasks.constructed.common import check_level, indexed
from unmask.tasks.constructed.sparse import evidence
from unmask.tasks.constructed.sparse.sentences import BLANKS, PARSED, Word, fill, slots_of, word_class
from unmask.tasks.draw import Draw, Json
from unmask.tasks.splits import constructed
from unmask.tasks.task import Example, Scorer
from unmask.tasks.words import closing, sentence_case


@dataclass(frozen=True)
class SparseSource:
    """A sentence, its evidence, and both ways to mask it."""

    words: tuple[Word, ...]
    evidence: str
    kind: str
    frame: int
    sparse: tuple[int, ...]
    clustered: tuple[int, ...]


def _sparse(draw: Draw, n: int, open_: Sequence[int]) -> tuple[int, ...] | None:
    """One blank each near the beginning, the middle and the end, at least two words between them."""
    parts = [[at for at in open_ if k * n <= 3 * at < (k + 1) * n] for k in range(BLANKS)]
    if not all(parts):
        return None
    first, middle, last = (draw.choice(part) for part in parts)
    return (first, middle, last) if middle - first > 2 and last - middle > 2 else None


def _clustered(draw: Draw, words: Sequence[Word], open_: Sequence[int]) -> tuple[int, ...] | None:
    """Three blanks in a row whose order is settled."""
    starts = [at for at in open_ if at + 1 in open_ and at + 2 in open_ and _ordered(words[at : at + BLANKS])]
    if not starts:
        return None
    at = draw.choice(starts)
    return at, at + 1, at + 2


def _ordered(window: Sequence[Word]) -> bool:
    """Whether words side by side can only stand in this order: 'Liam gladly' might as well be 'gladly Liam'."""
    kinds = {word.slot if word.slot == "name" else word_class(word.slot) for word in window}
    return "manner" not in kinds or not kinds & {"adjective", "name"}


_KINDS = (
    ("record", "questions", "bank"),
    ("record", "bank", "pieces", "questions"),
    ("rows", "base", "pieces", "corrected"),
    ("rows", "base", "corrected"),
)

_LENGTHS = (220, 220, 320, 380)


def source(draw: Draw, level: int) -> SparseSource:
    """A sentence with evidence that settles both its sparse and its clustered blanks."""
    kind = draw.choice(_KINDS[level - 1])
    while True:
        frame = draw.below(len(PARSED))
        # Many tries with one frame before the next, or frames that seldom succeed would hardly appear.
        for _ in range(60):
            attempt = _attempt(draw, level, kind, frame)
            if attempt and len(attempt.evidence) <= _LENGTHS[level - 1]:
                return attempt


def _attempt(draw: Draw, level: int, kind: str, frame: int) -> SparseSource | None:
    blank = PARSED[frame]
    slots = slots_of(blank)
    # Pieces show every word; the other kinds show only those that vary.
    open_ = [at for at, word in enumerate(blank) if word.slot or kind == "pieces"]
    sparse, clustered = _sparse(draw, len(blank), open_), _clustered(draw, blank, open_)
    if sparse is None or clustered is None:
        return None
    values, wrong = fill(draw, slots), fill(draw, slots)
    if len({row[slot].lower() for row in (values, wrong) for slot in slots}) < 2 * len(slots):
        return None
    words = tuple(replace(word, text=values[word.slot]) if word.slot else word for word in blank)
    rows = evidence.others(draw, slots, values, level) if kind == "rows" else []
    if not all(evidence.is_settled(kind, words, mask, rows) for mask in (sparse, clustered)):
        return None
    far, near = ([words[at].slot for at in mask] for mask in (sparse, clustered))
    if kind == "pieces":
        text = evidence.pieces(draw, words)
    elif kind == "bank":
        text = evidence.bank(draw, slots, values)
    elif kind == "rows":
        text = evidence.rows(draw, slots, values, rows)
    elif kind == "base":
        text = evidence.base(draw, slots, values)
    elif kind == "corrected":
        changed = evidence.to_correct(draw, slots, far, near, level - 1)
        text = evidence.corrected(draw, slots, values, wrong, changed)
    else:
        more = evidence.beside(draw, slots, [*far, *near]) if level > 1 else []
        shown, values = [*slots, *more], values | fill(draw, more)
        written = evidence.record if kind == "record" else evidence.questions
        text = written(draw, shown, values)
    return SparseSource(words, text, kind, frame, sparse, clustered)


_ASKS = (
    "{evidence}\nFill in the sentence: {sentence}",
    "Note: {evidence}\nSentence: {sentence}\nWhich words are missing?",
    "{sentence}\nThe missing words follow from this:\n{evidence}",
    "Three words are hidden. {sentence}\nHelp: {evidence}",
    "Complete the sentence with one word per gap.\n{sentence}\n{evidence}",
    "From the notes\n{evidence}\nsomeone wrote: {sentence}\nRestore the gaps.",
    "Gaps: {sentence}\nFacts: {evidence}",
    "{evidence}\nA sentence made from this, with three gaps: {sentence}",
    "Reconstruct the sentence. {sentence}\nSource: {evidence}",
    "Fill gaps [1], [2] and [3] using the information given.\n{evidence}\n{sentence}",
    "Masked: {sentence}\nEvidence: {evidence}",
    "Read the facts first.\n{evidence}\nThen complete: {sentence}",
)

_WHAT = (
    "the words as [1]=...; [2]=...; [3]=...",
    "[1]=...; [2]=...; [3]=...",
    "only [1]=...; [2]=...; [3]=...",
    "the three words as [1]=...; [2]=...; [3]=...",
)


def masked(words: Sequence[Word], mask: Sequence[int]) -> str:
    """The sentence with numbered blanks."""
    index = {at: f"[{i}]" for i, at in enumerate(mask, start=1)}
    return sentence_case(" ".join(index.get(at, word.text) + word.mark for at, word in enumerate(words)))


def _draft(draw: Draw, level: int, clustered: bool) -> Example:
    check_level(level)
    drawn = source(draw, level)
    at = draw.below(len(_ASKS))
    mask = drawn.clustered if clustered else drawn.sparse
    task = _ASKS[at].format(evidence=drawn.evidence, sentence=masked(drawn.words, mask))
    parts = tuple(drawn.words[i].text for i in mask)
    prompt = f"{task}\n{closing(draw, draw.choice(_WHAT))}"
    constraints: dict[str, Json] = {
        "kind": drawn.kind,
        "frame": str(drawn.frame),
        "sentence": masked(drawn.words, ()),
        "positions": list(mask),
    }
    return Example(prompt, indexed(parts), parts, constraints, level)


def generate(draw: Draw, level: int) -> Example:
    """One example of the given level, with blanks far apart."""
    return _draft(draw, level, clustered=False)


def generate_clustered(draw: Draw, level: int) -> Example:
    """One example of the given level, with blanks side by side."""
    return _draft(draw, level, clustered=True)


SCORER = Scorer("partial", scorers.score_spans)
TASK = constructed(
    "td07-sparse-mask", "TD07 Sparse Mask", SCORER, generate, max_new_tokens=48, output="three spans", version="1"
)
CLUSTERED = constructed(
    "td07-clustered-mask",
    "TD07 Clustered Mask",
    SCORER,
    generate_clustered,
    max_new_tokens=TASK.max_new_tokens,
    output=TASK.output,
    version=TASK.version,
    paired_with=TASK.name,
)
"""The control: drawn from the keys of the task, example i has the sentence and evidence of its example i. Not in the
suite."""
