"""The tables of E1, from stores made by hand."""

import numpy as np
import pytest

from tests.helpers import made_findings
from tests.helpers.made_findings import rows
from unmask.report.formats import NONE
from unmask.report.tables import opportunity
from unmask.report.tables.shared import LEGEND, PARTIAL, UNRELIABLE
from unmask.stats.measures import opportunity_measures, opportunity_states
from unmask.stats.protocol import choose_fixed


def by_cell(sheet):
    return {(row["task"], row["axis"]): row for row in rows(sheet)}


def test_csv_has_the_numbers_of_the_statistics(known, known_store):
    """All digits, intervals included."""
    table = rows(opportunity.opportunity_sheet(known.opportunity))
    assert len(table) == 6
    for row in table:
        q = {
            role: known_store.utilities("small", row["task"], role, row["axis"])
            for role in ("validation", "evaluation")
        }
        chosen = choose_fixed(q["validation"].utility_SAR, reference=0)
        shown = q["evaluation"]
        states = opportunity_states(
            shown.utility_SAR, shown.prompt_S, np.ones(len(shown.prompt_S)), chosen, reference=0
        )
        wanted = opportunity_measures({row["task"]: states}, seed=5)
        assert row["fixed"] == q["evaluation"].candidates[chosen.action]
        for key in ("delta", "positive_rate", "frequency", "margin"):
            made_findings.assert_estimate(row, key, wanted[key])
        assert (int(row["prompts"]), int(row["states"])) == (wanted.prompts, wanted.states)
        assert row["unreliable"] == wanted.unreliable


def test_reversals_name_their_actions(known):
    by_key = by_cell(opportunity.reversal_sheet(known.opportunity))
    score, commitment = by_key["fill", "score"], by_key["fill", "commitment"]
    assert score["pair"] == score["pairwise_pair"] == "confidence ⇄ margin"
    assert float(score["bidirectional"]) == float(score["pairwise"]) == pytest.approx(0.125)
    assert commitment["pair"] == commitment["pairwise"] == ""
    # block:8 wins everywhere: much to gain over full, but nothing that full wins back.
    assert float(by_key["fill", "region"]["bidirectional"]) == 0
    assert float(by_key["fill", "region"]["pairwise"]) == pytest.approx(0.7)
    assert len(rows(opportunity.pairs_sheet(known.opportunity))) == 6


def test_concentration(known):
    sheet = opportunity.concentration_sheet(known.opportunity)
    tops = [by_cell(sheet)["fill", "score"][f"top_{c}"] for c in (5, 10, 20, 50, 100)]
    assert [float(x) for x in tops] == pytest.approx([0.2, 0.4, 0.8, 1, 1])
    assert by_cell(sheet)["sort", "score"]["top_10"] == ""
    assert sheet.shown[-1][4] == NONE


def test_brackets_only_where_rollouts_differ(tmp_path):
    brackets = by_cell(opportunity.audit_sheet(made_findings.noisy(tmp_path).opportunity))
    assert float(brackets["fill", "score"]["bracket_high"]) == pytest.approx(0.2)
    assert brackets["fill", "region"]["bracket_high"] == ""


def test_stages(known):
    table = [row for row in rows(opportunity.stages_sheet(known.opportunity)) if row["axis"] == "score"]
    assert [row["stage"] for row in table] == ["0", "1", "2", "3"] * 2
    assert [float(row["delta"]) for row in table[:4]] == pytest.approx([0, 0, 0, 0.5])


def test_marks(known, broken, known_report):
    notes = {row[1:3]: row[6] for row in opportunity.opportunity_sheet(known.opportunity).shown}
    assert notes["fill", "score"] == ""
    assert notes["sort", "score"] == UNRELIABLE
    means = opportunity.means_sheet(broken.opportunity)
    assert {row[4] for row in means.shown if row[1] == "score"} == {PARTIAL}
    assert known_report.signs == {UNRELIABLE: LEGEND[UNRELIABLE]}


def test_what_fits_on_a_terminal(known):
    sheet = opportunity.screen_sheet(known.opportunity)
    heads = [column.head for column in sheet.heads]
    assert heads == ["task", "axis", "fixed action", "Δ_adapt", "", "positive", "top 10 % hold"]
    assert sheet.shown[0] == ("fill", "score", "margin", "0.1250 [0.1250, 0.1250]", "", "25.0 %", "40.0 %")
