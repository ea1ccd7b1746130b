"""Counter-based random numbers: a number depends on where it is used, never on what was drawn before.

The counter is (row key, step, position on the unpadded canvas, purpose[, vocabulary entry]), and the row key is a hash
of (seed, prompt, stream). So the numbers of a row do not depend on its neighbours, on padding, on the order of work, or
on the policy that asks: two candidate actions at one state get the same numbers.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

import torch
from torch import Tensor

from unmask.base.errors import ContractError
from unmask.core.batch import BatchValue

# SplitMix64's constants. They and the order of fields may never change: all recorded runs depend on them.
_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64, SplitMix64's increment
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def row_key(seed: int, prompt: bytes | str | int, stream: int = 0) -> int:
    """Hash seed, prompt and stream to the signed 64-bit key of one row."""
    # Not a sum: seeds that differ by one must not give neighbouring keys.
    raw = prompt if isinstance(prompt, bytes) else repr(prompt).encode()
    digest = hashlib.blake2b(raw, digest_size=8, key=f"{seed}/{stream}".encode()).digest()
    return int.from_bytes(digest, "little", signed=True)


@lru_cache(maxsize=256)
def _purpose_id(purpose: str) -> int:
    return int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little", signed=True)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift to the right and fill with zeros; torch's own operator copies the sign bit of an int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _hash_field(h: Tensor, field: Tensor | int) -> Tensor:
    """Hash one more field of the counter: one step of SplitMix64, with products that wrap around in int64."""
    x = (h ^ field) + _GOLDEN
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


def _bits_to_uniform(bits: Tensor) -> Tensor:
    """Turn 52 random bits into a float64 strictly between 0 and 1, so that its logarithm is finite."""
    # With 53 bits the largest number would round to 1.
    return (_shift_right(bits, 12).double() + 0.5) * 2.0**-52


def uniform_per_token(bits_R: Tensor, vocab: int) -> Tensor:
    """Return one float64 in (0, 1) for each hashed counter and vocabulary entry."""
    return _bits_to_uniform(_hash_field(bits_R[:, None], torch.arange(vocab, device=bits_R.device)))


@dataclass(frozen=True, repr=False)
class Noise(BatchValue):
    """The random numbers of B rows."""

    key_B: Tensor

    @classmethod
    def of(cls, keys: list[int], device: torch.device | str = "cpu") -> "Noise":
        """Create the noise of rows with these keys (see `row_key`)."""
        return cls(torch.tensor(keys, dtype=torch.long, device=device))

    def uniform(self, step_B: Tensor, position_BN: Tensor, purpose: str) -> Tensor:
        """Return one float64 in (0, 1) for each position."""
        return _bits_to_uniform(self._counters(step_B[:, None], position_BN, purpose, self.key_B[:, None]))

    def uniform_packed(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, purpose: str) -> Tensor:
        """Return the numbers of `uniform` for packed positions; `row_R` has the batch row of each."""
        return _bits_to_uniform(self.bits(step_R, position_R, row_R, purpose))

    def uniform_vocab(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, vocab: int, purpose: str) -> Tensor:
        """Return one float64 in (0, 1) for each packed position and vocabulary entry."""
        return uniform_per_token(self.bits(step_R, position_R, row_R, purpose), vocab)

    def bits(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, purpose: str) -> Tensor:
        """Return the hashed counters from which `uniform_packed` and `uniform_vocab` compute their numbers."""
        return self._counters(step_R, position_R, purpose, self.key_B[row_R])

    def derive(self, name: str) -> "Noise":
        """Return independent noise for the same rows, for example for another attempt at them."""
        # A new key, so that none of its counters can equal a counter of this noise.
        return Noise(_hash_field(self.key_B, _purpose_id(name)))

    def _counters(self, step: Tensor, position: Tensor, purpose: str, key: Tensor) -> Tensor:
        return _hash_field(_hash_field(_hash_field(key, step), position), _purpose_id(purpose))


@dataclass(frozen=True, repr=False)
class ForbiddenNoise(Noise):
    """Noise of a method that does not declare `random = True`: every draw raises `ContractError`.

    Rollouts of such a method are decoded once and shared, so a draw would make results wrong without a sign.
    """

    # Every number is computed from counters, so `_counters` and `derive` are the only ways to get one.
    def _counters(self, step: Tensor, position: Tensor, purpose: str, key: Tensor) -> NoReturn:
        raise ContractError(
            f"a policy drew random numbers ({purpose!r}) without saying so; allowed: `random` is True for policies "
            "that draw; set it in the class"
        )

    def derive(self, name: str) -> NoReturn:
        self._counters(self.key_B, self.key_B, name, self.key_B)
