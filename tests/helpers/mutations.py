"""Files spoilt at random, the same way for the same seed: flipped, cut, doubled, and JSON with other values."""

import json
import random
from typing import Any

ODD = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**70,
    "",
    "x",
    "\ud800",
    [],
    {},
    [None],
    {"a": 1},
    [[[[[]]]]],
    "a" * 5000,
    10**400,
]


def mutated(content: bytes, draw: random.Random) -> bytes:
    """The content with one thing changed; half of the changes of a JSON file keep it JSON."""
    if draw.random() < 0.5:
        try:
            return json.dumps(changed_value(json.loads(content), draw)).encode()
        except ValueError:
            pass
    return draw.choice((flipped, cut, doubled, removed, inserted))(content, draw)


def changed_value(document: Any, draw: random.Random) -> Any:
    """Somewhere inside, a value becomes another, or goes, or gets a neighbour."""
    if isinstance(document, dict | list) and document and draw.random() < 0.8:
        key = draw.choice(list(document) if isinstance(document, dict) else range(len(document)))
        if draw.random() < 0.15:
            del document[key]
        elif isinstance(document, dict) and draw.random() < 0.1:
            document[draw.choice(["x", "", key + "2"])] = draw.choice(ODD)
        else:
            document[key] = changed_value(document[key], draw)
        return document
    return draw.choice(ODD)


def flipped(content: bytes, draw: random.Random) -> bytes:
    """One bit, among the first thousand bytes half of the time: there headers are."""
    spoilt = bytearray(content or b"\0")
    spoilt[draw.randrange(min(len(spoilt), 1000) if draw.random() < 0.5 else len(spoilt))] ^= 1 << draw.randrange(8)
    return bytes(spoilt)


def cut(content: bytes, draw: random.Random) -> bytes:
    """The end is gone."""
    return content[: draw.randrange(len(content) + 1)]


def removed(content: bytes, draw: random.Random) -> bytes:
    """A piece in the middle is gone."""
    start = draw.randrange(len(content) + 1)
    return content[:start] + content[start + draw.randrange(1, 50) :]


def doubled(content: bytes, draw: random.Random) -> bytes:
    """A piece is there twice."""
    start = draw.randrange(len(content) + 1)
    end = start + draw.randrange(1, 200)
    return content[:end] + content[start:]


def inserted(content: bytes, draw: random.Random) -> bytes:
    """Bytes that were never there."""
    place = draw.randrange(len(content) + 1)
    return content[:place] + draw.randbytes(draw.randrange(1, 9)) + content[place:]
