"""What decoding costs on the machine at hand: ratios of one run, and the times that they are made of."""

from unmask.lab.bench.clock import Effort, Stopwatch, Times, interleaved
from unmask.lab.bench.lines import BenchFailure, BenchResult, Line, Ratio
from unmask.lab.bench.run import PARTS, BenchPlan, chosen_parts, run_bench
from unmask.lab.bench.subject import SHAPES, CanvasShape, Subject, random_subject, subject_of

__all__ = [
    "PARTS",
    "SHAPES",
    "BenchFailure",
    "BenchPlan",
    "BenchResult",
    "CanvasShape",
    "Effort",
    "Line",
    "Ratio",
    "Stopwatch",
    "Subject",
    "Times",
    "chosen_parts",
    "interleaved",
    "random_subject",
    "run_bench",
    "subject_of",
]
