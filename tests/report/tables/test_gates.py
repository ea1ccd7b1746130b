"""Tables of what depends on a choice, from results made by hand."""

from dataclasses import replace

import pytest

from tests.helpers import made_findings
from tests.helpers.made_findings import assert_estimate, rows
from unmask.lab.analysis.end_to_end import Headline
from unmask.lab.analysis.gates import DIFFERENCES, GateCell
from unmask.report.tables.gates import gates_sheet, headlines_sheet
from unmask.stats import Estimate


def gate(name, gain, **more):
    values = {
        "utility": {"selective": Estimate(0.6, 0.5, 0.7), "fixed": Estimate(0.5, 0.4, 0.6)}
        | {"random gate": Estimate(0.55, 0.4, 0.6)},
        "difference": {pair: Estimate(gain + at, gain - 1, gain + 4) for at, pair in enumerate(DIFFERENCES)},
        "coverage": 0.42,
        "prompts": 30,
        "tau": 0.02,
        "never": "",
    }
    return GateCell("small", "find", "region", "llada", name, **values | more)


@pytest.fixture
def decoded():
    found = made_findings.decoded()
    lines = (
        Headline("lift", False, True, {"find": "region", "guess": "region"}, found.means[0]),
        Headline("opportunity", True, False, {"find": "score", "guess": "region"}, found.means[1]),
    )
    shut = gate("mean", 0.0, tau=None, never="made <shut>", coverage=0.0)
    return replace(found, headlines=lines, gates=(gate("lift", 0.125), shut))


def test_a_row_for_every_gate(decoded):
    table = rows(gates_sheet(decoded))
    assert [(row["gate"], row["axis"], row["coverage"], row["never"]) for row in table] == [
        ("lift", "region", "0.42", ""),
        ("mean", "region", "0.0", "made <shut>"),
    ]
    for row, cell in zip(table, decoded.gates, strict=True):
        for key, pair in zip(("delta", "over_random_gate", "over_lift"), DIFFERENCES, strict=True):
            assert_estimate(row, key, cell.difference[pair])
        for key in ("selective", "fixed", "random_gate"):
            assert_estimate(row, key, cell.utility[key.replace("_", " ")])


def test_a_row_for_every_way_to_choose_the_axis(decoded):
    table = rows(headlines_sheet(decoded))
    assert [(row["by"], row["revision"], row["usual"], row["axes"]) for row in table] == [
        ("lift", "false", "true", "region 2"),
        ("opportunity", "true", "false", "score 1, region 1"),
    ]
    for row, one in zip(table, decoded.headlines, strict=True):
        assert_estimate(row, "delta", one.mean.difference["selective", "fixed"])
        assert row["partial"] == one.mean.partial


def test_the_page_has_them_where_there_are_any(decoded):
    assert gates_sheet(replace(decoded, gates=())).shown == ()
    assert decoded.of(extension=True).gates == decoded.of(extension=True).headlines == ()
    assert len(decoded.of(extension=False).gates) == 2
