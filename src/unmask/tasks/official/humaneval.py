"""HumanEval: functions of a few lines of Python, and the tests they must pass."""

from unmask.tasks.base import DataDir, Draft, Numbered, Task, TaskJudge, split_counts
from unmask.tasks.official.data import DataFile, Row, rows
from unmask.tasks.scoring import programs

_ORIGIN = "https://github.com/openai/human-eval at 6d43fb980f9fee3c892a914eda09951f772ad10d"

FILE = DataFile(
    path="humaneval/HumanEval.jsonl.gz",
    sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    rows=164,
    fields=("task_id", "prompt", "entry_point", "canonical_solution", "test"),
    rows_sha256="9345bdf84c12086d808c671a8f61f2fa89353e1c147804ec9c2223102d7dadc3",
    origin=f"data/HumanEval.jsonl.gz of {_ORIGIN}",
    licence="MIT",
    hub="openai/openai_humaneval",
    hub_files="openai_humaneval/test-*.parquet",
)


def problem(row: Row) -> Numbered:
    """The problem of one row."""
    # The function stands last, so that a model without instruction tuning can simply continue it.
    prompt = f"Complete this Python function. Write code only.\n\n{row['prompt']}"
    constraints = {"prompt": row["prompt"], "entry_point": row["entry_point"], "test": row["test"]}
    solution = row["canonical_solution"]
    return Numbered(row["task_id"], Draft(prompt, solution, (solution,), constraints, level=1))


def read(data_dir: DataDir = None) -> list[Numbered]:
    """All problems."""
    return [problem(row) for row in rows(FILE, data_dir)]


TASK = Task(
    name="humaneval",
    title="HumanEval",
    horizon=256,
    source="official",
    output="Python completion",
    judge=TaskJudge("test pass", programs.judge, programs.judge_all),
    counts=split_counts(24, 40, 100),
    version="2",
    reader=read,
    drawn_as="1",
)
