"""Constrained JSON Fill: the record follows from the given fields and the rules."""

import json
import re
from collections.abc import Callable

import pytest

from tests.helpers.constructed import clock, many
from unmask.tasks import Example
from unmask.tasks.constructed import constrained_json


def people(given: dict) -> dict[str, int]:
    return {key: value for key, value in given.items() if key[0].isupper()}


def ranked(given: dict) -> list[str]:
    return sorted(people(given), key=lambda name: -people(given)[name])


def scaled(v: dict, m: re.Match) -> dict:
    return {key: v[key] * v["guests"] // v["serves"] for key in re.findall("flour|sugar|eggs", m[0])}


RULES: tuple[tuple[str, Callable[[dict, re.Match], dict]], ...] = (
    (r"(end|next) = (\w+) \+ (\w+)(?: minutes)?, as HH:MM", lambda v, m: {m[1]: clock(v[m[2]], v[m[3]])}),
    (
        r'room = "small" for up to (\d+) people, else "large"',
        lambda v, m: {"room": "small" if v["people"] <= int(m[1]) else "large"},
    ),
    (r'by = "van" up to (\d+) kg, else "truck"', lambda v, m: {"by": "van" if v["kg"] <= int(m[1]) else "truck"}),
    (r"(\w+) = true if (\w+) (>=|>|<) (\w+), else false", lambda v, m: {m[1]: compare(v, m[2], m[3], m[4])}),
    (r"square = true if length equals width, else false", lambda v, m: {"square": v["length"] == v["width"]}),
    (
        r"half = true if the winner has more than half of total, else false",
        lambda v, m: {"half": 2 * max(people(v).values()) > v["total"]},
    ),
    (r"(\w+) = true from (\d+) (\w+) on, else false", lambda v, m: {m[1]: v[m[3]] >= int(m[2])}),
    (r"post becomes 0 if net >= (\d+)", lambda v, m: {"post": 0 if v["net"] >= int(m[1]) else v["post"]}),
    (r"(?:flour|flour and sugar|flour, sugar and eggs) (?:is|are) multiplied by guests / serves", scaled),
    (r"grams = new flour \+ new sugar", lambda v, m: {"grams": v["flour"] + v["sugar"]}),
    (
        r"last = year in which the last monthly rate is paid .*",
        lambda v, m: {"last": v["year"] + (v["months"] - 1) // 12},
    ),
    (r"order = least - left, but never below 0", lambda v, m: {"order": max(0, v["least"] - v["left"])}),
    (
        r"missing = goal - saved, or 0 if reached",
        lambda v, m: {"missing": 0 if v["reached"] else v["goal"] - v["saved"]},
    ),
    (r"extra = hours above (\d+), or 0", lambda v, m: {"extra": max(0, v["hours"] - int(m[1]))}),
    (r"sum = all marks added", lambda v, m: {"sum": sum(v["marks"])}),
    (r"best = highest mark", lambda v, m: {"best": max(v["marks"])}),
    (r"worst = lowest mark", lambda v, m: {"worst": min(v["marks"])}),
    (
        r"max and min are the highest and the lowest of temps",
        lambda v, m: {"max": max(v["temps"]), "min": min(v["temps"])},
    ),
    (r"last = the last of temps", lambda v, m: {"last": v["temps"][-1]}),
    (r"winner = name with most votes", lambda v, m: {"winner": ranked(v)[0]}),
    (r"second = name with the second most votes", lambda v, m: {"second": ranked(v)[1]}),
    (r"total = all votes added", lambda v, m: {"total": sum(people(v).values())}),
    (
        r"lead = votes of the winner minus votes of the second",
        lambda v, m: {"lead": people(v)[ranked(v)[0]] - people(v)[ranked(v)[1]]},
    ),
    (r"name = first, a space, last", lambda v, m: {"name": f"{v['first']} {v['last']}"}),
    (
        r"login = first letter of first, then last, in lower case(, then no)?",
        lambda v, m: {"login": (v["first"][0] + v["last"]).lower() + (str(v["no"]) if m[1] else "")},
    ),
    (r"initials = the two first letters, no dots", lambda v, m: {"initials": v["first"][0] + v["last"][0]}),
    (r"mail = last in lower case, @, host, \.org", lambda v, m: {"mail": f"{v['last'].lower()}@{v['host']}.org"}),
    (r"oldest = name of the oldest person", lambda v, m: {"oldest": ranked(v)[0]}),
    (r"crew = list of the people in alphabetical order", lambda v, m: {"crew": sorted(people(v))}),
    (r"gap = highest age minus lowest age", lambda v, m: {"gap": max(people(v).values()) - min(people(v).values())}),
    (r"buyer = name with the highest bid", lambda v, m: {"buyer": ranked(v)[0]}),
    (r"price = that bid", lambda v, m: {"price": max(people(v).values())}),
    (r"bids = number of bids", lambda v, m: {"bids": len(people(v))}),
    (r"(\w+) = ([\w +*()-]+?)(?: \(may be negative\))?", lambda v, m: {m[1]: eval(m[2], {}, v)}),
)


def compare(v: dict, left: str, sign: str, right: str) -> bool:
    a, b = v[left], int(right) if right.isdigit() else v[right]
    return {">=": a >= b, ">": a > b, "<": a < b}[sign]


def fields(draft: Example) -> dict:
    """The given fields as the prompt shows them; where it tells them in prose, at least all values must occur."""
    given = draft.constraints["given"]
    written = re.search(r'(?<!as )\{".*\}', draft.prompt)
    if written:
        return json.loads(written[0])
    pairs = re.findall(r"(?:^|[;,:\n]|from) ?(\w+)(?:=| = |: )(\[[^\]]*\]|[^;,\n]+?)(?=[;,\n])", draft.prompt + "\n")
    shown = {key: json.loads(v) if re.fullmatch(r"-?\d+|\[.*\]", v) else v for key, v in pairs if key in given}
    if shown == given:
        return shown
    for value in given.values():
        for item in value if isinstance(value, list) else [value]:
            assert re.search(rf"(?<!\w){re.escape(str(item))}(?!\w)", draft.prompt), (value, draft.prompt)
    return dict(given)


def test_the_record_follows_from_the_prompt() -> None:
    shown = 0
    for draft in many(constrained_json.TASK):
        values = fields(draft)
        assert values == draft.constraints["given"]
        shown += draft.prompt.count("=") > len(draft.constraints["rules"])
        for rule in draft.constraints["rules"]:
            assert rule in draft.prompt
            for pattern, work_out in RULES:
                if match := re.fullmatch(pattern, rule):
                    values |= work_out(values, match)
                    break
            else:
                pytest.fail(f"no way to work out {rule!r}")
        gold = json.loads(draft.target)
        assert ", ".join(gold) in re.sub(r", in this order| as JSON| in one JSON object", "", draft.prompt)
        assert gold == {key: values[key] for key in gold}, draft.prompt
        assert gold == draft.constraints["object"]
        assert " " not in re.sub(r'"[^"]*"', "", draft.target)
        assert draft.parts == tuple(f"{k}={json.dumps(v, separators=(',', ':'))}" for k, v in gold.items())
    assert shown > 500


def test_conditions_come_out_both_ways() -> None:
    seen: dict[str, set[bool]] = {}
    for draft in many(constrained_json.TASK):
        for key, value in draft.constraints["object"].items():
            if isinstance(value, bool):
                seen.setdefault(f"{draft.constraints['family']}.{key}", set()).add(value)
    assert len(seen) >= 10
    assert all(len(values) == 2 for values in seen.values()), seen
