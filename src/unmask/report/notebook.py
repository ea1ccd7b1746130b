"""Notebook output of generations, trajectories and findings; `unmask.base.display` imports it on first use."""

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
"""Rows of a run that a cell of a notebook draws."""
_LOW, _HIGH, _PER_STEP = 440, 860, 22
"""Height of a frame in pixels: least, most, and for each step."""


# Runs


def draw_run(trajectory: Trajectory, codec: Codec | None = None) -> str:
    """Draw a run's grids in a frame that shares neither scripts nor styles with the notebook."""
    records, rows = _select_run_data(trajectory, codec), trajectory.state.batch
    if not records:
        why = "it is too large for a cell" if trajectory.steps else "no steps were recorded"
        more = ": <code>.show()</code>" if trajectory.steps else ""
        return f"<p>{html.escape(_describe_run(trajectory))}; {why}{more}</p>"
    left = f"{rows - len(records)} more: .row(N).show() of the trajectory" if len(records) < rows else ""
    steps = sum(len(record["steps"]) for record in records)
    height = min(_HIGH, _LOW + _PER_STEP * steps)
    return wrap_page(runs_page(records, left), f"{_describe_run(trajectory)}, step by step", height)


def wrap_page(page: str, title: str, height: int) -> str:
    """Return a frame around a page, which may run its scripts but neither store, submit nor open anything."""
    style = f"width:100%;height:{height}px;border:1px solid #8886;border-radius:6px"
    escaped, named = html.escape(page), html.escape(title)
    return f'<iframe title="{named}" sandbox="allow-scripts" style="{style}" srcdoc="{escaped}"></iframe>'


def make_run_table(trajectory: Trajectory, codec: Codec | None = None) -> Any:
    """Return a frame with a line for each change: the token, its confidence, the policy and other likely tokens."""
    records = _make_run_data(trajectory, codec)
    lines = [line for row, record in enumerate(records) for line in _list_changes(row, record)]
    return _import_pandas().DataFrame(lines, columns=list(CHANGE))


CHANGE = (
    *("row", "step", "position", "token", "confidence", "policy", "why"),
    *("signal", "threshold", "open", "top"),
)
"""Columns of a trajectory's table. `token` is None where a position was re-masked; `top` lists tokens with their
probabilities, as many as were recorded."""


def _list_changes(row: int, record: RunData) -> Iterator[tuple[Any, ...]]:
    for step in record["steps"]:
        acted = tuple(step[name] for name in ("policy", "why", "signal", "threshold", "open"))
        for position, token, confidence in step["changes"]:
            top = [tuple(pair) for pair in step["top"].get(str(position), ())] if token is not None else []
            yield (row, step["step"], position, token, confidence, *acted, top)


def _make_run_page(trajectory: Trajectory, codec: Codec | None = None) -> str:
    return runs_page(list(_make_run_data(trajectory, codec)))


def _select_run_data(trajectory: Trajectory, codec: Codec | None) -> list[RunData]:
    """Return the data of the first rows, as many as a cell has room for."""
    room, records = MOST_CELLS, []
    for record in islice(_make_run_data(trajectory, codec), MOST_ROWS) if trajectory.steps else ():
        room -= len(record["steps"]) * len(record["tokens"])
        if room < 0:
            break
        records.append(record)
    return records


def _make_run_data(trajectory: Trajectory, codec: Codec | None) -> Iterator[RunData]:
    spelt = codec or _find_codec(trajectory)
    return (
        run_data(trajectory, row, spelt, top=_count_alternatives(trajectory)) for row in range(trajectory.state.batch)
    )


def _count_alternatives(trajectory: Trajectory) -> int:
    """Return the largest number of alternative tokens that any step has recorded."""
    return max((step.prediction.clean.top_BNK.shape[-1] for step in trajectory.steps), default=0)


def _find_codec(trajectory: Trajectory) -> Codec:
    """Return the codec of the run's model, or one that writes token numbers where it is not on this machine."""
    return find_saved_codec(trajectory.config) or TokenNumbers(trajectory.state.mask_id)


def _describe_run(trajectory: Trajectory) -> str:
    """Name the model, the policy, the number of rows and the forwards of a run."""
    config, rows = trajectory.config or {}, trajectory.state.batch
    named = [config.get(part, {}).get("name", "") for part in ("model", "policy")]
    forwards = int(trajectory.forwards_B.sum())
    parts = [*filter(None, named), f"{rows} row{'s' * (rows > 1)}", f"{forwards} forwards"]
    return ", ".join(parts)


# Their results


