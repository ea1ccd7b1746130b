"""Hashes of tables: equal values, equal hashes, and no value that a hash does not see."""

import pyarrow as pa

from unmask.lab.compare.store import content_hash
from unmask.lab.store.hashes import fingerprint, table_hash


def test_hash_is_of_values():
    one = pa.table({"a": ["x", None], "b": [[1, 2], []], "c": [0.5, None]})
    assert table_hash(one) == table_hash(one.slice(0, 2))
    for other in (
        {"a": ["x", ""], "b": [[1, 2], []], "c": [0.5, None]},
        {"a": ["x", None], "b": [[1], [2]], "c": [0.5, None]},
        {"a": ["x", None], "b": [[1, 2], []], "c": [0.5, 0.0]},
    ):
        assert table_hash(pa.table(other)) != table_hash(one)


def test_one_hash_of_plain_values_for_studies_and_comparisons():
    """Stored files are named and vouched for by these: they stay."""
    value = {"b": [1, 2.5, None], "a": "ä"}
    assert content_hash(value) == "2ed0f54c6c91c515354056a04e63e160"
    assert fingerprint(value) == content_hash(value)[:16]
    assert fingerprint({"a": "ä", "b": [1, 2.5, None]}) == fingerprint(value) != fingerprint({"a": "a"})
