"""The arms that may leave the fixed action do so where they should, and nowhere else."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.adaptive_arms import always, random_gate, selective
from tests.helpers.cases import each_case
from unmask.adapt import Adaptive, DetectorRule, Staged, coverage, without_deviation_notes
from unmask.adapt.adaptive import combine_actions
from unmask.adapt.diagnostics import (
    DIAGNOSTICS,
    CommitmentDiagnostic,
    RegionDiagnostic,
    ScoreDiagnostic,
)
from unmask.axes import ReMDM, score
from unmask.base.errors import ConfigError
from unmask.core import Action, Needs, Noise, SamplingParams
from unmask.methods import WINO, Dream, FastDLLM, LLaDA, describe_policy, fixed_action, with_remasking

NAN, INF = float("nan"), float("inf")
NEVER, WHEREVER = DetectorRule((), (0.0,), None), DetectorRule((), (0.0,), -INF)
AXES = [name for name, kind in DIAGNOSTICS.items() if name == kind.axis]
BASES = {"llada": fixed_action(), "dream": Dream()}


class TestContract:
    def test_whole_rows_have_nothing_to_diagnose(self, kit):
        """Under revision a canvas may be full before its last step."""
        for axis in AXES:
            arm = always(fixed_action(cardinality="share:1.0", commitment="none"), DIAGNOSTICS[axis])
            end = kit.run(with_remasking(arm, ReMDM("cap", 0.5)))
            assert not end.state.masked_BL.any()


class TestSelective:
    def test_deviates_just_where_the_detector_says(self, kit):
        """Row by row: signals of steps 0 to 3, and the proposal reveals all that is left."""
        problem = kit.small(steps=(5, 3, 5))
        told = kit.Told((NAN, -0.5, 0.0, 9.0))
        found = kit.run(selective(fixed_action(), told, DetectorRule((0.0, 1.0), (0.0, 0.2, 0.1), 0.2)), problem)
        # Signal 0 starts the bin of 0.2: open at step 2, and nothing is left after it.
        assert [step.revealed_BL.sum(-1).tolist() for step in found.steps] == [[1, 1, 2], [1, 1, 1], [3, 1, 3]]
        deviated = [step.action.notes["cardinality/deviated_B"].tolist() for step in found.steps]
        assert deviated == [[False] * 3, [False] * 3, [True] * 3]

    @each_case("axis", AXES)
    @each_case("kind", BASES)
    def test_never_is_the_fixed_action_and_wherever_is_always(self, axis, kind, kit):
        fixed, diagnostic = BASES[kind], DIAGNOSTICS[axis]
        how = {"sampling": SamplingParams(temperature=0.9)}
        ran = {
            name: kit.record(kit.run(policy, **how))
            for name, policy in {
                "fixed": fixed,
                "never": selective(fixed, diagnostic, NEVER),
                "always": always(fixed, diagnostic),
                "wherever": selective(fixed, diagnostic, WHEREVER),
            }.items()
        }
        assert ran["never"] == ran["fixed"]
        assert ran["wherever"] == ran["always"]

    @each_case("axis", AXES)
    @each_case("kind", BASES)
    def test_always_is_not_the_fixed_action(self, axis, kind, kit):
        """Or the test above would show nothing."""
        part = {"score": "alpha_BJ", "region": "region_BL", "cardinality": "kappa_B", "commitment": "commit_BL"}[axis]
        policies = (BASES[kind], always(BASES[kind], DIAGNOSTICS[axis]))
        moved = 0
        for seed in range(8):
            ran = [kit.run(policy, kit.small(seed, steps=(3, 3, 3))).steps for policy in policies]
            actions = [[getattr(step.action, part) for step in steps] for steps in ran]
            moved += sum(not torch.equal(one, other) for one, other in zip(*actions, strict=False))
        assert moved > 0

    def test_the_first_step_is_the_fixed_action(self, kit):
        """Algorithm 1: without history nothing is diagnosed."""
        for axis in AXES:
            first = kit.run(always(fixed_action(), DIAGNOSTICS[axis])).steps[0]
            assert not first.action.notes[f"{axis}/evaluated_B"].any()
            assert torch.equal(first.action.kappa_B, kit.run(fixed_action()).steps[0].action.kappa_B)

    def test_the_base_is_what_the_diagnostic_changes(self, kit):
        """The fixed action reveals one position at a time, the reference k_min; the proposal holds the latter."""
        fixed, told = fixed_action(cardinality="count:1:below"), RegionDiagnostic(budget=1.0)
        problem = kit.small(steps=(2, 2, 2))
        own = kit.run(always(fixed, told), problem)
        reference = kit.run(always(fixed, told, base=fixed_action(cardinality="share:1.0")), problem)
        assert [step.revealed_BL.sum(-1).tolist() for step in own.steps] == [[1, 1, 1], [4, 2, 5]]
        assert coverage(reference)["region"].deviated_B.tolist() == [1, 1, 1]
        slow = kit.small(steps=(4, 3, 4))
        counts = [s.revealed_BL.sum(-1).tolist() for s in kit.run(always(fixed, told), slow).steps]
        faster = [s.revealed_BL.sum(-1).tolist() for s in kit.run(always(fixed, told, base=fixed_action()), slow).steps]
        assert counts != faster


class TestRandomGate:
    def test_rate_and_noise_of_its_own(self, kit):
        problem = kit.small(steps=(5, 3, 6))
        order = torch.zeros(400, dtype=torch.long) + 2
        many = replace(problem, state=problem.state.select(order), noise=Noise.of(list(range(400))))
        found = coverage(kit.run(random_gate(fixed_action(), RegionDiagnostic(), 0.3), many))["region"]
        assert found.share == pytest.approx(0.3, abs=0.03)
        # Steps of a row decide apart from each other: by hand, the variance of a binomial.
        n = found.evaluated_B.double().mean()
        assert float(found.deviated_B.double().var()) == pytest.approx(float(n * 0.3 * 0.7), rel=0.3)

    def test_deviates_on_steps_with_a_signal_only(self, kit):
        found = coverage(kit.run(random_gate(fixed_action(), kit.Told((NAN, 1.0, NAN, NAN, NAN)), 1.0)))["cardinality"]
        assert found.deviated_B.tolist() == found.evaluated_B.tolist() == [1, 1, 1]

    @pytest.mark.parametrize("share", [-0.1, 1.1, NAN])
    def test_impossible_coverage_is_refused(self, share):
        with pytest.raises(ConfigError, match="coverage"):
            random_gate(fixed_action(), RegionDiagnostic(), share)


class TestCoverage:
    def test_counts_by_hand(self, kit):
        """Signals at steps 1 and 2 of which one opens; the second row has two steps only."""
        told = kit.Told((NAN, -1.0, 1.0, NAN, NAN))
        problem = kit.small(steps=(4, 2, 5))
        found = coverage(kit.run(selective(fixed_action(), told, DetectorRule((0.0,), (0.0, 1.0), 0.5)), problem))[
            "cardinality"
        ]
        assert found.steps_B.tolist() == [3, 2, 3]
        assert found.evaluated_B.tolist() == [2, 1, 2]
        assert found.deviated_B.tolist() == [1, 0, 1]
        assert found.share == 2 / 5

    def test_of_other_policies_and_of_unrecorded_runs(self, kit):
        assert coverage(kit.run(fixed_action())) == {}
        with pytest.raises(ConfigError, match="record=True"):
            coverage(kit.run(fixed_action(), record=False))

    def test_the_record_alone_is_taken_out_of_the_notes(self, kit):
        ran = kit.run(with_remasking(always(fixed_action(), CommitmentDiagnostic()), ReMDM("cap", 0.5)))
        notes = ran.steps[-1].action.notes
        assert set(notes) == {"psi_BL", *(f"commitment/{name}_B" for name in ("signal", "evaluated", "deviated"))}
        assert list(without_deviation_notes(notes)) == ["psi_BL"]
        assert without_deviation_notes({"psi_BL": notes["psi_BL"]}).keys() == {"psi_BL"}


class TestParts:
    def test_needs_memory_and_noise_are_unions(self):
        policy = selective(
            Dream(alg_temp=0.5), CommitmentDiagnostic(window=6), NEVER, base=fixed_action(score="stability")
        )
        assert policy.needs == Needs(filtered=True, divergence=True, attention=True)
        assert (policy.past_steps, policy.random) == (6, True)
        assert selective(fixed_action(), RegionDiagnostic(), NEVER).needs == Needs()
        assert not always(fixed_action(), RegionDiagnostic()).random
        assert random_gate(fixed_action(), RegionDiagnostic(), 0.0).random

    def test_how_a_run_ends_is_that_of_the_parts(self):
        """Fast-dLLM goes on until all is filled, whatever the steps; counts are still proposed for the steps left."""
        fast, fixed, region = FastDLLM(), fixed_action(), RegionDiagnostic()
        assert [always(policy, region).steps for policy in (fixed, fast)] == ["end", "pace"]
        assert always(fixed, region, base=fast).steps == "pace"
        assert [Staged(parts).steps for parts in ((fixed,), (fast,), (fast, fixed))] == ["end", "ignore", "pace"]

    def test_records_go_by_the_registered_names(self):
        """Names and settings of results, which no rewriting may move."""
        region, rule, near = RegionDiagnostic(mixture="diagnosed"), DetectorRule((), (0.1,), 0.0), (fixed_action(),)
        axes = [(ScoreDiagnostic(), rule), (region, rule)]
        expected = {
            always(LLaDA(), region): ("always", "fixed diagnostic base"),
            selective(LLaDA(), region, rule): ("selective", "fixed diagnostic base detector"),
            selective(LLaDA(), region, rule, near): ("snapped", "fixed diagnostic base detector candidates"),
            random_gate(LLaDA(), region, 0.5): ("random-gate", "fixed diagnostic base coverage"),
            random_gate(LLaDA(), region, 0.5, near): ("random-snapped", "fixed diagnostic base coverage candidates"),
            Adaptive(LLaDA(), axes): ("joint", "fixed diagnostics detectors"),
            Adaptive(LLaDA(), axes, base=fixed_action()): ("adaptive", "fixed axes base snap_to"),
            Staged((LLaDA(),)): ("stage", "policies"),
        }
        for policy, (name, settings) in expected.items():
            described = describe_policy(policy)
            assert (described.pop("name"), " ".join(described)) == (name, settings)
        described = describe_policy(selective(LLaDA(), region, rule))
        assert described["diagnostic"] == {"budget": 0.5}
        assert described["detector"] == {"starts": (), "expected": (0.1,), "tau": 0.0}

    @pytest.mark.parametrize(("policy", "what"), [(with_remasking(), "done"), (WINO(), "model_input")])
    def test_who_has_a_view_or_an_end_of_its_own_is_refused(self, policy, what):
        with pytest.raises(ConfigError, match=f"a {what} of its own.*put revised around"):
            always(policy, RegionDiagnostic())

    def test_choose_takes_rows_whole(self, kit):
        state = kit.small().state
        no_BL = torch.zeros_like(state.fixed_BL)
        base = Action(
            score.alpha_rows("margin", state),
            state.masked_BL,
            torch.zeros(3).double(),
            no_BL,
            notes={"n_B": 0},
        )
        one = replace(base, remask_BL=~no_BL, notes={"a_B": torch.ones(3), "b_B": torch.ones(3)})
        other = replace(
            base, alpha_BJ=score.alpha_rows("stability", state), kappa_B=torch.ones(3).double(), commit_BL=~no_BL,
            tokens_BL=torch.ones_like(state.tokens_BL), notes={"b_B": torch.zeros(3), "c_B": torch.zeros(3)},
        )  # fmt: skip
        both = combine_actions(torch.tensor([True, False, True]), one, other)
        for name in ("alpha_BJ", "kappa_B", "commit_BL"):
            assert torch.equal(getattr(both, name)[[0, 2]], getattr(one, name)[[0, 2]])
            assert torch.equal(getattr(both, name)[1], getattr(other, name)[1])
        assert both.remask_BL.any(-1).tolist() == [True, False, True]
        assert both.tokens_BL.amax(-1).tolist() == [-1, 1, -1]
        assert set(both.notes) == {"a_B", "b_B", "c_B"}
        assert both.notes["b_B"].tolist() == [1, 0, 1]
