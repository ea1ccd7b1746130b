"""Each candidate is what its name says, read off the runs it decodes."""

from dataclasses import dataclass, replace

import pytest
import torch

from tests.helpers.cases import each_case
from unmask.axes import AXES, CARDINALITY, COMMITMENT, REGION, SCORE, cardinality
from unmask.base.errors import ConfigError, UnnamedPolicy
from unmask.core import RULES, ModelInput, ModelOutput, Needs, Noise, Search, State, Vocabulary
from unmask.engine import decode
from unmask.methods import (
    DUS,
    KLASS,
    OWN_NAME,
    P2,
    VSB,
    WINO,
    Composed,
    CoRe,
    Dream,
    FastDLLM,
    InfoGain,
    LLaDA,
    ReMDMLLaDA,
    candidate,
    candidates,
    combine_candidates,
    fixed_action,
    reference_of,
    register_reference,
    with_remasking,
)

MASK, VOCAB = 12, 12
SETS = {"llada": candidates(), "dream": candidates("dream")}


@dataclass(frozen=True)
class Scripted:
    """A network of nonsense: what it says about a slot depends on the slot and on how many tokens are visible."""

    device = torch.device("cpu")
    vocabulary = Vocabulary(VOCAB, MASK)

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        slots = inputs.tokens_BN.shape[1]
        visible_B11 = (inputs.valid_BN & (inputs.tokens_BN != MASK)).sum(-1).float()[:, None, None]
        slot_N1 = torch.arange(slots)[:, None]
        wave_BNV = torch.sin(7.3 * slot_N1 + 1.7 * torch.arange(VOCAB) * slot_N1 + 0.9 * visible_B11)
        logits_BNV = (3 + 37 * (slot_N1 % 2)) * wave_BNV
        near_NN = torch.sin(torch.arange(slots)[:, None] * 1.3 + torch.arange(slots)[None, :] * 2.1).exp()
        attention_BNN = (near_NN * inputs.valid_BN[:, None, :]).double()
        return ModelOutput(
            logits_BNV[inputs.wanted_BN],
            inputs.wanted_BN,
            attention_BNN=attention_BNN / attention_BNN.sum(-1, keepdim=True) if needs.attention else None,
        )


def run(policy, answer=40, steps=20, prompts=((1, 2, 3), (4,))):
    state = State.from_prompts([list(p) for p in prompts], new_tokens=answer, steps=steps, mask_id=MASK)
    return decode(Scripted(), policy, state, noise=Noise.of([11, 22][: len(prompts)]))


def revealed(traj, row=0):
    """Ranks among the answer positions, step by step."""
    return [step.state.rank_BL[row][step.revealed_BL[row]].tolist() for step in traj.steps if row in step.rows_B]


