"""What the stored format can hold."""

import pyarrow as pa
import pytest

from unmask.errors import ConfigError
from unmask.lab.store.schemas import FORMAT, SCHEMAS, SORT, by_axis, loose


@pytest.mark.parametrize("name", SCHEMAS)
def test_loose_schemas_have_the_same_columns_without_dictionaries(name):
    assert loose(name).names == SCHEMAS[name].names
    assert not any(pa.types.is_dictionary(kind) for kind in loose(name).types)
    assert set(SORT[name]) <= set(SCHEMAS[name].names)


def test_diagnostics_by_their_axes():
    assert by_axis({"drift": "score", "region": "region"}) == {"score": "drift", "region": "region"}
    with pytest.raises(ConfigError, match=f"'drift' and 'score' are both of the score axis.*{FORMAT}"):
        by_axis({"drift": "score", "score": "score"})
