"""`apply` against a slow reference written from the blueprint, and each of its rules on its own."""

import copy
import math
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.cases import each_case
from unmask.base.errors import DenoiserError, InvalidAction
from unmask.core import RULES, Action, Prediction, State, Statistics, concat, select
from unmask.engine import apply
from unmask.engine.transition import FAULTS, fill_after_eos

MASK, VOCAB = 9, 8
EMPTY, KAPPA, ALPHA, REMASK, MISSING, UNPROPOSED, LOGITS, OTHER_RULE, STUCK = (2**i for i in range(9))
NAN = float("nan")


# --- a slow reference ---------------------------------------------------------------------------------------------


@dataclass
class Position:
    """One canvas position: what it is, what the denoiser says about it, what the action asks of it."""

    kind: str  # g(iven), m(asked), r(evisable), c(ommitted), or p(adding)
    held: int = 1
    wanted: bool = True
    token: int = 0
    p1: float = 0.0
    p2: float = 0.0
    entropy: float = 0.0
    drift: float = NAN
    visible: float = 0.0
    logz: float = 0.0
    region: bool = False
    commit: bool = False
    remask: bool = False
    override: int = -1


@dataclass
class Row:
    positions: list[Position]
    alpha: list[float]
    kappa: Fraction
    step: int = 0
    drift_known: bool = True
    attention_known: bool = True


@dataclass
class Outcome:
    tokens: list[int]
    committed: list[bool]
    step: int
    revealed: list[bool]
    remasked: list[bool]
    confidence: list[float]
    fault: int


def slow_scores(row: Row, p: Position) -> list[float]:
    stability = NAN
    if row.drift_known:
        stability = p.p1 if math.isnan(p.drift) else math.exp(-p.drift)
    scores = [
        p.p1,
        p.p1 - p.p2,
        min(max(1 - p.entropy / math.log(VOCAB), 0), 1),
        stability,
        p.visible if row.attention_known else NAN,
    ]
    return scores if p.wanted else [s if math.isnan(s) else 0.0 for s in scores]


def slow_apply(row: Row) -> Outcome:
    """Blueprint, section 3, in its order and one row at a time."""
    ps = row.positions
    fault = 0
    # (1) Re-mask what is revisable and was revealed before this step.
    if any(p.remask and p.kind != "r" for p in ps):
        fault |= REMASK
    remasked = [p.remask and p.kind == "r" for p in ps]
    masked = [p.kind == "m" or r for p, r in zip(ps, remasked, strict=True)]
    # (2) Score: s = sum_j alpha_j s^(j); a rule without weight does not count.
    if not (all(a >= 0 for a in row.alpha) and abs(sum(row.alpha) - 1) < 1e-6):
        fault |= ALPHA
    score = [sum(a * s for a, s in zip(row.alpha, slow_scores(row, p), strict=True) if a != 0) for p in ps]
    # (3) Eligible = region AND masked.
    eligible = [i for i, p in enumerate(ps) if p.region and masked[i]]
    if any(masked) and not eligible:
        fault |= EMPTY
    has_token = [p.wanted or p.override >= 0 for p in ps]
    if any(math.isnan(score[i]) and has_token[i] for i in eligible):
        fault |= MISSING
    # (4) k = ceil(kappa |eligible|).
    if not 0 <= row.kappa <= 1:
        fault |= KAPPA
    k = math.ceil(row.kappa * len(eligible))
    # (5) The k best, ties to the lower position.
    order = sorted(eligible, key=lambda i: (-score[i], i)) if not fault & MISSING else eligible
    chosen = order[: max(k, 0)]
    if any(not has_token[i] for i in chosen):
        fault |= UNPROPOSED
    if any(not math.isfinite(p.logz) for p in ps):
        fault |= LOGITS
    if fault:
        chosen, remasked = [], [False] * len(ps)
    tokens = [MASK if p.kind == "m" or r else p.held for p, r in zip(ps, remasked, strict=True)]
    confidence = [0.0] * len(ps)
    committed = [p.kind in "gcp" for p in ps]
    for i in chosen:
        tokens[i] = ps[i].override if ps[i].override >= 0 else ps[i].token
        confidence[i] = NAN if ps[i].override >= 0 else ps[i].p1
        # (6) Newly revealed become committed where asked, else revisable.
        committed[i] = ps[i].commit
    # (7)
    revealed = [i in chosen for i in range(len(ps))]
    return Outcome(tokens, committed, row.step + 1, revealed, remasked, confidence, fault)


