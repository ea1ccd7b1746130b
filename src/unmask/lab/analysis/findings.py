"""All that a study's tables say, worked out once: opportunity, detection, and whole answers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from unmask.base.display import Displayable, import_drawing
from unmask.lab.analysis.detection import DetectionFindings, detect
from unmask.lab.analysis.end_to_end import EndToEndFindings, end_to_end
from unmask.lab.analysis.learned import LearnedFindings, learn
from unmask.lab.analysis.methods import MethodsFindings, methods
from unmask.lab.analysis.opportunity import OpportunityFindings, measure
from unmask.lab.store import Shard, Store
from unmask.stats import RESAMPLES
from unmask.stats.measures import DRAWS


@dataclass(frozen=True)
class Findings(Displayable):
    """What a study found."""

    opportunity: OpportunityFindings
    detection: DetectionFindings | None = None
    """None where the study has no readings."""
    end_to_end: EndToEndFindings | None = None
    """None where it decoded nothing end to end."""
    methods: MethodsFindings | None = None
    """None where whole methods are no candidates of the study."""
    learned: LearnedFindings | None = None
    """None where the study does not ask for a learned detector."""

    def to_pandas(self, table: str = "opportunity") -> Any:
        """One of the report's tables, by the name of its file, as a `pandas.DataFrame`."""
        return import_drawing().make_frame(self, table)


def findings(store: Store, *, resamples: int = RESAMPLES, draws: int = DRAWS) -> Findings:
    """E1 always; E2 and E3 where the study has readings; E4 where it decoded its arms; methods where it tries them."""
    once = _ReadOnce(store.folder)
    opportunity = measure(once, resamples=resamples)
    detection = detect(once, opportunity, draws=draws)
    decoded = None if detection is None else end_to_end(once, opportunity, detection)
    learned = None if detection is None else learn(once, detection, resamples=resamples)
    return Findings(opportunity, detection, decoded, methods(once, opportunity), learned)


class _ReadOnce(Store):
    """A store that reads each of its tables once: E1, its hashes, E2 and E3 all ask for the same ones."""

    def __init__(self, folder: str | Path):
        super().__init__(folder)
        self._tables: dict[str, pa.Table] = {}

    def read_arrow(
        self, name: str, columns: Sequence[str] | None = None, *, shards: Collection[Shard] | None = None
    ) -> pa.Table:
        """With all columns, whatever is asked for: somebody else will ask for the others."""
        if name not in self._tables:
            self._tables[name] = super().read_arrow(name)
        return self._tables[name]
