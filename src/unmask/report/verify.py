"""What `unmask verify` found: a table for the terminal, and all of it as JSON."""

import json
from collections.abc import Sequence

from rich.table import Table

from unmask.lab.verify import Target, VerifiedRun
from unmask.methods import describe_policy
from unmask.report.table import plain

VERIFY_FORMAT = "unmask-verify-1"


def verify_table(found: Sequence[VerifiedRun]) -> Table:
    """Make the terminal's table of a verification, a line per task."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("task")
    for heading in ("right", "of", "percent", "95 % interval", "published", "forwards"):
        table.add_column(heading, justify="right")
    table.add_column("verdict", overflow="fold")
    for one in found:
        share, known = one.share, bool(one.share.n)
        table.add_row(
            one.run.name,
            str(one.right),
            str(share.n),
            f"{100 * share.value:.1f}" if known else "",
            f"{100 * share.low:.1f} to {100 * share.high:.1f}" if known else "",
            "not known" if one.run.figure is None else f"{one.run.figure:g}",
            str(one.forwards),
            one.agreement.value,
        )
    return table


def verify_remarks(found: Sequence[VerifiedRun]) -> list[str]:
    """Say the verdicts in words, what each run is not, and what differs from the authors' evaluation."""
    lines = []
    for one in found:
        lines += [f"{one.run.name}: {text}" for text in (one.conclusion, *one.labels)]
        if one.run.source:
            lines.append(f"{one.run.name}: the figure is from {one.run.source}")
    differs = dict.fromkeys(text for one in found for text in one.run.differs)
    return [*lines, *(f"differs from the authors: {text}" for text in differs)]


def verify_json(model: str, target: Target, found: Sequence[VerifiedRun]) -> str:
    """Everything but the answers, without times: the same run gives the same bytes."""
    tasks = []
    for one in found:
        run = one.run
        settings = {
            "new_tokens": run.new_tokens,
            "steps": run.steps,
            "policy": describe_policy(run.policy),
            "temperature": run.sampling.temperature,
            "top_p": run.sampling.top_p,
            "logits_eos_inf": run.sampling.logits_eos_inf,
            "confidence_eos_eot_inf": run.sampling.confidence_eos_eot_inf,
            "shots": one.prepared.shots,
            "authors_shots": run.shots,
            "prompt": run.prompt,
        }
        tasks.append(
            {
                "name": run.name,
                "settings": settings,
                "published": {"percent": run.figure, "source": run.source or None},
                "problems": one.prepared.problems,
                "chosen": len(one.prepared.chosen),
                "judged": one.share.n,
                "right": one.right,
                "percent": 100 * one.share.value,
                "low": 100 * one.share.low,
                "high": 100 * one.share.high,
                "forwards": one.forwards,
                "verdict": one.agreement.value,
                "says": one.conclusion,
                "labels": one.labels,
                "differs": run.differs,
                "too_long": one.too_long,
                "unjudged": one.unjudged,
                "config": one.config,
            }
        )
    body = {
        "format": VERIFY_FORMAT,
        "model": model,
        "settings_of": target.of.hub,
        "trial": target.trial,
        "tasks": tasks,
        "data": {path: sha256 for one in found for path, sha256 in one.prepared.files.items()},
    }
    return json.dumps(plain(body), indent=2, ensure_ascii=False, allow_nan=False)
