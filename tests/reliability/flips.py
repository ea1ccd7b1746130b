"""Damage to files: single bits, ends, pieces; and JSON edited by hand."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any


def flip(path: Path, rng: random.Random) -> str:
    """Turn one bit over; returns which."""
    content = bytearray(path.read_bytes())
    at, bit = rng.randrange(len(content)), rng.randrange(8)
    content[at] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {at} of {path.name}"


def damaged(text: bytes, rng: random.Random) -> tuple[str, bytes]:
    """The bytes with something wrong about them, and what."""
    kind = rng.choice(list(DAMAGE))
    return kind, DAMAGE[kind](text, rng)


def _cut(text: bytes, rng: random.Random) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def _without(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.randint(1, 40) :]


def _twice(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text) + 1)
    end = at + rng.randint(1, 200)
    return text[:end] + text[at:end] + text[end:]


def _noise(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.randbytes(rng.randint(1, 8)) + text[at:]


def _bits(text: bytes, rng: random.Random) -> bytes:
    content = bytearray(text or b"\0")
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def _token(text: bytes, rng: random.Random) -> bytes:
    """A number or a word replaced by something that no number should be."""
    pieces = text.split(b" ")
    pieces[rng.randrange(len(pieces))] = rng.choice(TOKENS)
    return b" ".join(pieces)


TOKENS = (b"-1", b"0", b"1e999", b"NaN", b"null", b"true", b'""', b"{}", b"[]", b"99999999999999999999", b'"\\ud800"')
TOKENS += (b"-0.0", b"0x10", b"'", b'"', b"\0", b"\xff", b"\xef\xbb\xbf", b"[" * 3000, b'{"a":' * 3000, b"1_0", b"inf")
DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut off": _cut,
    "a piece missing": _without,
    "a piece twice": _twice,
    "noise inside": _noise,
    "bits flipped": _bits,
    "another value": _token,
    "empty": lambda text, rng: b"",
    "a mark of byte order": lambda text, rng: b"\xef\xbb\xbf" + text,
    "in UTF-16": lambda text, rng: text.decode("utf-8", "replace").encode("utf-16"),
    "line ends of Windows": lambda text, rng: text.replace(b"\n", b"\r\n"),
}
VALUES = (None, True, False, 0, -1, 10**30, 1e308, "", "x", "\ud800", "\0", [], {}, [[]], {"a": {}}, "../x", "x" * 5000)


def edited(value: Any, rng: random.Random) -> Any:
    """A JSON value with one entry gone, added or replaced, anywhere in it."""
    value = json.loads(json.dumps(value))
    at = value
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return value
        key = rng.choice(keys)
        deeper = isinstance(at[key], dict | list) and len(at[key]) > 0
        if deeper and rng.random() < 0.7:
            at = at[key]
            continue
        if rng.random() < 0.3:
            del at[key]
        else:
            at[key] = rng.choice(VALUES)
        return value