def _draw_generation(done: Generation) -> str:
    """Draw the texts of a generation, its cost, and then its grids."""
    texts = "".join(f'<pre style="white-space:pre-wrap">{html.escape(text)}</pre>' for text in done.texts[:MOST_ROWS])
    more = f"<p>and {len(done.texts) - MOST_ROWS} more in .texts</p>" if len(done.texts) > MOST_ROWS else ""
    cost = f"{done.forwards} forwards, {done.tokens_per_forward:.2f} tokens per forward"
    about = html.escape(f"{done.config['model']['name']}, {done.policy.name}: {cost}")
    return f"{texts}{more}<p><small>{about}</small></p>{draw_run(done.trajectory, done.codec)}"


def _make_generation_table(done: Generation) -> Any:
    """Return a frame with a line for each row of a generation: prompt, text and cost."""
    steps = done.trajectory.state.step_B.tolist()
    lines = [
        {"prompt": asked["prompt"], "sample": asked["sample"], "text": text, "new_tokens": asked["new_tokens"]}
        for asked, text in zip(done.config["rows"], done.texts, strict=True)
    ]
    return _import_pandas().DataFrame(lines).assign(steps=steps, forwards=done.row_forwards)


# Findings


def _draw_findings(found: Findings) -> str:
    """Draw the four answers and the short tables of a study as plain HTML in the notebook's own style."""
    report = study_report(found)
    warned = "".join(f"<p><strong>{html.escape(text)}</strong></p>" for text in report.warnings)
    said = "".join(
        f"<dt><strong>{html.escape(one.question)}</strong></dt><dd>{html.escape(one.verdict)}</dd>"
        for one in report.answers
    )
    tables = "".join(map(_draw_table, report.screens))
    signs = "".join(f"<li><code>{html.escape(s)}</code> {html.escape(text)}</li>" for s, text in report.signs.items())
    more = "<p><small><code>.show()</code> opens all of it; <code>.to_pandas(NAME)</code> is a table.</small></p>"
    return f"<h3>{html.escape(report.title)}</h3>{warned}<dl>{said}</dl>{tables}<ul>{signs}</ul>{more}"


def make_findings_table(found: Findings, table: str = "opportunity") -> Any:
    """Return a table of the report by the name of its CSV file."""
    require(isinstance(table, str), "table", table, "the name of a table", "'opportunity' is one")
    tables = {one.name: one for one in study_report(found).tables}
    if table not in tables:
        raise UnknownName("table", table, tables)
    return tables[table].file_frame.infer_objects()


_ROOM = "padding:2px 8px;white-space:nowrap"


def _draw_table(table: Table) -> str:
    heads = [(column.head or "", "left" if column.align_left else "right") for column in table.visible_columns]
    head = "".join(f'<th style="text-align:{side};{_ROOM}">{html.escape(name)}</th>' for name, side in heads)
    body = "".join(f"<tr>{''.join(_draw_cells(row, [side for _, side in heads]))}</tr>" for row in table.cells)
    caption = f"<caption>{html.escape(table.title)}</caption>" if table.title else ""
    inside = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto">{inside}</div>'


def _draw_cells(row: Sequence[str], sides: Sequence[str]) -> Iterator[str]:
    for text, side in zip(row, sides, strict=True):
        yield f'<td style="text-align:{side};{_ROOM}">{html.escape(text)}</td>'


# All


@cache
def _import_pandas() -> Any:
    """Import pandas, which is an optional dependency, or say how to install it."""
    try:
        return import_module("pandas")
    except ImportError as error:
        raise ConfigError(f"to_pandas needs pandas ({error}); pip install 'unmask[lab]'") from error


def draw_cell(value: object) -> str:
    """Return a run, generation or findings as the HTML output of a notebook cell."""
    if isinstance(value, Trajectory):
        return draw_run(value)
    if isinstance(value, Generation):
        return _draw_generation(value)
    if isinstance(value, Findings):
        return _draw_findings(value)
    raise _refuse_value(value)


def write_page(value: object) -> Path:
    """Write a whole page to a new temporary file, which only its owner can read."""
    if isinstance(value, Trajectory):
        page = _make_run_page(value)
    elif isinstance(value, Generation):
        page = _make_run_page(value.trajectory, value.codec)
    elif isinstance(value, Findings):
        page = report_page(study_report(value))
    else:
        raise _refuse_value(value)
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
        return make_run_table(value)
    if isinstance(value, Generation):
        return _make_generation_table(value)
    if isinstance(value, Findings):
        return make_findings_table(value, *table)
    raise _refuse_value(value)


def _refuse_value(value: object) -> ContractError:
    return ContractError(f"nothing draws a {type(value).__name__}; allowed: runs, generations and findings; show one")
