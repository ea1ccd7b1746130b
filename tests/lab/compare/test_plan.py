"""Which methods `--policy all` stands for."""

import pytest

from unmask.lab.compare.plan import OF_ONE_KIND, make_suitable_methods
from unmask.methods import METHODS, OURS


@pytest.mark.parametrize("reference", ["llada", "dream"])
def test_every_method_is_there_or_left_out_with_a_reason(reference):
    chosen, others = make_suitable_methods(reference)
    assert {policy.name for policy in chosen.values()} | set(others) == set(METHODS)
    assert not {policy.name for policy in chosen.values()} & set(others)
    assert others["fixed"] == others["revised"] == "this library's own, no published method"
    assert others[reference] == "it is the reference"
    assert all(METHODS[policy.name].label != OURS for policy in chosen.values())


def test_a_loop_for_another_kind_of_model_is_left_out():
    llada, dream = make_suitable_methods("llada"), make_suitable_methods("dream")
    assert {"dream", "fast-dllm-dream"} <= set(llada[1])
    assert {"llada", "fast-dllm", "remdm-llada"} <= set(dream[1])
    assert llada[0]["klass"].variant == "llada"
    assert dream[0]["klass:variant=dream"].variant == "dream"
    assert set(OF_ONE_KIND) <= set(METHODS)


def test_learned_methods_are_in_where_the_model_has_a_head():
    without, _ = make_suitable_methods("llada")
    chosen, others = make_suitable_methods("llada", heads=["demask"])
    assert not {"demask", "ddpd"} & set(without)
    assert chosen["demask"] == METHODS["demask"].default
    assert others["ddpd"] == "needs a learned part beside the model"
