"""Reports as plain values."""

import json

from tests.helpers import made_reports
from unmask.report.plain import document, plain


def test_values():
    values = document(made_reports.report(made_reports.fruit()))
    first, second, third = values["tables"]["fruit"]
    assert first == {
        "name": "apple & pear",
        "eaten": 12345,
        "taste": {"value": 0.5, "low": 0.25, "high": 0.75, "undefined": 2},
        "ripe": True,
    }
    assert second["taste"] is None
    assert third["taste"]["high"] is None
    json.dumps(values, allow_nan=False)


def test_numbers_that_json_does_not_have():
    assert plain({"a": [float("nan"), (float("inf"), 1.0)], "b": "nan"}) == {"a": [None, [None, 1.0]], "b": "nan"}


def test_whole_answers(whole_report):
    values = json.loads(json.dumps(document(whole_report), allow_nan=False))
    table = values["tables"]["e4-end-to-end"]
    assert table[0]["delta"] == {"value": 0.05, "low": 0.02, "high": 0.08, "undefined": 0}
    assert table[2]["coverage"] is None
    assert table[1]["verdict"] == "not significant"


def test_diagnostics(diagnosed_report):
    values = json.loads(json.dumps(document(diagnosed_report), allow_nan=False))
    assert [answer["text"] for answer in values["answer"]] == [answer.text for answer in diagnosed_report.answers]
    never = [row for row in values["tables"]["e3-lift"] if row["task"] == "mute"]
    assert {row["verdict"] for row in never} == {"never deviates"}
    assert {row["tau"] for row in never} == {None}
    assert not [name for name in values["tables"] if name.startswith("e4")]
