"""How a method declares what it is: class attributes and properties, never fields."""

import pytest

from unmask.base.errors import ContractError
from unmask.core.policy import TRAITS
from unmask.methods import Composed


@pytest.mark.parametrize("trait", sorted(TRAITS))
def test_a_field_named_like_a_trait_is_refused(trait):
    with pytest.raises(
        ContractError, match=f"Sloppy has a field '{trait}', which is a trait; allowed: a class attribute"
    ):
        type("Sloppy", (Composed,), {"__annotations__": {trait: bool}, trait: True})


def test_unknown_meanings_of_steps_are_refused():
    with pytest.raises(ContractError, match="steps of Endless is 'never'; allowed: end, pace, ignore"):
        type("Endless", (Composed,), {"steps": "never"})
