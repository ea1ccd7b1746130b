"""What a notebook shows of generations, trajectories and findings; imported by `unmask.base.display` on first use."""

import html
import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from unmask.api import Generation, find_saved_codec
from unmask.base.errors import ConfigError, ContractError, StorageError, UnknownName, require
from unmask.core import Trajectory
from unmask.lab.analysis import Findings
from unmask.models import Codec
from unmask.report.pages import runs_page
from unmask.report.run_data import RunData, TokenNumbers, run_data
from unmask.report.study import page as report_page
from unmask.report.study import study_report
from unmask.report.table import Table

MOST_CELLS = 16_384
"""Steps times positions that a cell of a notebook draws; `show` draws all."""
MOST_ROWS = 4
"""Rows that it draws."""
_LOW, _HIGH, _PER_STEP = 440, 860, 22
"""Pixels of a frame: least, most, and what a step takes."""


# Runs


def run_cell(trajectory: Trajectory, codec: Codec | None = None) -> str:
    """A frame with the grids: its scripts and styles cannot touch the notebook, nor the notebook's touch them."""
    records, rows = _some_records(trajectory, codec), trajectory.state.batch
    if not records:
        why = "it is too large for a cell" if trajectory.steps else "no steps were recorded"
        return f"<p>{html.escape(_said(trajectory))}; {why}{': <code>.show()</code>' if trajectory.steps else ''}</p>"
    left = f"{rows - len(records)} more: .row(N).show() of the trajectory" if len(records) < rows else ""
    steps = sum(len(record["steps"]) for record in records)
    height = min(_HIGH, _LOW + _PER_STEP * steps)
    return framed(runs_page(records, left), f"{_said(trajectory)}, step by step", height)


def framed(page: str, title: str, height: int) -> str:
    """A page inside a page. It may run its scripts and nothing else: no storage, no forms, no way out."""
    style = f"width:100%;height:{height}px;border:1px solid #8886;border-radius:6px"
    escaped, named = html.escape(page), html.escape(title)
    return f'<iframe title="{named}" sandbox="allow-scripts" style="{style}" srcdoc="{escaped}"></iframe>'


def run_table(trajectory: Trajectory, codec: Codec | None = None) -> Any:
    """A line for each change of a position: what it became, how sure the model was, who acted, what else was likely."""
    records = _records(trajectory, codec)
    lines = [line for row, record in enumerate(records) for line in _changes(row, record)]
    return _pandas().DataFrame(lines, columns=list(CHANGE))


CHANGE = (
    *("row", "step", "position", "token", "confidence", "policy", "why"),
    *("signal", "threshold", "open", "top"),
)
"""Columns of a trajectory's table. `token` is None where a position was re-masked; `top` lists tokens with their
probabilities, as many as were recorded."""


def _changes(row: int, record: RunData) -> Iterator[tuple[Any, ...]]:
    for step in record["steps"]:
        acted = tuple(step[name] for name in ("policy", "why", "signal", "threshold", "open"))
        for position, token, confidence in step["changes"]:
            top = [tuple(pair) for pair in step["top"].get(str(position), ())] if token is not None else []
            yield (row, step["step"], position, token, confidence, *acted, top)


def _run_page(trajectory: Trajectory, codec: Codec | None = None) -> str:
    return runs_page(list(_records(trajectory, codec)))


def _some_records(trajectory: Trajectory, codec: Codec | None) -> list[RunData]:
    """As many as a cell has room for."""
    room, records = MOST_CELLS, []
    for record in islice(_records(trajectory, codec), MOST_ROWS) if trajectory.steps else ():
        room -= len(record["steps"]) * len(record["tokens"])
        if room < 0:
            break
        records.append(record)
    return records


def _records(trajectory: Trajectory, codec: Codec | None) -> Iterator[RunData]:
    spelt = codec or _codec(trajectory)
    return (run_data(trajectory, row, spelt, top=_kept(trajectory)) for row in range(trajectory.state.batch))


def _kept(trajectory: Trajectory) -> int:
    """Alternatives of the widest step."""
    return max((step.prediction.clean.top_BNK.shape[-1] for step in trajectory.steps), default=0)


def _codec(trajectory: Trajectory) -> Codec:
    """The tokenizer of the run's model; tokens are numbers where it is not on this machine."""
    return find_saved_codec(trajectory.config) or TokenNumbers(trajectory.state.mask_id)


def _said(trajectory: Trajectory) -> str:
    """Who decoded what at which price, in a few words."""
    config, rows = trajectory.config or {}, trajectory.state.batch
    named = [config.get(part, {}).get("name", "") for part in ("model", "policy")]
    forwards = int(trajectory.forwards_B.sum())
    parts = [*filter(None, named), f"{rows} row{'s' * (rows > 1)}", f"{forwards} forwards"]
    return ", ".join(parts)


# Their results