# --- from rows of positions to tensors ----------------------------------------------------------------------------


def tensors(rows: list[Row]) -> tuple[State, Prediction, Action]:
    length = max(len(row.positions) for row in rows)
    padded = [row.positions + [Position("p", held=0, wanted=False)] * (length - len(row.positions)) for row in rows]

    def table(get, dtype):
        return torch.tensor([[get(p) for p in ps] for ps in padded], dtype=dtype)

    real = torch.float64
    state = State(
        tokens_BL=table(lambda p: MASK if p.kind == "m" else p.held, torch.long),
        fixed_BL=table(lambda p: p.kind in "gp", torch.bool),
        committed_BL=table(lambda p: p.kind in "gcp", torch.bool),
        length_B=torch.tensor([len(row.positions) for row in rows]),
        step_B=torch.tensor([row.step for row in rows]),
        horizon_B=torch.full((len(rows),), 9),
        mask_id=MASK,
    )
    p_BNK = torch.stack((table(lambda p: p.p1, real), table(lambda p: p.p2, real)), -1)
    statistics = Statistics(torch.zeros_like(p_BNK).long(), p_BNK, table(lambda p: p.entropy, real))
    token_BN = table(lambda p: p.token, torch.long)
    prediction = Prediction(
        wanted_BN=table(lambda p: p.wanted, torch.bool),
        token_BN=token_BN,
        confidence_BN=p_BNK[..., 0],
        proposed_BN=p_BNK[..., 0],
        clean=statistics,
        filtered=statistics,
        logz_BN=table(lambda p: p.logz, real),
        vocab=VOCAB,
        token_BND=token_BN[..., None],
        confidence_BND=p_BNK[..., :1],
        drift_BN=table(lambda p: p.drift, real) if rows[0].drift_known else None,
        visible_BN=table(lambda p: p.visible, real) if rows[0].attention_known else None,
    )
    remask_BL, tokens_BL = table(lambda p: p.remask, torch.bool), table(lambda p: p.override, torch.long)
    action = Action(
        alpha_BJ=torch.tensor([row.alpha for row in rows], dtype=real),
        region_BL=table(lambda p: p.region, torch.bool),
        kappa_B=torch.tensor([float(row.kappa) for row in rows], dtype=real),
        commit_BL=table(lambda p: p.commit, torch.bool),
        remask_BL=remask_BL if remask_BL.any() else None,
        tokens_BL=tokens_BL if (tokens_BL >= 0).any() else None,
    )
    return state, prediction, action


def outcome(change, row: int, length: int) -> Outcome:
    return Outcome(
        change.state.tokens_BL[row, :length].tolist(),
        change.state.committed_BL[row, :length].tolist(),
        int(change.state.step_B[row]),
        change.revealed_BL[row, :length].tolist(),
        change.remasked_BL[row, :length].tolist(),
        change.confidence_BL[row, :length].tolist(),
        int(change.fault_B[row]),
    )


def same(a: Outcome, b: Outcome) -> bool:
    return repr(a) == repr(b)  # NaN equals NaN


# --- random instances ---------------------------------------------------------------------------------------------


def random_position(r: Random, careless: bool) -> Position:
    p = Position(r.choice("gmmmmrrc"), held=r.randrange(VOCAB))
    p.wanted = p.kind == "m" and not (careless and r.random() < 0.05)
    p.region = r.random() < 0.7
    p.commit = r.random() < 0.5
    p.remask = r.random() < (0.4 if p.kind == "r" else 0.02 * careless)
    p.visible = r.randrange(9) / 8
    if p.wanted:
        p.token = r.randrange(VOCAB)
        # Eighths, so that ties are common and sums exact.
        p.p1 = r.randrange(9) / 8
        p.p2 = min(p.p1, 1 - p.p1) * r.choice((0, 0.5, 1))
        p.entropy = r.choice((0.0, 0.25, 0.5, 1.0)) * math.log(VOCAB)
        p.drift = r.choice((NAN, 0.0, 0.5, 2.0))
        p.logz = r.random()
    # Re-masked positions were not asked about: they need a token, or to stay out of the region.
    if p.remask and p.kind == "r":
        p.override = r.randrange(VOCAB) if r.random() < 0.5 else -1
        p.region = p.region and (p.override >= 0 or (careless and r.random() < 0.3))
    elif r.random() < 0.15:
        p.override = r.randrange(VOCAB)
    if careless and r.random() < 0.01:
        p.logz = r.choice((NAN, math.inf, -math.inf))
    return p


