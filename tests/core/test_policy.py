"""How a method declares what it is: class attributes and properties, never fields."""

from dataclasses import dataclass

import pytest

from unmask.base.errors import ContractError
from unmask.core.policy import STEPS, TRAITS
from unmask.methods import METHODS, Composed, describe_policy, fixed_action, make_policy


class Eager(Composed):
    random = True
    steps = "pace"


@dataclass(frozen=True)
class Switched(Composed):
    draws: bool = False

    @property
    def random(self) -> bool:
        return self.draws


def test_a_trait_is_a_class_attribute_or_a_property():
    assert (Eager().random, Eager().steps, fixed_action().random, fixed_action().steps) == (True, "pace", False, "end")
    assert (Switched().random, Switched(draws=True).random) == (False, True)


@pytest.mark.parametrize("trait", sorted(TRAITS))
def test_a_field_named_like_a_trait_is_refused(trait):
    with pytest.raises(
        ContractError, match=f"Sloppy has a field '{trait}', which is a trait; allowed: a class attribute"
    ):
        type("Sloppy", (Composed,), {"__annotations__": {trait: bool}, trait: True})


def test_unknown_meanings_of_steps_are_refused():
    with pytest.raises(ContractError, match="steps of Endless is 'never'; allowed: end, pace, ignore"):
        type("Endless", (Composed,), {"steps": "never"})


@pytest.mark.parametrize("name", METHODS)
def test_traits_are_no_settings(name):
    method = make_policy(name)
    assert not TRAITS & set(describe_policy(method))
    assert method.steps in STEPS
