"""The bench as text."""

from unmask.lab.bench import BenchFailure, BenchResult, Line, Ratio, Times
from unmask.lab.bench.lines import Found
from unmask.lab.bench.table import text

MODEL = {"name": "m", "weights": "random", "parameters": 2e6, "dtype": "bf16"}
MODEL |= {"prompt": 1, "answer": 2, "steps": 2, "block": 1}
MACHINE = {"device": "cpu", "engine": "eager", "torch": "2", "triton": None, "unmask": "1", "commit": "abc"}


def test_ratios_come_first_then_times_then_what_failed():
    lines = (Line("step", "llada", 8, "step", Times(0.0012, 0.001, 0.002, 3), {"tokens/s": 1234.5}),)
    ratios = (Ratio("step", "x", 8, 2.0, 1.5), Ratio("step", "y", 8, 2.0, 1.5, at_most=False))
    found = Found(lines, ratios, ("said once", "said once"))
    shown = text(BenchResult(MACHINE, MODEL, {}, found, (BenchFailure("study", 8, "no room"),), 3.2)).splitlines()
    rows = [" ".join(row.split()) for row in shown]
    assert rows[0] == "m: random weights, 2.0 M parameters, bf16"
    assert "step 8 x 2.00 at most 1.5: missed" in rows
    assert "step 8 y 2.00 at least 1.5" in rows
    assert "step 8 llada 1.200 1.000 to 2.000 step tokens/s 1,234" in rows
    assert rows.count("said once") == 1
    assert rows[-1] == "failed: study at B 8: no room"


def test_without_numbers_there_are_no_tables():
    shown = text(BenchResult(MACHINE, MODEL, {}, Found(), (), 0.0))
    assert "ratio of this run" not in shown
