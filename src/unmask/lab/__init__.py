"""The laboratory: experiments on top of the decoder, never the reverse."""

from unmask.lab.compare import CONTENDERS, FAMILIES, Comparison, Contender, Problem, Reveal, Row, compare, problems

__all__ = [
    "CONTENDERS",
    "FAMILIES",
    "Comparison",
    "Contender",
    "Problem",
    "Reveal",
    "Row",
    "compare",
    "problems",
]
