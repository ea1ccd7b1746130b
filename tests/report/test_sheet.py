"""Tables as values."""

import pytest

from tests.helpers import made_reports
from unmask.report.sheet import Column, Sheet, attribute


def test_a_column_reads_and_shows_its_own_value():
    sheet = made_reports.fruit()
    assert sheet.rows[1][:2] == ("50 %_|off|\nplums", 3)
    assert sheet.shown[0] == ("apple & pear", "12,345", "0.5000 [0.2500, 0.7500]", "")
    assert [column.head for column in sheet.heads] == ["fruit", "eaten", "Δ_taste", "note"]


def test_heads_and_values_cannot_get_out_of_step():
    sheet = made_reports.fruit()
    turned = Sheet("fruit", "", "", sheet.columns[::-1], sheet.items)
    assert [row[::-1] for row in turned.rows] == list(sheet.rows)
    assert [row[::-1] for row in turned.shown] == list(sheet.shown)


def test_deeper_attributes():
    column = attribute("low", "low", path="taste.low")
    assert column.get(made_reports.FRUIT[0]) == 0.25


def test_an_empty_head_is_seen_and_none_is_not():
    columns = (Column("a", "", lambda item: item), Column("b", None, lambda item: item))
    assert Sheet("x", "", "", columns, ["cell"]).shown == (("cell",),)


def test_a_getter_that_finds_nothing_fails_at_once():
    with pytest.raises(AttributeError):
        Sheet("x", "", "", (attribute("colour", "colour"),), made_reports.FRUIT)


def test_two_columns_of_one_name_would_hide_one_of_them():
    twice = tuple(Column("utility", head, lambda item: item) for head in ("one", "two"))
    with pytest.raises(ValueError, match="the table t has more than one column utility"):
        Sheet("t", "", "", twice, [1])