def random_row(r: Random, careless: bool, drift: bool, attention: bool) -> Row:
    alpha = [float(j == r.randrange(5)) for j in range(5)]
    if r.random() < 0.6 or sum(alpha) != 1:
        parts = [r.randrange(4) * (drift or j != 3) * (attention or j != 4) for j in range(5)]
        parts[0] += sum(parts) == 0
        alpha = [part / sum(parts) for part in parts]
    n = r.randint(1, 8)
    kappa = Fraction(r.randint(0, n), n)
    if careless and r.random() < 0.05:
        kappa = r.choice((Fraction(-1, 8), Fraction(9, 8)))
    if careless and r.random() < 0.05:
        alpha = r.choice(([0.5] * 5, [1.5, -0.5, 0, 0, 0], [0.0] * 5))
    if careless and r.random() < 0.1:
        alpha = [0.25, 0.25, 0.0, 0.25, 0.25]
    positions = [random_position(r, careless) for _ in range(r.randint(1, 12))]
    return Row(positions, alpha, kappa, r.randrange(5), drift, attention)


@settings(max_examples=400)
@given(seed=st.integers(0, 10**9), careless=st.booleans())
def test_against_the_blueprint(seed, careless):
    r = Random(seed)
    drift, attention = r.random() < 0.7, r.random() < 0.7
    rows = [random_row(r, careless, drift, attention) for _ in range(r.randint(1, 4))]
    change = apply(*tensors(rows))
    for b, row in enumerate(rows):
        got, want = outcome(change, b, len(row.positions)), slow_apply(row)
        if want.fault & (KAPPA | ALPHA | MISSING):
            # What would have been revealed has no meaning then.
            got.fault &= ~UNPROPOSED & ~MISSING
            want.fault &= ~UNPROPOSED & ~MISSING
        assert same(got, want), (got, want)
        tail = slice(len(row.positions), None)
        assert not change.revealed_BL[b, tail].any()
        assert not change.remasked_BL[b, tail].any()


def test_random_instances_reach_every_branch():
    """The comparison above is worth what its instances are worth."""
    r = Random(0)
    outcomes = []
    for _ in range(3000):
        drift, attention = r.random() < 0.7, r.random() < 0.7
        outcomes.append(slow_apply(random_row(r, True, drift, attention)))
    for flag in FAULTS.keys() - {OTHER_RULE, STUCK}:  # the blueprint has no `rule` and no limit
        assert sum(o.fault == flag for o in outcomes) > 5, FAULTS[flag]
    fine = [o for o in outcomes if not o.fault]
    assert len(fine) > 1000
    assert sum(any(o.remasked) for o in fine) > 100
    assert sum(any(a and b for a, b in zip(o.remasked, o.revealed, strict=True)) for o in fine) > 20
    assert sum(any(map(math.isnan, o.confidence)) for o in fine) > 100
    assert sum(not any(o.revealed) for o in fine) > 100


# --- rules, one by one --------------------------------------------------------------------------------------------


def row(
    kinds: str, *, scores=None, region=None, kappa=1, alpha="confidence", commit=True, step=0, **per_position
) -> Row:
    """A row of one letter per position; masked positions propose their own index as token."""
    positions = []
    for i, kind in enumerate(kinds):
        p = Position(kind, held=7, wanted=kind == "m", token=i % VOCAB, commit=commit)
        p.p1 = 0.5 if scores is None else scores[i]
        p.region = True if region is None else i in region
        for name, values in per_position.items():
            if i in values:
                setattr(p, name, values[i])
        positions.append(p)
    weights = [float(name == alpha) for name in RULES] if isinstance(alpha, str) else alpha
    return Row(positions, weights, Fraction(kappa), step)


def run(*rows: Row, **changed):
    state, prediction, action = tensors(list(rows))
    return apply(state, prediction, replace(action, **changed))


def where(flags_BL, row=0):
    return flags_BL[row].nonzero().flatten().tolist()


def flags(length, *positions):
    return torch.tensor([[i in positions for i in range(length)]])


# --- faults -------------------------------------------------------------------------------------------------------

