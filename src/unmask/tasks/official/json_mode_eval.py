"""JSON Mode Eval: requests to answer with a JSON object that satisfies a schema."""

import json

from unmask.tasks.base import DataDir, Draft, Json, Numbered, Task, TaskJudge, split_counts
from unmask.tasks.official.data import DataFile, Row, rows
from unmask.tasks.scoring.extract import spell
from unmask.tasks.scoring.utility import schema_record

# The publisher has the rows in another format; this is a copy as a JSON array.
_ORIGIN = "https://github.com/PeterPonyu/scMetaIntel-Hub at d15b6662d023b0f1fee0452b96fdc129cc27fa78"

FILE = DataFile(
    path="json_mode_eval/json_mode_eval.json",
    sha256="899da15b8b86a656c44ee7dd0f1e215f55fa1a67ec897e09ed4e200da6c662b9",
    rows=100,
    fields=("prompt", "completion", "schema"),
    rows_sha256="ec9ffd4d5fbfa0a64d8fc9cb8a156b05f28a1cd0e2a05e41f17b7319c8b275c7",
    origin=f"benchmarks/public_datasets/structured_output/json_mode_eval.json of {_ORIGIN}",
    licence="none stated by its publisher; for evaluation only",
    hub="NousResearch/json-mode-eval",
    hub_files="data/train-*.parquet",
)


def request(number: int, row: Row) -> Numbered:
    """The request of one row."""
    schema: Json = json.loads(row["schema"])
    gold = json.loads(row["completion"])
    required = schema.get("required") if isinstance(schema, dict) else None
    asked = next(message["content"] for message in row["prompt"] if message["role"] == "user")
    prompt = (
        "Answer the request with one JSON object that satisfies the schema.\n\n"
        f"Schema: {json.dumps(schema, ensure_ascii=False)}\n"
        f"Required fields: {', '.join(map(str, required)) if isinstance(required, list) else 'as the schema says'}\n"
        f"Request: {asked.strip()}\n\n"
        "Give the object, and nothing else, inside <answer>...</answer>."
    )
    target = json.dumps(gold, ensure_ascii=False)
    parts = tuple(f"{key}={spell(value)}" for key, value in gold.items())
    return Numbered(f"json-mode-eval-{number:02d}", Draft(prompt, target, parts, {"schema": schema}, level=1))


def read(data_dir: DataDir = None) -> list[Numbered]:
    """All requests."""
    return [request(number, row) for number, row in enumerate(rows(FILE, data_dir))]


TASK = Task(
    name="json-mode-eval",
    title="JSON Mode Eval",
    horizon=128,
    source="public",
    output="schema JSON",
    judge=TaskJudge("field credit", schema_record),
    counts=split_counts(16, 16, 68),
    version="1",
    reader=read,
)
