"""Names and hashes that stored studies rest on: they never move."""

from itertools import product

import pyarrow as pa

from tests.helpers.cases import each_case
from unmask.lab.compare.store import content_hash
from unmask.lab.store import Shard, fingerprint, table_hash

BRANCHES = {"kind": "branches", "model": "m", "task": "t", "split": "validation", "block": 0, "depends": "d"}
DECODES = {"kind": "decodes", "model": "m", "task": "t", "depends": "d"}
NAMES = ["模型", "é", "-", ".hidden", "..", "a/b", "x" * 300, "CON", "", " ", "\N{GRINNING FACE}", "..."]
ALIKE = ["mini llada", "mini-llada", "Mini-LLaDA", "mini.llada", "-mini-llada", "y" * 300, "y" * 301, *NAMES]


def test_names_of_stored_shards_never_move():
    assert Shard(**BRANCHES | {"model": "a"}).path == "shards/a.t.validation.0000.451fa798f9d3ff2a"
    assert Shard(**DECODES | {"model": "a"}).path == "decodes/a.t.d3876f88181e914a"
    long = Shard(**BRANCHES | {"model": "org/LLaDA-8B", "task": "carry-rtl", "split": "evaluation", "block": 7})
    assert long.name.startswith("org-LLaDA-8B.carry-rtl.evaluation.0007.")


@each_case("model", NAMES)
def test_any_name_is_a_visible_folder(model):
    for shard in (Shard(**BRANCHES | {"model": model}), Shard(**DECODES | {"model": model, "task": "t" * 300})):
        assert shard.name.isascii()
        assert len(shard.name) < 150
        assert shard.name[0] != "."
        assert shard.path.count("/") == 1


def test_names_that_look_alike_are_told_apart_by_their_keys():
    """Also where a file system does not tell capitals from small letters."""
    shards = [Shard(**BRANCHES | {"model": model}) for model in ALIKE]
    assert len({shard.name.casefold() for shard in shards}) == len(ALIKE)
    fields = ("model", "task", "split", "block", "depends")
    values = product(("a", "b"), ("t", "u"), ("validation", "evaluation"), (0, 1), ("d", "e"))
    shards = [Shard(kind="branches", **dict(zip(fields, one, strict=True))) for one in values]
    assert len({shard.name.rsplit(".", 1)[1] for shard in shards}) == 32


def test_a_table_hash_sees_every_value_and_nothing_else():
    one = pa.table({"a": ["x", None], "b": [[1, 2], []], "c": [0.5, None]})
    assert table_hash(one) == table_hash(pa.concat_tables([one, one]).slice(2, 2))
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