FAULTY = {
    "empty region": (row("gmmmc", region=[4]), EMPTY),
    "given position alone": (row("gmmmc", region=[0]), EMPTY),
    "weights above 1": (row("gmm", alpha=[0.5] * 5), ALPHA),
    "no weights": (row("gmm", alpha=[0.0] * 5), ALPHA),
    "negative weight": (row("gmm", alpha=[1.5, -0.5, 0, 0, 0]), ALPHA),
    "weights not quite 1": (row("gmm", alpha=[1 - 1e-4, 0, 0, 0, 0]), ALPHA),
    "kappa below 0": (row("gmm", kappa=Fraction(-1, 100)), KAPPA),
    "kappa above 1": (row("gmm", kappa=Fraction(101, 100)), KAPPA),
    "remasked committed": (row("gcm", region=[2], remask={1: True}), REMASK),
    "remasked given": (row("ggm", region=[2], remask={1: True}), REMASK),
    "remasked mask": (row("gmm", region=[2], remask={1: True}), REMASK),
    "no sampled token": (row("gmm", wanted={2: False}), UNPROPOSED),
    "a mask as token": (row("gmm", wanted={2: False}, override={2: MASK}), UNPROPOSED),
    "NaN logits": (row("gmm", logz={2: NAN}, region=[1]), LOGITS),
    "infinite logits": (row("gmm", logz={2: math.inf}, region=[1]), LOGITS),
}


@each_case("name", FAULTY)
def test_a_faulty_row_is_flagged_and_does_not_change(name):
    faulty, flag = FAULTY[name]
    fine = row("gmmr", kappa=Fraction(1, 2))
    change = run(fine, faulty)
    assert change.fault_B.tolist() == [0, flag]
    assert same(outcome(change, 0, 4), slow_apply(fine))
    assert not (change.revealed_BL | change.remasked_BL)[1].any()
    with pytest.raises(DenoiserError if flag == LOGITS else InvalidAction, match=r"row 1, step 0: .*allowed: "):
        change.check()


def test_numbers_that_are_not_finite_are_faults():
    for kappa in (NAN, math.inf, -math.inf):
        assert run(row("gmm"), kappa_B=torch.tensor([kappa])).fault_B.tolist() == [KAPPA]
    assert run(row("gmm"), alpha_BJ=torch.tensor([[NAN, 0, 0, 0, 1]])).fault_B[0] & ALPHA


@pytest.mark.parametrize(("rule", "missing"), [("stability", "drift_BN"), ("dependency", "visible_BN")])
def test_weight_on_a_rule_that_was_not_computed_is_a_fault(rule, missing):
    state, prediction, action = tensors([row("gmm", alpha=rule)])
    assert apply(state, replace(prediction, **{missing: None}), action).fault_B.tolist() == [MISSING]
    state, prediction, action = tensors([row("gmm", alpha="margin")])
    assert apply(state, replace(prediction, **{missing: None}), action).fault_B.tolist() == [0]


WRONG_TENSORS = [
    {"alpha_BJ": torch.zeros(1, 4)},
    {"alpha_BJ": torch.zeros(2, 5)},
    {"kappa_B": torch.zeros(2)},
    {"tokens_BL": torch.zeros(1, 4, dtype=torch.long)},
    {"tokens_BL": torch.ones(1, 3)},
    *({f"{name}_BL": flags(2)} for name in ("region", "commit", "remask")),
    *({f"{name}_BL": torch.ones(1, 3, dtype=torch.long)} for name in ("region", "commit", "remask")),
]


@each_case("wrong", WRONG_TENSORS)
def test_tensors_of_another_shape_or_type_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(InvalidAction, match=rf"{name.partition('_')[0]} has (shape|dtype) .*; allowed: "):
        run(row("gmm"), **wrong)


@pytest.mark.parametrize("edit", ["replaced", "written to", "scaled"])
def test_alpha_may_not_contradict_the_named_rule(edit):
    """Else a step would be ordered by another rule than the recorded one."""
    state, prediction, action = tensors([row("gmmm", alpha=[1.0, 0, 0, 0, 0])] * 2)
    named = replace(action, rule="confidence")
    assert same(*(outcome(apply(state, prediction, a), 0, 4) for a in (action, named)))
    if edit == "replaced":
        named = replace(named, alpha_BJ=torch.tensor([[0.0, 1, 0, 0, 0], [1.0, 0, 0, 0, 0]]))
    elif edit == "written to":
        named.alpha_BJ[0] = torch.tensor([0.0, 1, 0, 0, 0])
    else:
        named.alpha_BJ[0, 0] = -1.0
    change = apply(state, prediction, named)
    assert change.fault_B.tolist() == [OTHER_RULE, 0]
    with pytest.raises(InvalidAction, match=r"row 0.*`rule` names a scoring rule.*drop `rule`"):
        change.check()
    with pytest.raises(InvalidAction, match="rule is 'confidenc'; allowed: confidence, margin"):
        apply(state, prediction, replace(named, rule="confidenc"))


