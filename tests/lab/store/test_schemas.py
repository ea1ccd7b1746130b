"""What the stored format can hold, and that it is described."""

import re

import pyarrow as pa
import pytest

from tests.helpers.paths import DOCS
from unmask.errors import ConfigError
from unmask.lab.store.schemas import FORMAT, OWN_COST, SCHEMAS, SORT, by_axis, loose, schema_of


@pytest.mark.parametrize("name", SCHEMAS)
def test_loose_schemas_have_the_same_columns_without_dictionaries(name):
    assert loose(name).names == SCHEMAS[name].names
    assert not any(pa.types.is_dictionary(kind) for kind in loose(name).types)
    assert set(SORT[name]) <= set(SCHEMAS[name].names)


def test_diagnostics_by_their_axes():
    assert by_axis({"drift": "score", "region": "region"}) == {"score": "drift", "region": "region"}
    with pytest.raises(ConfigError, match=r"'drift' and 'score' are both of the score axis.*the analysis chooses one"):
        by_axis({"drift": "score", "score": "score"})


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_column_is_described(name):
    """A row of the document names its columns, or the first and the last of several."""
    text = (DOCS / "schema.md").read_text(encoding="utf-8")
    section = re.search(rf"## {name}\.parquet.*?(?=\n## )", text, re.DOTALL)
    columns, described = SCHEMAS[name].names, set()
    for head in (line.split("|")[1] for line in section[0].splitlines() if line.startswith("| `")):
        named = re.findall(r"`(\w+)`", head)
        described |= set(named)
        if "` ... `" in head:
            described |= set(columns[columns.index(named[0]) : columns.index(named[1]) + 1])
    assert described == set(columns)


def test_optional_columns_are_described_and_come_last():
    text = (DOCS / "schema.md").read_text(encoding="utf-8")
    names = [name for name, _ in OWN_COST]
    assert all(f"*{name}*" in text for name in names)
    assert schema_of("branches", [*names, "other"]).names == [*SCHEMAS["branches"].names, *names]
    assert schema_of("branches") == SCHEMAS["branches"]
    assert schema_of("states", names) == SCHEMAS["states"]


def test_the_format_is_named():
    text = (DOCS / "schema.md").read_text(encoding="utf-8")
    assert set(re.findall(r"unmask-study-\d", text)) == {FORMAT, "unmask-study-1", "unmask-study-2"}
