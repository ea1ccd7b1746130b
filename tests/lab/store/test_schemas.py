"""What the stored format can hold, and that it is described."""

import re

import pytest

from tests.helpers.paths import DOCS
from unmask.lab.store.schemas import OPTIONAL, SCHEMAS, SORT, schema_of, sort_keys


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_column_is_described(name):
    """A row of the document names its columns, or the first and the last of several."""
    text = (DOCS / "formats.md").read_text(encoding="utf-8")
    section = re.search(rf"## {name}\.parquet.*?(?=\n## )", text, re.DOTALL)
    columns, described = SCHEMAS[name].names, set()
    for head in (line.split("|")[1] for line in section[0].splitlines() if line.startswith("| `")):
        named = re.findall(r"`(\w+)`", head)
        described |= set(named)
        if "` ... `" in head:
            described |= set(columns[columns.index(named[0]) : columns.index(named[1]) + 1])
    assert described == set(columns)


def test_optional_columns_are_described_and_come_last():
    text = (DOCS / "formats.md").read_text(encoding="utf-8")
    for table, columns in OPTIONAL.items():
        names = [name for name, _ in columns]
        assert all(f"*{name}*" in text for name in names)
        assert schema_of(table, [*names, "other"]).names == [*SCHEMAS[table].names, *names]
        assert schema_of(table) == SCHEMAS[table]
        assert schema_of("states", names) == SCHEMAS["states"]


def test_whose_decodes_they_are_is_part_of_their_key():
    assert sort_keys("decodes", SCHEMAS["decodes"].names) == SORT["decodes"]
    assert sort_keys("decodes", schema_of("decodes", ["diagnostic"]).names) == [*SORT["decodes"], "diagnostic"]
    assert sort_keys("readings", SCHEMAS["readings"].names) == SORT["readings"]
