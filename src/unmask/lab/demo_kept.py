"""The demonstration's comparison on disk: made once, and kept for as long as the same code would make the same."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unmask.base.environment import code_fingerprint, hash_source
from unmask.base.files import atomic_write
from unmask.base.json_files import HashMismatch, from_hashed_json, to_hashed_json
from unmask.lab import demo
from unmask.lab.demo import Contender, DemoComparison, DemoProblem, DemoRow, Reveal, demo_config, run_demo

FORMAT = "unmask-demo-1"


def kept_demo(
    path: Path,
    problems: Sequence[DemoProblem],
    contenders: Sequence[Contender],
    *,
    seeds: int,
    on_done: Callable[[DemoProblem, str], None] | None = None,
) -> DemoComparison:
    """What is in the file if this code and these settings wrote it; otherwise it is computed, and written."""
    config = demo_config(problems, contenders, seeds)
    kept = _read(path)
    if kept is not None and kept.config == config:
        return kept
    comparison = run_demo(problems, contenders, seeds=seeds, on_done=on_done)
    with atomic_write(path) as partial:
        partial.write_text(to_hashed_json(FORMAT, _body(comparison)), encoding="utf-8")
    return comparison


def _read(path: Path) -> DemoComparison | None:
    """None where there is nothing, nothing whole, or something that other code made."""
    try:
        text = path.read_bytes().decode()
        return from_hashed_json(FORMAT, text, _comparison, kind="comparison", to_body=_body)
    except (FileNotFoundError, HashMismatch, UnicodeDecodeError):
        return None


def _body(comparison: DemoComparison) -> dict[str, Any]:
    return {
        "code": [code_fingerprint(), hash_source(Path(demo.__file__))],
        "example": comparison.example,
        "rows": [asdict(row) for row in comparison.rows],
        "reveals": [
            {**asdict(reveal), "step": list(reveal.step), "remasked": list(reveal.remasked)}
            for reveal in comparison.reveals
        ],
        "config": comparison.config,
    }


def _comparison(body: dict[str, Any]) -> DemoComparison:
    """Of other code, the body that it would write now differs, and it is refused."""
    return DemoComparison(
        rows=tuple(DemoRow(**row) for row in body["rows"]),
        example=body["example"],
        reveals=tuple(
            Reveal(**{**reveal, "step": tuple(reveal["step"]), "remasked": tuple(reveal["remasked"])})
            for reveal in body["reveals"]
        ),
        config=body["config"],
    )
