"""Constrained JSON Fill: a record whose fields constrain each other.

The prompt gives some fields, the rules and the keys; the answer is the whole object. Each family of records returns
what is given and what follows from it; the level decides how many rules are in force.
"""

import json
from collections.abc import Callable

from unmask.tasks import scorers
from unmask.tasks.constructed.common import check_level
from unmask.tasks.constructed.constrained_json import daily, outings, trade
from unmask.tasks.constructed.constrained_json.record import JsonRecord, Object
from unmask.tasks.draw import Draw, Json
from unmask.tasks.splits import constructed
from unmask.tasks.task import Example, Scorer
from unmask.tasks.words import closing

LIMIT = 150
"""Characters of the answer, so that it fits the horizon in a small vocabulary."""

FAMILIES: dict[str, Callable[[Draw, int], JsonRecord]] = {
    "schedule": outings.schedule,
    "travel": outings.travel,
    "invoice": trade.invoice,
    "recipe": daily.recipe,
    "loan": trade.loan,
    "stock": trade.stock,
    "league": outings.league,
    "shipment": trade.shipment,
    "exam": daily.exam,
    "weather": daily.weather,
    "wages": trade.wages,
    "tickets": outings.tickets,
    "floor": daily.floor,
    "library": daily.library,
    "savings": trade.savings,
    "election": outings.election,
    "account": daily.account,
    "crew": daily.crew,
    "trip": outings.trip,
    "auction": trade.auction,
}

_FRAMES = (
    "Input: {given}\nRules: {rules}\nOutput a JSON object with the keys {keys}.",
    "{given}\nComplete the record so that {rules}. Keys: {keys}.",
    "Fill a JSON object with the keys {keys}.\nGiven: {given}\nIt must hold that {rules}.",
    "Data: {given}\nConstraints: {rules}\nWrite the whole record as JSON with {keys}, in this order.",
    "Make one JSON object. Keys: {keys}\nKnown: {given}\nConditions: {rules}",
    "{given}\nFields to return: {keys}\nHow they depend on each other: {rules}",
    "A form was filled in halfway: {given}\nThe rest follows: {rules}\nReturn {keys} as JSON.",
    "Build the JSON record with {keys} from\n{given}\nwhere {rules}.",
    "Record ({family}): {given}\nSchema keys: {keys}\nRule: {rules}",
    "Known facts: {given}\nDerive the rest: {rules}\nGive every one of the keys {keys} in one JSON object.",
    "Convert to JSON ({keys}).\n{given}\nRemember: {rules}.",
    "The {family} table needs one more row with {keys}.\nRow data: {given}\nChecks: {rules}",
)

_WHAT = (
    "the JSON object on one line",
    "the complete JSON object",
    "only the JSON object",
    "the object as compact JSON",
    "one JSON object",
)


def compact(value: Json) -> str:
    """JSON without spaces, keys in the order of the prompt."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _given(draw: Draw, record: JsonRecord) -> str:
    """The given fields: as assignments, as lines, as JSON, or as prose."""
    pairs = [(key, _shown(value)) for key, value in record.given.items()]
    style = draw.below(6)
    if style == 0:
        return "; ".join(f"{key}={value}" for key, value in pairs)
    if style == 1:
        return ", ".join(f"{key}: {value}" for key, value in draw.shuffled(pairs))
    if style == 2:
        return "\n" + "\n".join(f"{key} = {value}" for key, value in pairs)
    if style == 3:
        return compact(dict(record.given))
    return record.prose


def generate(draw: Draw, level: int) -> Example:
    """One example of the given level."""
    check_level(level)
    family = draw.choice(list(FAMILIES))
    record = FAMILIES[family](draw, level)
    while len(compact(record.gold)) > LIMIT:
        record = FAMILIES[family](draw, level)
    at = draw.below(len(_FRAMES))
    task = _FRAMES[at].format(
        given=_given(draw, record), rules="; ".join(record.rules), keys=", ".join(record.gold), family=family
    )
    task = task.replace(": \n", ":\n").replace("\n\n", "\n").replace("..", ".").strip()
    prompt = f"{task}\n{closing(draw, draw.choice(_WHAT))}"
    parts = tuple(f"{key}={compact(value)}" for key, value in record.gold.items())
    constraints: Object = {
        "family": family,
        "frame": str(at),
        "rules": list(record.rules),
        "given": dict(record.given),
        "object": dict(record.gold),
    }
    return Example(prompt, compact(record.gold), parts, constraints, level)


SCORER = Scorer("partial", scorers.score_object)
TASK = constructed(
    "constrained-json-fill",
    "Constrained JSON Fill",
    SCORER,
    generate,
    max_new_tokens=96,
    output="constrained JSON",
    version="1",
)