def k_ref(masked, left):
    return -(-masked // left)


@pytest.mark.parametrize("kind", SETS)
class TestSets:
    def test_are_the_four_of_the_design(self, kind):
        assert tuple(SETS[kind]) == tuple(AXES)
        names = {axis: tuple(found) for axis, found in SETS[kind].items()}
        native = {"dream": ("entropy",), "llada": ()}[kind]
        assert names == {
            "score": (*native, *RULES, "uniform"),
            "region": REGION.candidates,
            "cardinality": CARDINALITY.candidates,
            "commitment": COMMITMENT.candidates,
        }

    def test_hold_the_reference_first_and_once(self, kind):
        reference = reference_of(SETS[kind])
        assert reference == (Dream() if kind == "dream" else fixed_action())
        for found in SETS[kind].values():
            assert [policy == reference for policy in found.values()] == [True] + [False] * (len(found) - 1)


def test_the_reference_is_lladas_own_loop():
    for steps in (20, 13, 40, 1):
        assert (
            run(fixed_action(), steps=steps).state.tokens_BL.tolist()
            == run(LLaDA(), steps=steps).state.tokens_BL.tolist()
        )


@pytest.mark.parametrize("name", SCORE.candidates)
def test_score(name):
    """Everything but the order is the reference's; the order is the mixture's."""
    first = run(candidates()["score"][name]).steps[0]
    weights = {"uniform": [0.2] * 5}.get(name, [float(rule == name) for rule in RULES])
    assert first.action.alpha_BJ[0].tolist() == pytest.approx(weights)
    assert first.action.region_BL.equal(first.state.masked_BL)
    assert [len(ranks) for ranks in revealed(run(candidates()["score"][name]))] == [2] * 20


@each_case("kind", SETS)
@each_case("name", REGION.candidates)
def test_region(kind, name):
    """The rule, written out on the ranks of what is masked; the count is always the reference's."""
    traj = run(SETS[kind]["region"][name])
    masked = set(range(40))
    counts = [len(ranks) for ranks in revealed(run(reference_of(SETS[kind])))]
    assert sum(counts) == 40
    for step, ranks in enumerate(revealed(traj)):
        need = k_ref(len(masked), 20 - step)
        groups = _groups(name, masked)
        allowed, at = set(), 0
        while len(allowed) < min(need, len(masked)):
            allowed |= groups[at]
            at += 1
        assert set(ranks) <= allowed
        assert len(ranks) == min(counts[step], len(allowed))
        masked -= set(ranks)
    assert not masked


def _groups(name, masked):
    """Non-empty groups of masked ranks in the order in which they open."""
    rule, _, size = name.partition(":")
    size = int(size or 40)
    first = min(masked)
    order = {
        "full": lambda i: 0,
        "block": lambda i: i // size,
        "last-block": lambda i: -(i // size),
        "window": lambda i: (i - first) // size,
        "dilated": lambda i: {2: [0, 1], 4: [0, 2, 1, 3]}[size].index(i % size) if size <= 4 else 0,
    }[rule]
    groups = {}
    for i in masked:
        groups.setdefault(order(i), set()).add(i)
    return [groups[key] for key in sorted(groups)]


@each_case("kind", SETS)
@each_case("name", ["block:8", "window:16", "dilated:2", "last-block:16"])
def test_a_region_that_holds_the_share_reveals_its_share_of_the_count(kind, name):
    """k = ceil(kappa |R|), kappa that of the reference; the region and the order are those of the same name."""
    counts = []

    class Watched(type(reference_of(SETS[kind]))):
        def act(self, traj, look_ahead):
            action = super().act(traj, look_ahead)
            n_B = (action.region_BL & traj.state.masked_BL).sum(-1)
            counts.append(cardinality.reveal_count(action.kappa_B, n_B))
            return action

    plain = run(combine_candidates(kind, {"region": name}))
    shared = run(replace(combine_candidates(kind, {"region": f"{name}:share"}), base=Watched()))
    first, other = plain.steps[0], shared.steps[0]
    assert torch.equal(first.action.region_BL, other.action.region_BL)
    assert torch.equal(first.action.alpha_BJ, other.action.alpha_BJ)
    fewer = 0
    for step, k_B in zip(shared.steps, counts, strict=True):
        masked_B, n_B = step.state.masked_BL.sum(-1), (step.action.region_BL & step.state.masked_BL).sum(-1)
        want_B = -(-k_B * n_B // masked_B)
        assert torch.equal(step.revealed_BL.sum(-1), want_B)
        fewer += int((want_B < k_B).sum())
    assert fewer
    assert not shared.state.masked_BL.any()


def test_what_cannot_hold_a_share():
    with pytest.raises(ConfigError, match="holds of instead is 'half'; allowed: count or share"):
        Composed(fixed_action(), region="block:8", holds="half")
    with pytest.raises(ConfigError, match="SIZE from 1"):
        combine_candidates("llada", {"region": "block:0:share"})


def test_a_region_smaller_than_k_min_grows():
    """40 positions in 3 steps: 14 at a time do not fit a block of 8."""
    first = revealed(run(candidates()["region"]["block:8"], steps=3))[0]
    assert len(first) == 14
    assert set(first) <= set(range(16))


@each_case("kind", SETS)
@each_case("name", CARDINALITY.candidates[1:])
def test_cardinality(kind, name):
    """The count, or k_min = ceil(m / h) where that is more; the bare one stays below until the last step."""
    rule, _, value = name.partition(":")
    for floored in (True, False):
        masked, steps = 40, 20
        policy = (
            SETS[kind]["cardinality"][name]
            if floored
            else candidate(kind, "cardinality", cardinality.without_floor(name))
        )
        for step, ranks in enumerate(revealed(run(policy))):
            k = min(int(value), masked) if rule == "count" else -(-masked * int(100 * float(value)) // 100)
            k = max(k, k_ref(masked, steps - step)) if floored else k
            assert len(ranks) == (masked if step == steps - 1 else k), (name, step)
            masked -= len(ranks)
        assert masked == 0


OTHER_COUNTS = ("above:0.9999", "factor:0", "eb:0", "0.01", "share:0.01")


@pytest.mark.parametrize("steps", [7])
@pytest.mark.parametrize("kind", SETS)
def test_no_fixed_action_starves_a_run(kind, steps):
    """Every step reveals its share of what is left, so none has to make up for the others.

    Dream's native count is its own, and smaller in places; it binds no candidate of cardinality.
    """
    axes = AXES if kind == "llada" else ("cardinality",)
    policies = {f"{axis} {name}": policy for axis in axes for name, policy in list(SETS[kind][axis].items())[1:]}
    policies |= {name: candidate(kind, "cardinality", name) for name in OTHER_COUNTS}
    for name, policy in policies.items():
        traj = run(policy, steps=steps)
        for at, step in enumerate(traj.steps):
            masked_B, revealed_B = step.state.masked_BL.sum(-1), step.revealed_BL.sum(-1)
            least_B = -(-masked_B // (steps - at))
            assert (revealed_B >= least_B).all(), (name, at)
            assert getattr(policy, "operator", None) or (least_B <= k_ref(40, steps)).all(), (name, at)
        assert not traj.state.masked_BL.any(), name


@pytest.mark.parametrize("kind", SETS)
class TestCommitment:
    @pytest.mark.parametrize("name", ["confidence:0.9", "margin:0.5"])
    def test_by_threshold(self, kind, name):
        traj, kinds = run(SETS[kind]["commitment"][name]), set()
        for now, after in zip(traj.steps, [s.state for s in traj.steps[1:]], strict=False):
            seen = now.prediction
            sure_BN = seen.confidence_BN >= 0.9 if "conf" in name else seen.clean.margin_BN >= 0.5
            sure_BL = sure_BN[:, : after.tokens_BL.shape[1]]
            assert (after.committed_BL == (now.state.committed_BL | (now.revealed_BL & sure_BL))).all()
            kinds |= set(sure_BL[now.revealed_BL].tolist())
        assert kinds == {True, False}

    def test_is_the_reference_plus_remdm(self, kind):
        policy = SETS[kind]["commitment"]["none"]
        assert policy.operator is not None
        assert policy.operator.variant == "conf"


class TestInstead:
    """Fixed policies and the reference with one axis replaced are two roads to one place."""

    @each_case("field", ["score", "region", "cardinality"])
    @each_case("steps", [20, 13, 3])
    def test_is_fixed_around_lladas_loop(self, field, steps):
        for name in {"score": SCORE.candidates, "region": REGION.candidates, "cardinality": CARDINALITY.candidates}[
            field
        ]:
            instead = (
                Composed(LLaDA(), score="confidence") if name == "schedule" else Composed(LLaDA(), **{field: name})
            )
            ours, theirs = run(instead, steps=steps), run(fixed_action(**{field: name}), steps=steps)
            assert ours.state.tokens_BL.tolist() == theirs.state.tokens_BL.tolist(), name
            assert revealed(ours, 1) == revealed(theirs, 1), name

    def test_certainty_is_dreams_own_order(self):
        for steps in (20, 13):
            ours, theirs = run(Composed(Dream(), score="certainty"), steps=steps), run(Dream(), steps=steps)
            assert revealed(ours) == revealed(theirs)

    @pytest.mark.parametrize("field", ["score", "region", "cardinality", "commitment"])
    def test_refuses_what_it_does_not_know(self, field):
        with pytest.raises(ConfigError, match="nonsense"):
            Composed(Dream(), **{field: "nonsense"})


class TestAround:
    """Candidates around any policy: its own action with one axis replaced."""

    def test_the_reference_is_the_first_of_every_set(self):
        policy = FastDLLM(block_length=3)
        sets = candidates(register_reference(policy))
        assert all(next(iter(named.items())) == (OWN_NAME, policy) for named in sets.values())
        assert sets["region"]["block:8"] == Composed(policy, score="confidence", region="block:8")
        assert sets["score"]["margin"] == Composed(policy, score="margin")
        assert sets["commitment"]["none"].operator is not None
        assert combine_candidates(register_reference(policy), {"region": OWN_NAME, "score": OWN_NAME}) == policy

    def test_its_name_tells_settings_apart(self):
        assert register_reference(FastDLLM(block_length=3)) == register_reference(FastDLLM(block_length=3))
        assert register_reference(FastDLLM(block_length=3)) != register_reference(FastDLLM(block_length=4))

    @pytest.mark.parametrize("policy", [DUS(4), KLASS(0.5, 0.5)])
    def test_a_policy_that_fills_its_rows_can_be_one(self, policy):
        assert reference_of(candidates(register_reference(policy))) == policy

    @each_case(
        "policy",
        [
            DUS(4, leave_skipped=True),
            KLASS(leave_unfinished=True),
            WINO(),
            with_remasking(),
            ReMDMLLaDA(),
            CoRe(),
            InfoGain(),
            VSB(),
        ],
    )
    def test_a_policy_that_looks_ahead_or_has_an_end_or_a_view_of_its_own_goes_on_whole(self, policy):
        """Nothing can be cut out of its action; where nothing is, it can be the reference."""
        with pytest.raises(ConfigError, match=r"cannot continue branches around the four axes.*axes = \['policy'\]"):
            register_reference(policy)
        assert reference_of(candidates(register_reference(policy, whole=True))) == policy

    def test_nor_what_asks_a_second_network(self):
        with pytest.raises(ConfigError, match="second network"):
            register_reference(P2(planner=True), whole=True)

    def test_searches_cannot(self):
        class Beam(Search):
            name = "beam"

            def decode(self, run, traj):
                return traj

        for whole in (True, False):
            with pytest.raises(ConfigError, match="searches own their loop"):
                register_reference(Beam(), whole=whole)

    def test_one_that_nobody_named(self):
        with pytest.raises(UnnamedPolicy, match=r"'threshold-0123456789ab' is a policy that nobody has named here"):
            candidates("threshold-0123456789ab")

    def test_what_the_base_re_opens_and_overrides_stays(self):
        """P2 re-masks: another commitment must not lose that."""
        state = State.from_canvases([[MASK] * 6], steps=6, mask_id=MASK)
        plain, varied = (
            decode(Scripted(), policy, state, noise=Noise.of([0]))
            for policy in (P2(2.0), Composed(P2(2.0), commitment="none"))
        )
        assert torch.equal(plain.state.tokens_BL, varied.state.tokens_BL)
        assert any(bool(step.remasked_BL.any()) for step in varied.steps)