def test_joined_actions_keep_a_rule_they_share():
    action = replace(tensors([row("gmm")])[2], rule="confidence")
    assert concat([action, action]).rule == "confidence"
    assert concat([action, replace(action, rule=None)]).rule is None
    assert select(action, torch.tensor([0])).rule == "confidence"


def test_all_reasons_and_the_first_row_are_named():
    faulty = row("gmm", region=[0], kappa=Fraction(3, 2), step=4)
    with pytest.raises(InvalidAction, match=r"row 1, step 4: the region .*; kappa is outside") as caught:
        run(row("gmm"), faulty, row("gmm", kappa=2)).check()
    assert "alpha" not in str(caught.value)


# --- purity -------------------------------------------------------------------------------------------------------


def random_batch(seed, careless=False):
    r = Random(seed)
    return [random_row(r, careless, True, True) for _ in range(5)]


def bits(value):
    """Every tensor of a nested value, as comparable lists."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), repr(value.tolist()))
    if is_dataclass(value):
        return [bits(getattr(value, f.name)) for f in fields(value)]
    return repr(value)


@each_case("seed", range(10))
def test_inputs_are_not_modified(seed):
    inputs = tensors(random_batch(seed, careless=True))
    before = [bits(copy.deepcopy(i)) for i in inputs]
    change = apply(*inputs)
    # Nor may the result share memory that a later step could write to.
    change.state.tokens_BL.fill_(0)
    change.state.committed_BL.fill_(True)
    change.state.step_B.fill_(99)
    assert [bits(i) for i in inputs] == before


def test_a_view_with_extra_slots_is_cut_to_the_canvas():
    state, prediction, action = tensors([row("gmm")])
    _, longer, _ = tensors([row("gmmmm")])
    assert same(*(outcome(apply(state, p, action), 0, 3) for p in (prediction, longer)))


# --- closing the tail after an end of text ------------------------------------------------------------------------

EOS = (0, 6)


def closed(*rows: Row):
    return fill_after_eos(run(*rows).check(), EOS)


def test_masks_after_a_revealed_end_of_text_are_filled():
    change = closed(row("gmmmmm", region=[1, 3], token={1: 4, 3: 6}))
    assert change.state.tokens_BL.tolist() == [[7, 4, MASK, 6, 0, 0]]
    assert where(change.state.masked_BL) == [2]
    assert where(change.revealed_BL) == [1, 3, 4, 5]
    assert where(change.state.committed_BL) == [0, 1, 3, 4, 5]
    assert repr(change.confidence_BL.tolist()) == "[[0.0, 0.5, 0.0, 0.5, nan, nan]]"


def test_an_end_of_text_revealed_earlier_counts_too():
    assert closed(row("gmrm", held={2: 0}, region=[1], token={1: 4})).state.tokens_BL.tolist() == [[7, 4, 0, 0]]


def test_end_of_text_in_the_prompt_or_an_infilled_text_ends_nothing():
    change = closed(row("gmmgmm", held={0: 0, 3: 6}, region=[1], token={1: 4}))
    assert change.state.tokens_BL.tolist() == [[0, 4, MASK, 6, MASK, MASK]]


def test_rows_close_for_themselves_and_padding_stays():
    change = closed(row("gmm", region=[1], token={1: 0}), row("gmmm", region=[1], token={1: 4}))
    assert change.state.tokens_BL.tolist() == [[7, 0, 0, 0], [7, 4, MASK, MASK]]
    assert where(change.revealed_BL) == [1, 2]
    assert where(change.revealed_BL, 1) == [1]


def test_no_end_of_text_no_change():
    change = run(row("gmmm", region=[1], token={1: 4})).check()
    assert bits(fill_after_eos(change, EOS)) == bits(change)


def test_a_proposed_mask_reveals_nothing():
    """Only possible without `bar_mask`: the position stays masked, uncommitted and unrecorded."""
    change = run(row("gmm", token={1: MASK})).check()
    assert where(change.revealed_BL) == [2]
    assert where(change.state.masked_BL) == [1]
    assert where(change.state.committed_BL) == [0, 2]
