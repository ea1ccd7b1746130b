"""JSON Mode Eval: objects against their schemas."""

import json
import re

import jsonschema
import pytest

from unmask.tasks import SPLITS, examples, score
from unmask.tasks.official import json_mode_eval
from unmask.tasks.official.data import rows

OPEN = [19, 27, 33, 45, 72, 97]
"""Rows whose schemas accept everything as they were published."""


@pytest.fixture(scope="module")
def by_id(data):
    return {e.id: e for split in SPLITS for e in examples("json-mode-eval", split, data)}


def test_json_mode_permuted_keys(data):
    for e in examples("json-mode-eval", "evaluation", data):
        gold = json.loads(e.target)
        assert score(json.dumps(dict(reversed(gold.items()))), e).utility == 1.0
        assert 0.0 <= score(json.dumps(dict.fromkeys(gold)), e).utility < 1.0
        assert "Required fields:" in e.prompt


def test_the_open_schemas_are_these_six(data):
    """All others are judged as published."""
    accepts = []
    for number, row in enumerate(rows(json_mode_eval.FILE, data)):
        schema = json.loads(row["schema"])
        if jsonschema.Draft202012Validator(schema).is_valid({"no": ["such", "thing"]}):
            accepts.append(number)
        judged = json_mode_eval.judged_schema(schema, json.loads(row["completion"]))
        assert (judged == schema) == (number not in OPEN), number
    assert set(OPEN) <= set(accepts)
    # The others of them have properties, none of which is required.
    assert set(accepts) - set(OPEN) <= {4, 6, 17, 39, 50}


def changed(value, field, to):
    """The object with another value of a field, in all the places where the field is."""
    if isinstance(value, dict):
        changed_ = {key: changed(item, field, to) for key, item in value.items() if not (key == field and to is ...)}
        return {**changed_, field: to} if field in value and to is not ... else changed_
    return [changed(item, field, to) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (19, "totalShipments"),
        (27, "vehicleID"),
        (27, "cost"),
        (33, "target_language"),
        (45, "yield"),
        (72, "current_location"),
        (97, "reorderLevel"),
    ],
)
def test_required_fields_and_types_count_inside_the_wrapper(by_id, row, field):
    e = by_id[f"json-mode-eval-{row}"]
    gold = json.loads(e.target)
    assert score(json.dumps(gold), e).utility == 1.0
    for broken in (changed(gold, field, ...), changed(gold, field, ["neither", "text", "nor", "number"])):
        verdict = score(json.dumps(broken), e)
        assert verdict.utility == 0.0
        assert verdict.reason.startswith("breaks the schema")


@pytest.mark.parametrize("row", OPEN)
def test_something_else_breaks_the_schema(by_id, row):
    e = by_id[f"json-mode-eval-{row}"]
    for text in ("{}", '{"no": "thing"}', json.dumps({"x": json.loads(e.target)})):
        assert score(text, e).utility == 0.0
        assert score(text, e).reason.startswith("breaks the schema")


def test_no_pattern_of_the_data_takes_long(data):
    """A pattern that backtracks without end would hang here."""
    for row in rows(json_mode_eval.FILE, data):
        for pattern in re.findall(r'"pattern": ("(?:[^"\\\\]|\\\\.)*")', row["schema"]):
            for hostile in ("/dev/" + "a/" * 10_000 + "\0", "0" * 10_000 + ":", "a" * 10_000 + "!"):
                re.search(json.loads(pattern), hostile)
