"""Names of shards: whatever a model is called, a file system takes them, and no two are one."""

from itertools import product

from unmask.lab.store.shards import finished_names

from tests.helpers.cases import each_case
from unmask.lab.store import Shard

NAMES = ["模型", "é", "-", ".hidden", "..", "a/b", "x" * 300, "CON", "", " ", "\N{GRINNING FACE}", "..."]
ALIKE = ["mini llada", "mini-llada", "Mini-LLaDA", "mini.llada", "-mini-llada", "y" * 300, "y" * 301, *NAMES]


@each_case("model", NAMES)
def test_any_name_is_a_visible_folder(model, tmp_path):
    for work in (Shard(model, "task", "validation", 0, "d"), Unit(model, "t" * 300, "d")):
        (tmp_path / work.name).mkdir()
        (tmp_path / f"{work.name}.lock").touch()
        assert work.name in finished_names(tmp_path)
        assert work.name.isascii()
        assert len(work.name) < 150
        assert not work.name.startswith(".")


def test_names_that_look_alike_are_told_apart_by_their_keys():
    """Also where a file system does not tell capitals from small letters."""
    shards = [Shard(model, "t", "validation", 0, "d") for model in ALIKE]
    assert len({shard.name.casefold() for shard in shards}) == len(ALIKE)
    parts = product(("a", "b"), ("t", "u"), ("validation", "evaluation"), (0, 1), ("d", "e"))
    assert len({Shard(*part).name.rsplit(".", 1)[1] for part in parts}) == 32
    assert Unit("a", "t", "d").name != Unit("A", "t", "d").name


def test_a_name_shows_what_it_is_of():
    name = Shard("org/LLaDA-8B", "carry-rtl", "evaluation", 7, "d").name
    assert name.startswith("org-LLaDA-8B.carry-rtl.evaluation.0007.")
