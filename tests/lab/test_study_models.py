"""Models of a study file: their references, and what is recorded of them."""

import pytest

from tests.helpers.tiny_studies import table
from unmask.base.errors import ConfigError
from unmask.lab.study import StudyConfig
from unmask.methods import LLaDA, fixed_action

BLOCKS = {"models__0__settings": {"block_length": 4}, "candidates": ...}
"""16 tokens and 4 steps: four blocks of one step."""


class TestBlocks:
    def test_are_those_of_the_authors_decoder(self):
        study = StudyConfig.parse(table(**BLOCKS))
        (spec,) = study.models
        assert study.branch_plan(spec.reference).reference == LLaDA(block_length=4)
        assert spec.policy == {"name": "llada", "block_length": 4, "remasking": "low_confidence"}
        assert study.config["models"][0]["policy"]["block_length"] == 4
        names = {axis: list(named) for axis, named in study.candidate_sets(spec.reference).items()}
        assert {named[0] for named in names.values()} == {"own"}

    def test_change_the_reference_and_nothing_else(self):
        usual, blocks = StudyConfig.parse(table(candidates=...)), StudyConfig.parse(table(**BLOCKS))
        assert usual.branch_plan("llada").reference == fixed_action()
        changed = {key for key, value in usual.config.items() if blocks.config[key] != value}
        assert changed == {"models", "candidates"}
        assert blocks.config.keys() == usual.config.keys()
        named, own = (next(iter(study.config["candidates"].values())) for study in (usual, blocks))
        assert own == {axis: ["own", *names] for axis, names in named.items()}

    @pytest.mark.parametrize("block", [3, 2])
    def test_that_do_not_divide_a_task_are_refused(self, block):
        """16 tokens are no whole number of threes; eight twos need more than 4 steps."""
        with pytest.raises(ConfigError, match=f"block_length of tiny is {block}; allowed: .*csv-missing-cells"):
            StudyConfig.parse(table(**BLOCKS | {"models__0__settings": {"block_length": block}}))

    def test_of_another_reference_are_refused(self):
        with pytest.raises(ConfigError, match="none with dream"):
            StudyConfig.parse(table(**BLOCKS, models__0__reference="dream"))
