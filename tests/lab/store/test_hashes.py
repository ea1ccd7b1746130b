"""Hashes of tables: equal values, equal hashes, and no value that a hash does not see."""

import pyarrow as pa

from unmask.lab.store.hashes import table_hash


def test_hash_is_of_values():
    one = pa.table({"a": ["x", None], "b": [[1, 2], []], "c": [0.5, None]})
    assert table_hash(one) == table_hash(one.slice(0, 2))
    for other in (
        {"a": ["x", ""], "b": [[1, 2], []], "c": [0.5, None]},
        {"a": ["x", None], "b": [[1], [2]], "c": [0.5, None]},
        {"a": ["x", None], "b": [[1, 2], []], "c": [0.5, 0.0]},
    ):
        assert table_hash(pa.table(other)) != table_hash(one)
