"""A study of version 0.7.0 gives the CSV files of version 0.7.0: every column and number but for what was mended."""

import pytest

from tests.golden_compare import close
from tests.helpers.stored_study import StoredStudy, parse_csv, stored_csv
from unmask.lab.analysis import analyse
from unmask.report.study import study_report

STORED = stored_csv()
NEW = {"headlines.csv"}
ENDS = ("low", "high", "undefined")
SAME_WORDS = {"lift": "better", "loss": "worse", "no significant lift": "not significant"}
"""Words of 0.7.0 for conclusions about single steps."""


@pytest.fixture(scope="module")
def made():
    """The CSV files that today's code makes of the stored tables."""
    tables = study_report(analyse(StoredStudy())).tables
    return {f"{table.name}.csv": parse_csv(table.to_csv()) for table in tables}


def test_the_same_files(made):
    assert set(made) == set(STORED) | NEW


@pytest.mark.parametrize("name", STORED)
def test_columns_and_numbers(made, name):
    (heads, rows), (old_heads, old_rows) = made[name], STORED[name]
    if name == "methods.csv":
        # 0.7.0 wrote the intervals of four utilities without heads for them.
        lacking = {f"{arm}_{end}" for arm in ("reference", "fixed", "stage", "oracle") for end in ENDS}
        assert [head for head in heads if head not in lacking] == old_heads
        old_heads = heads
    if name == "cost.csv":
        at = old_heads.index("settled")
        assert {row[at] for row in old_rows} == {"0"}
        old_heads, *old_rows = (row[:at] + row[at + 1 :] for row in (old_heads, *old_rows))
    assert heads == old_heads
    assert len(rows) == len(old_rows)
    for row, (new, old) in enumerate(zip(rows, old_rows, strict=True)):
        for head, one, other in zip(heads, new, old, strict=True):
            same = agrees(one, other) if head.endswith("verdict") else equal(one, other)
            assert same, f"{head} of row {row}: {other} -> {one}"


def equal(new, old):
    """Texts and whole numbers are equal, floats within the tolerance of the golden dump."""
    if new == old:
        return True
    try:
        return "." in old and close(float(new), float(old))
    except ValueError:
        return False


def agrees(new, old):
    """0.7.0 had other rules in some tables: they knew neither shut gates nor few prompts."""
    old = SAME_WORDS.get(old, old)
    return new in (old, f"hint of {old}: too few prompts", old.removesuffix(" differ")) or (
        (new, old) == ("never deviates", "not significant")
    )


def test_one_number_has_one_verdict(made):
    """The same difference of the same setting reads the same in every table."""
    heads, rows = made["e4-axes.csv"]
    axes = {tuple(row[:3]): row[heads.index("verdict")] for row in rows}
    heads, rows = made["e4-gates.csv"]
    usual = [row for row in rows if row[heads.index("gate")] == "lift"]
    gates = {tuple(row[:3]): row[heads.index("delta_verdict")] for row in usual}
    both = set(axes) & set(gates)
    assert len(both) > 10
    assert {key: axes[key] for key in both} == {key: gates[key] for key in both}
