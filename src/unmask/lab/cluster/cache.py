"""Whole runs on a cluster."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from unmask.api import Request
from unmask.core import Policy, Search
from unmask.lab.cluster.pool import WorkerPool
from unmask.lab.cluster.study_work import decode_part
from unmask.lab.run.decode_cache import DecodeCache, DecodedRow
from unmask.lab.run.judging import AnswerTexts
from unmask.lab.store import ATTEMPTS
from unmask.lab.study import Study
from unmask.lab.study_models import ModelSpec


class ClusterCache(DecodeCache):
    """Decodes with workers: the batches of a policy side by side, each with the shape it has on one machine."""

    def __init__(
        self,
        pool: WorkerPool,
        study: Study,
        spec: ModelSpec,
        requests: Mapping[str, Sequence[Request]],
        heard: Callable[[int], None],
    ):
        self.texts = AnswerTexts({})
        super().__init__(None, study, requests, heard)
        self.pool, self.spec = pool, spec
        self._foreseen: list[tuple[Policy | Search, str, list[Future[Any]]]] = []

    def foresee(self, policies: Iterable[Policy | Search], role: str) -> None:
        for policy in policies:
            if self._begun(policy, role) is None:
                self._foreseen.append((policy, role, self._begin(policy, role, 1)))

    def _begun(self, policy: Policy | Search, role: str) -> "list[Future[Any]] | None":
        return next((futures for one, where, futures in self._foreseen if where == role and one == policy), None)

    def _begin(self, policy: Policy | Search, role: str, draws: int) -> "list[Future[Any]]":
        what, submit = f"decoding {policy}"[:80], self.pool.submit
        parts = self._parts(role, draws)
        return [submit(decode_part, self.spec, policy, part, what=what, deaths=ATTEMPTS) for part in parts]

    def _batches(self, policy: Policy | Search, role: str, draws: int) -> Iterator[list[DecodedRow]]:
        # Several draws are never foreseen.
        begun = self._begun(policy, role) if draws == 1 else None
        for future in self._begin(policy, role, draws) if begun is None else begun:
            self.heard(self.policies)
            rows, texts = future.result()
            self.texts.texts.update(texts.texts)
            yield rows