def _generation_cell(done: Generation) -> str:
    """The texts, which any viewer of notebooks shows, then the grids."""
    texts = "".join(f'<pre style="white-space:pre-wrap">{html.escape(text)}</pre>' for text in done.texts[:MOST_ROWS])
    more = f"<p>and {len(done.texts) - MOST_ROWS} more in .texts</p>" if len(done.texts) > MOST_ROWS else ""
    cost = f"{done.forwards} forwards, {done.tokens_per_forward:.2f} tokens per forward"
    about = html.escape(f"{done.config['model']['name']}, {done.policy.name}: {cost}")
    return f"{texts}{more}<p><small>{about}</small></p>{run_cell(done.trajectory, done.codec)}"


def _generation_table(done: Generation) -> Any:
    """A line for each row: prompt, text and cost."""
    steps = done.trajectory.state.step_B.tolist()
    lines = [
        {"prompt": asked["prompt"], "sample": asked["sample"], "text": text, "new_tokens": asked["new_tokens"]}
        for asked, text in zip(done.config["rows"], done.texts, strict=True)
    ]
    return _pandas().DataFrame(lines).assign(steps=steps, forwards=done.row_forwards)


# Findings


def _findings_cell(found: Findings) -> str:
    """The four answers and the short tables, as plain HTML in the notebook's own style."""
    report = study_report(found)
    warned = "".join(f"<p><strong>{html.escape(text)}</strong></p>" for text in report.warnings)
    said = "".join(
        f"<dt><strong>{html.escape(one.question)}</strong></dt><dd>{html.escape(one.verdict)}</dd>"
        for one in report.answers
    )
    tables = "".join(map(_table, report.screens))
    signs = "".join(f"<li><code>{html.escape(s)}</code> {html.escape(text)}</li>" for s, text in report.signs.items())
    more = "<p><small><code>.show()</code> opens all of it; <code>.to_pandas(NAME)</code> is a table.</small></p>"
    return f"<h3>{html.escape(report.title)}</h3>{warned}<dl>{said}</dl>{tables}<ul>{signs}</ul>{more}"


def findings_table(found: Findings, table: str = "opportunity") -> Any:
    """A table of the report by its name, as in its CSV files."""
    require(isinstance(table, str), "table", table, "the name of a table", "'opportunity' is one")
    tables = {one.name: one for one in study_report(found).tables}
    if table not in tables:
        raise UnknownName("table", table, tables)
    return tables[table].file_frame.infer_objects()


_ROOM = "padding:2px 8px;white-space:nowrap"


def _table(table: Table) -> str:
    heads = [(column.head or "", "left" if column.align_left else "right") for column in table.shown]
    head = "".join(f'<th style="text-align:{side};{_ROOM}">{html.escape(name)}</th>' for name, side in heads)
    body = "".join(f"<tr>{''.join(_cells(row, [side for _, side in heads]))}</tr>" for row in table.cells)
    caption = f"<caption>{html.escape(table.title)}</caption>" if table.title else ""
    inside = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto">{inside}</div>'


def _cells(row: Sequence[str], sides: Sequence[str]) -> Iterator[str]:
    for text, side in zip(row, sides, strict=True):
        yield f'<td style="text-align:{side};{_ROOM}">{html.escape(text)}</td>'


# All


@cache
def _pandas() -> Any:
    """An extra: nobody needs it who makes no tables of it."""
    try:
        return import_module("pandas")
    except ImportError as error:
        raise ConfigError(f"to_pandas needs pandas ({error}); pip install 'unmask[lab]'") from error


def draw_cell(value: object) -> str:
    """Return HTML that stands alone among other outputs of a notebook."""
    if isinstance(value, Trajectory):
        return run_cell(value)
    if isinstance(value, Generation):
        return _generation_cell(value)
    if isinstance(value, Findings):
        return _findings_cell(value)
    raise _not_drawn(value)


def write_page(value: object) -> Path:
    """Write a whole page to a new temporary file, which only its owner can read."""
    if isinstance(value, Trajectory):
        page = _run_page(value)
    elif isinstance(value, Generation):
        page = _run_page(value.trajectory, value.codec)
    elif isinstance(value, Findings):
        page = report_page(study_report(value))
    else:
        raise _not_drawn(value)
    try:
        handle, name = tempfile.mkstemp(prefix="unmask-", suffix=".html")
        with os.fdopen(handle, "wb") as file:
            file.write(page.encode("utf-8"))
    except OSError as error:
        place = tempfile.gettempdir()
        raise StorageError(f"no page can be written to {place!r} ({error.strerror}); set TMPDIR to a place") from error
    return Path(name)


def make_frame(value: object, *table: str) -> Any:
    """Return a `pandas.DataFrame`; findings have several, each under the name of its CSV file."""
    if isinstance(value, Trajectory):
        return run_table(value)
    if isinstance(value, Generation):
        return _generation_table(value)
    if isinstance(value, Findings):
        return findings_table(value, *table)
    raise _not_drawn(value)


def _not_drawn(value: object) -> ContractError:
    return ContractError(f"nothing draws a {type(value).__name__}; allowed: runs, generations and findings; show one")
