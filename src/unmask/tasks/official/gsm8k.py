"""GSM8K: word problems whose answer is a number."""

from unmask.tasks.base import DataDir, Draft, Numbered, Task, TaskJudge, split_counts
from unmask.tasks.official.data import DataFile, Row, rows
from unmask.tasks.scoring.utility import number

_ORIGIN = "https://github.com/openai/grade-school-math at 3101c7d5072418e28b9008a6636bde82a006892c"


def _file(name: str, rows: int, sha256: str, rows_sha256: str) -> DataFile:
    return DataFile(
        path=f"gsm8k/{name}.jsonl",
        sha256=sha256,
        rows=rows,
        fields=("question", "answer"),
        rows_sha256=rows_sha256,
        origin=f"grade_school_math/data/{name}.jsonl of {_ORIGIN}",
        licence="MIT",
        hub="openai/gsm8k",
        hub_files=f"main/{name}-*.parquet",
    )


TEST = _file(
    "test",
    1319,
    "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    "176818e0349688ae3031a37f2fe8f454e7575635b88232abfc6b3387320e6605",
)
TRAIN = _file(
    "train",
    7473,
    "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
    "37a62873b589a3c35f35f4e3e34d2e054679c86d05ed1330ad4f3367ea76bfd0",
)


def draft(row: Row) -> Draft:
    """The problem of one row."""
    solution, _, target = row["answer"].rpartition("####")
    prompt = (
        f"{row['question'].strip()}\n\n"
        "You may work it out step by step. Give the final number, and nothing else, inside <answer>...</answer>."
    )
    target = target.strip()
    return Draft(prompt, target, (target,), {"solution": solution.strip()}, level=1)


def read(data_dir: DataDir = None) -> list[Numbered]:
    """The test file, of which the splits are made."""
    return [Numbered(f"gsm8k-test-{at:04d}", draft(row)) for at, row in enumerate(rows(TEST, data_dir))]


def read_training(data_dir: DataDir = None) -> list[Numbered]:
    """The training file."""
    return [Numbered(f"gsm8k-train-{at:04d}", draft(row)) for at, row in enumerate(rows(TRAIN, data_dir))]


TASK = Task(
    name="gsm8k",
    title="GSM8K",
    horizon=256,
    source="official",
    output="numeric answer",
    judge=TaskJudge("binary", number),
    counts=split_counts(100, 200, 1019),
    version="1",
    reader=read,
    training_reader=read_training,
)
