"""What `unmask verify` found: a table, and all of it as JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from unmask.lab.verify import Target, VerifiedTask
from unmask.methods import describe_policy
from unmask.report.plain import plain
from unmask.stats import Estimate

FORMAT = "unmask-verify-1"


def screen(found: Sequence[VerifiedTask]) -> Table:
    """One line per task."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("task")
    for heading in ("right", "of", "percent", "95 % interval", "published", "forwards"):
        table.add_column(heading, justify="right")
    table.add_column("verdict", overflow="fold")
    for one in found:
        table.add_row(
            one.run.name,
            str(one.right),
            str(one.share.n),
            percent(one.share.value),
            _ends(one.share),
            "not known" if one.run.figure is None else f"{one.run.figure:g}",
            str(one.forwards),
            one.agreement.value,
        )
    return table


def remarks(found: Sequence[VerifiedTask]) -> Iterator[str]:
    """The verdicts in words, what each run is not, and what differs from the authors' evaluation."""
    for one in found:
        yield f"{one.run.name}: {one.says}"
        yield from (f"{one.run.name}: {label}" for label in one.labels)
        if one.run.source:
            yield f"{one.run.name}: the figure is from {one.run.source}"
    for text in dict.fromkeys(text for one in found for text in one.run.differs):
        yield f"differs from the authors: {text}"


def document(model: str, target: Target, found: Sequence[VerifiedTask]) -> str:
    """Everything but the answers, without times: the same run gives the same bytes."""
    body = {
        "format": FORMAT,
        "model": model,
        "settings_of": target.of.hub,
        "trial": target.trial,
        "tasks": [_entry(one) for one in found],
        "data": {path: sha256 for one in found for path, sha256 in one.files.items()},
    }
    return json.dumps(plain(body), indent=2, ensure_ascii=False, allow_nan=False)


def _entry(one: VerifiedTask) -> dict[str, Any]:
    return {
        "name": one.run.name,
        "settings": {
            "new_tokens": one.run.new_tokens,
            "steps": one.run.steps,
            "policy": describe_policy(one.run.policy),
            "temperature": one.run.proposal.temperature,
            "top_p": one.run.proposal.top_p,
            "logits_eos_inf": one.run.proposal.logits_eos_inf,
            "confidence_eos_eot_inf": one.run.proposal.confidence_eos_eot_inf,
            "shots": one.shots,
            "authors_shots": one.run.shots,
            "prompt": one.run.prompt,
        },
        "published": {"percent": one.run.figure, "source": one.run.source or None},
        "problems": one.problems,
        "chosen": one.chosen,
        "judged": one.share.n,
        "right": one.right,
        "percent": 100 * one.share.value,
        "low": 100 * one.share.low,
        "high": 100 * one.share.high,
        "forwards": one.forwards,
        "verdict": one.agreement.value,
        "says": one.says,
        "labels": one.labels,
        "differs": one.run.differs,
        "too_long": one.too_long,
        "unjudged": one.unjudged,
        "config": one.config,
    }


def percent(share: float) -> str:
    """With one decimal; empty where there is no number."""
    return "" if share != share else f"{100 * share:.1f}"


def _ends(share: Estimate) -> str:
    return f"{percent(share.low)} to {percent(share.high)}" if share.n else ""
