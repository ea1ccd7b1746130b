"""JSON Mode Eval: requests to answer with a JSON object that satisfies a schema.

Six of the schemas say nothing at their top, so that they accept everything as they stand; `judged_schema` reads what
they mean. The prompt shows every schema as it was published.
"""

import json
from collections.abc import Mapping

from unmask.base.json_files import parse_json
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
    schema: Json = parse_json(row["schema"])
    gold = parse_json(row["completion"])
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
    constraints = {"schema": judged_schema(schema, gold)}
    return Numbered(f"json-mode-eval-{number:02d}", Draft(prompt, target, parts, constraints, level=1))


def judged_schema(schema: Json, gold: Mapping[str, Json]) -> Json:
    """The schema that answers must satisfy: the published one, unless that has neither a type nor properties.

    Then its keys are names. Names of types (`{"yield": "number"}`) mean that every field is required. One name around
    a schema means what the target shows: an object of that schema, or that name with such an object, or such objects
    under names that the request gives.
    """
    if not isinstance(schema, Mapping) or "type" in schema or "properties" in schema:
        return schema
    if all(isinstance(value, str) for value in schema.values()):
        return _fields({key: {"type": value} for key, value in schema.items()})
    ((name, inner),) = schema.items()
    required = inner["required"] if isinstance(inner, Mapping) else None
    if isinstance(required, list) and set(required) <= gold.keys():
        return inner
    if name in gold:
        return _fields({name: inner})
    return {"type": "object", "minProperties": 1, "additionalProperties": inner}


def _fields(properties: Mapping[str, Json]) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


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
    version="2",
    reader=read,
)
