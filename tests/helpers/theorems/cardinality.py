"""Whether a position should be revealed one round earlier: `thm:cardinality_regime`."""

from collections.abc import Collection, Mapping
from typing import Protocol

Variables = Collection[int]
Evidence = Mapping[int, int]


class Informed(Protocol):
    """Anything that knows conditional mutual information, such as an enumerable joint."""

    def mutual_information(self, left: Variables, right: Variables, given: Variables, evidence: Evidence) -> float: ...


def context_balance(source: Informed, x: int, batch: Variables, next_batch: Variables, evidence: Evidence) -> float:
    """Loss saved by revealing x with `batch` instead of with `next_batch`: L(S-) - L(S+).

    Positive when the context that x gives to the next batch exceeds what x gains by waiting for this one.
    `eq:cardinality_context_balance`
    """
    provided = sum(source.mutual_information((j,), (x,), batch, evidence) for j in next_batch)
    forgone = source.mutual_information((x,), batch, (), evidence)
    return provided - forgone
