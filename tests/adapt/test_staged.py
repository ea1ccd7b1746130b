"""The stage-only schedule follows the masked fraction and nothing else."""

import numpy as np
import pytest

from unmask.adapt import Staged
from unmask.adapt.adaptive import stage_of
from unmask.base.errors import ConfigError
from unmask.core import State
from unmask.methods import Dream, fixed_action, with_remasking
from unmask.stats import stage_numbers

MASK = 9


def masked(count, of):
    """A canvas with so many masks in its answer."""
    canvas = [1, *[MASK] * count, *[2] * (of - count)]
    return State.from_canvases([canvas], steps=1, mask_id=MASK, given=[[True, *[False] * of]])


class TestStage:
    def test_is_that_of_the_tables(self):
        for of in range(1, 60):
            counts = range(1, of + 1)
            ours = [int(stage_of(masked(count, of), 4)) for count in counts]
            assert ours == stage_numbers(np.array([count / of for count in counts]), 4).tolist()

    def test_prompt_and_padding_do_not_count(self):
        state = masked(3, of=8)
        assert int(stage_of(state.pad_to(40), 4)) == int(stage_of(state, 4)) == 2


class TestStaged:
    POLICIES = (
        fixed_action(cardinality="count:1"),
        fixed_action(cardinality="count:2"),
        fixed_action(score="margin"),
        fixed_action(cardinality="share:1.0"),
    )

    def test_acts_by_stage(self, kit):
        """Row 2 has 6 answer positions: 6 and 5 masked are stage 0, 4 is 1, 2 is 2 (one step left: all)."""
        problem = kit.small(steps=(5, 3, 6))
        ran = kit.run(Staged(self.POLICIES), problem).row(2)
        assert [int(step.revealed_BL.sum()) for step in ran.steps] == [1, 1, 2, 1, 1]
        alphas = [step.action.alpha_BJ[0].tolist() for step in ran.steps]
        assert [alpha[1] for alpha in alphas] == [0, 0, 0, 1, 0]

    def test_of_one_policy_is_that_policy(self, kit):
        for policy in (fixed_action(), Dream(), fixed_action(score="stability")):
            assert kit.record(kit.run(Staged((policy,) * 4))) == kit.record(kit.run(policy))

    def test_refused(self):
        with pytest.raises(ConfigError, match="policies"):
            Staged(())
        with pytest.raises(ConfigError, match="revised around"):
            Staged((fixed_action(), with_remasking()))
