"""Random choices that are the same on every machine and every version of Python, and the hashes that key them.

`random` promises stable `random()` values but not stable `choice`, `sample` or `shuffle`; a split that has been
published must never move. So the bits are BLAKE2b in counter mode, and every method below is spelled out here.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import TypeAlias, TypeVar

from unmask.base.errors import require

T = TypeVar("T")
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_EIGHT_WORDS = Struct("<8Q")  # one digest
_PERSON = b"unmask-draw"
_UNIT = 1 << 53  # chances are resolved to 2**-53, the spacing of floats below one


def canonical_json(value: Json) -> str:
    """Write a JSON value in the only form that is hashed: keys sorted, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def digest(*parts: str) -> bytes:
    """Return the SHA-256 of a list of texts; ("ab", "c") and ("a", "bc") have different ones."""
    return hashlib.sha256(canonical_json(list(parts)).encode("ascii")).digest()


class Draw:
    """A stream of random choices that depends on its key alone, not on the machine or the version of Python."""

    def __init__(self, key: bytes):
        # Hashed first, because BLAKE2b takes keys of at most 64 bytes.
        self._key = hashlib.blake2b(key, digest_size=32, person=_PERSON).digest()
        self._counter = 0
        self._unread_words: list[int] = []

    def bits(self, n: int) -> int:
        """Draw a whole number of n random bits."""
        require(n >= 0, "number of bits", n, "0 or more", "ask for a size that is not negative")
        if n <= 64:
            return self._next_word() >> (64 - n) if n else 0
        value = 0
        for _ in range((n + 63) // 64):
            # Whole words first and the surplus cut off below: this order of bits is part of every prompt.
            value = value << 64 | self._next_word()
        return value >> (-n % 64)

    def index(self, n: int) -> int:
        """Draw a whole number from 0 to n - 1, each equally likely."""
        if n < 2:
            require(n == 1, "upper bound", n, "1 or more", "draw from something that is not empty")
            return 0
        size = (n - 1).bit_length()
        if size > 64:
            while (value := self.bits(size)) >= n:
                pass
            return value
        # The usual case, spelled out: every choice of every prompt comes through here. Numbers from n on
        # are drawn again, because reducing them modulo n would favour small ones.
        spare = 64 - size
        while (value := self._next_word() >> spare) >= n:
            pass
        return value

    def integer(self, low: int, high: int) -> int:
        """Draw a whole number from low to high, both included."""
        require(low <= high, "range", (low, high), "low <= high", "swap the two ends")
        return low + self.index(high - low + 1)

    def chance(self, p: float) -> bool:
        """Return True with probability p."""
        require(0 <= p <= 1, "probability", p, "0 to 1", "give a share, not a percentage")
        return self.index(_UNIT) < p * _UNIT

    def choice(self, items: Sequence[T]) -> T:
        """Draw one of the items."""
        return items[self.index(len(items))]

    def sample(self, items: Sequence[T], k: int) -> list[T]:
        """Draw k items from different positions, in random order."""
        require(0 <= k <= len(items), "sample size", k, f"0 to {len(items)}", "ask for fewer items")
        # A partial Fisher-Yates shuffle that stores only the places it moved.
        moved: dict[int, int] = {}
        taken = []
        for i in range(k):
            j = self.integer(i, len(items) - 1)
            taken.append(items[moved.get(j, j)])
            moved[j] = moved.get(i, i)
        return taken

    def permute(self, items: Sequence[T]) -> list[T]:
        """Return all items in random order; the given sequence stays as it is."""
        return self.sample(items, len(items))

    def _next_word(self) -> int:
        if not self._unread_words:
            block = hashlib.blake2b(self._counter.to_bytes(8, "little"), key=self._key).digest()
            self._counter += 1
            self._unread_words.extend(reversed(_EIGHT_WORDS.unpack(block)))
        return self._unread_words.pop()
