"""Approximate caches against Fast-dLLM's scheme written out in float64, and what they promise beside it."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, DenoiserError
from unmask.core import ModelInput, Needs, Noise, State, row_key, select
from unmask.engine import decode
from unmask.methods import LLaDA, make_policy
from unmask.models import BlockCache

KINDS = ["llada", "dream"]
CACHES = ["prefix", "dual"]
CLOSE = 2e-5
"""Rounding of float32 between shapes or against float64, as a share of the largest logit (about 8)."""

kinds = each_case("kind", KINDS)
caches = each_case("cache", CACHES)


def tokens_of(lengths, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 480, (n,), generator=draw).tolist() for n in lengths]


def assert_close(got, expected):
    torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=CLOSE * expected.abs().max().item())


def start(net, prompts, new, steps=None) -> State:
    """Rows of prompt and blanks."""
    return State.from_prompts(prompts, new_tokens=new, steps=steps or new, mask_id=net.vocabulary.mask_id)


def view_of(state) -> ModelInput:
    return replace(ModelInput.of(state, Needs()), row_B=torch.arange(state.batch))


def put(state, row, changes) -> State:
    """The state with some tokens of a row changed."""
    tokens_BL = state.tokens_BL.clone()
    for position, token in changes.items():
        tokens_BL[row, position] = token
    return replace(state, tokens_BL=tokens_BL)


def by_slot(answer):
    """Logits by row and slot."""
    return {tuple(at): z for at, z in zip(answer.wanted_BN.nonzero().tolist(), answer.logits_RV, strict=True)}


def is_fresh(answer, view):
    """Every row was computed as a whole."""
    return answer.processed_B is None or torch.equal(answer.processed_B, view.valid_BN.sum(-1))


@dataclass(frozen=True)
class Recorder:
    """A denoiser that remembers what went in and came out."""

    denoiser: object
    calls: list = field(default_factory=list)

    @property
    def vocabulary(self):
        return self.denoiser.vocabulary

    @property
    def device(self):
        return self.denoiser.device

    def __call__(self, view, needs):
        answer = self.denoiser(view, needs)
        self.calls.append((view, answer))
        return answer


def run(denoiser, policy, state, keys=None):
    keys = range(state.batch) if keys is None else keys
    return decode(denoiser, policy, state, noise=Noise.of([row_key(0, key) for key in keys]))


# Fast-dLLM, written out.


@dataclass
class FastDLLM:
    """One row: a full pass where a block begins; then its span alone, everything else's keys and values frozen."""

    net: object
    reference: object
    cache: str
    block: int
    answer: list
    """Slots to be filled; blocks are cut on these."""
    open_block: int = -1
    frozen: list = field(default_factory=list)

    def __call__(self, canvas):
        masks = [i for i in self.answer if canvas[i] == self.net.vocabulary.mask_id]
        shift = self.net.shift
        block = self.answer.index(masks[0]) // self.block
        inside = self.answer[block * self.block : (block + 1) * self.block]
        span = range(max(inside[0] - shift, 0), len(canvas) if self.cache == "prefix" else inside[-1] + 1)
        if block != self.open_block:
            seen = self.reference(self.net.model, canvas)
            self.open_block, self.frozen, span = block, seen.kv, range(len(canvas))
        else:
            seen = self.reference(self.net.model, [canvas[i] for i in span], span, frozen=(self.frozen, span))
        logits = dict(zip(span, seen.logits_NV, strict=True))
        return {i: logits[max(i - shift, 0)] for i in masks if i in span}, len(span)


def assert_is_fast_dllm(calls, state, net, reference, cache, block):
    """Every recorded pass of every row, slot by slot."""
    authors = [
        FastDLLM(net, reference, cache, block, state.answer_BL[b].nonzero().flatten().tolist())
        for b in range(state.batch)
    ]
    passes = 0
    for view, answer in calls:
        got = by_slot(answer)
        for at, b in enumerate(view.row_B.tolist()):
            canvas = view.tokens_BN[at, : int(state.length_B[b])].tolist()
            expected, size = authors[b](canvas)
            assert sorted(i for row, i in got if row == at) == sorted(expected)
            for i, logits in expected.items():
                assert_close(got[at, i], logits)
            processed = len(canvas) if answer.processed_B is None else int(answer.processed_B[at])
            assert processed == size
            passes += size < len(canvas)
    assert passes > 0, "nothing was reused"


@caches
@kinds
@each_case(("block", "steps"), [(4, 12), (4, 6), (6, 12), (12, 4)])
def test_blocks_are_decoded_as_fast_dllm_does(kind, cache, block, steps, network, reference):
    net = network(kind)
    state = start(net, tokens_of([5, 9, 1]), 12, steps)
    recorder = Recorder(BlockCache(net, cache, block))
    run(recorder, LLaDA(block), state)
    assert_is_fast_dllm(recorder.calls, state, net, reference, cache, block)


@caches
@kinds
def test_infilled_blocks_are_decoded_as_fast_dllm_does(kind, cache, network, reference):
    """Infilling, also from the very first position: blocks are cut on blanks, and spans cover what lies between."""
    net = network(kind)
    m = net.vocabulary.mask_id
    canvases = [[m, 7, m, m, 8, 9, m, m, m, 3], [1, 2, m, 4, m, m, m, 5, m, m, 6], [m, m, m, m, m, m]]
    state = State.from_canvases(canvases, steps=6, mask_id=m)
    recorder = Recorder(BlockCache(net, cache, 3))
    run(recorder, LLaDA(3), state)
    assert_is_fast_dllm(recorder.calls, state, net, reference, cache, 3)


@pytest.mark.parametrize(
    ("kind", "cache", "sizes"),
    [
        ("llada", "prefix", [11, 8, 11, 6, 11, 4, 11, 2]),
        ("llada", "dual", [11, 2, 11, 2, 11, 2, 11, 2]),
        ("dream", "prefix", [11, 9, 11, 7, 11, 5, 11, 3]),
        ("dream", "dual", [11, 3, 11, 3, 11, 3, 11, 3]),
    ],
)
def test_cost_counts_the_slots_that_are_recomputed(kind, cache, sizes, network):
    """Three tokens of prompt, four blocks of two: Dream's span begins a slot early."""
    net = network(kind)
    end = run(BlockCache(net, cache, 2), LLaDA(2), start(net, tokens_of([3]), 8))
    assert [int(step.processed_B) for step in end.steps] == sizes
    assert int(end.processed_B) == sum(sizes)
    assert end.forwards_B.tolist() == [8]


@pytest.mark.parametrize(
    ("refresh", "sizes"),
    [
        (0, [10, 6, 6, 6, 6, 6]),
        (1, [10] * 6),
        (2, [10, 6, 10, 6, 10, 6]),
        (3, [10, 6, 6, 10, 6, 6]),
        (6, [10, 6, 6, 6, 6, 6]),
    ],
)
def test_refresh_sets_how_often_a_pass_is_complete(refresh, sizes, network):
    net = network("llada")
    end = run(BlockCache(net, "dual", 6, refresh), LLaDA(6), start(net, tokens_of([4]), 6))
    assert [int(step.processed_B) for step in end.steps] == sizes


# The exact network's numbers.


@caches
@kinds
@each_case("policy", [LLaDA(4), LLaDA(), make_policy("fixed", region="window:6", kappa="count:2")])
def test_refresh_at_every_step_is_the_plain_network_to_the_bit(kind, cache, policy, network):
    net = network(kind)
    state = start(net, tokens_of([5, 9, 1]), [12, 8, 12], [12, 4, 6])
    plain, cached = Recorder(net), Recorder(BlockCache(net, cache, 4, refresh=1))
    ends = [run(denoiser, policy, state) for denoiser in (plain, cached)]
    assert len(plain.calls) == len(cached.calls)
    for (_, expected), (_, got) in zip(plain.calls, cached.calls, strict=True):
        assert torch.equal(got.logits_RV, expected.logits_RV)
        assert torch.equal(got.wanted_BN, expected.wanted_BN)
    assert torch.equal(ends[0].state.tokens_BL, ends[1].state.tokens_BL)
    assert torch.equal(ends[0].processed_B, ends[1].processed_B)


def test_reused_keys_and_values_change_logits(network):
    """Else these tests could not tell a cache from the plain network."""
    net = network("llada")
    state = start(net, tokens_of([5]), 12)
    cache = BlockCache(net, "dual", 4)
    cache(view_of(state), Needs())
    filled = put(state, 0, {5: 17, 7: 30})
    stale, exact = (by_slot(denoiser(view_of(filled), Needs())) for denoiser in (cache, net))
    assert set(stale) == {(0, 6), (0, 8)}
    assert all((stale[at] - exact[at]).abs().max() > 0.01 for at in stale)


@caches
@kinds
@each_case("given", [0, 1, 7])
def test_reuse_on_an_unchanged_canvas_repeats_the_complete_pass(kind, cache, given, network):
    """Also at the block's first slot, which Dream reads one slot before it; and with nothing before it."""
    net = network(kind)
    m = net.vocabulary.mask_id
    state = State.from_canvases([[*tokens_of([given])[0], *[m] * 12]], steps=12, mask_id=m)
    state = put(state, 0, {given + i: 40 + i for i in (0, 1, 2, 3, 5)})
    wrapper, inputs = BlockCache(net, cache, 4), view_of(state)
    full, stale = wrapper(inputs, Needs()), wrapper(inputs, Needs())
    assert is_fresh(full, inputs)
    block = {(0, given + i) for i in (4, 6, 7)}
    behind = {(0, given + i) for i in (8, 9, 10, 11)} if cache == "prefix" else set()
    assert set(by_slot(stale)) == block | behind
    assert torch.equal(full.logits_RV, net(inputs, Needs()).logits_RV)
    for at, logits in by_slot(stale).items():
        assert_close(logits, by_slot(full)[at])


@caches
@kinds
def test_hidden_states_belong_to_the_logits(kind, cache, network):
    net = network(kind)
    inputs, wrapper = view_of(start(net, tokens_of([5, 9]), 8)), BlockCache(net, cache, 4)
    for _ in range(2):
        answer = wrapper(inputs, Needs(hidden=True))
        assert len(answer.hidden_RH) == len(answer.logits_RV)
        assert_close(net.model.head(answer.hidden_RH), answer.logits_RV)
    assert wrapper(inputs, Needs()).hidden_RH is None


# When reuse must stop.


@caches
@kinds
def test_any_other_change_than_filled_masks_ends_reuse(kind, cache, network):
    net = network(kind)
    m = net.vocabulary.mask_id
    base = put(start(net, tokens_of([6]), 12), 0, {6: 1, 7: 2, 8: 3, 9: 4, 11: 5})
    changes = {
        "nothing": ({}, True),
        "a mask of the block": ({10: 9}, True),
        "a mask behind the block": ({15: 9}, cache == "prefix"),
        "a token of the prompt": ({2: 9}, False),
        "a token of an earlier block": ({7: 9}, False),
        "a token of the block": ({11: 9}, False),
        "a token masked again": ({11: m}, False),
        "an earlier block opened again": ({8: m}, False),
        "the block filled": ({10: 9, 12: 9, 13: 9}, False),
    }
    for what, (change, reused) in changes.items():
        wrapper = BlockCache(net, cache, 4)
        for _ in range(2):
            wrapper(view_of(base), Needs())
        inputs = view_of(put(base, 0, change))
        answer = wrapper(inputs, Needs())
        assert is_fresh(answer, inputs) != reused, what
        if not reused:
            assert torch.equal(answer.logits_RV, net(inputs, Needs()).logits_RV), what


@caches
def test_row_that_begins_anew_leaves_its_neighbours_alone(cache, network):
    """Row 1 loses a token and is computed as a whole; rows 0 and 2 are not, in one answer, in row order."""
    net = network("llada")
    state = put(start(net, tokens_of([6, 4, 9]), 8), 1, {4: 7})
    wrapper = BlockCache(net, cache, 4)
    wrapper(view_of(state), Needs(hidden=True))
    changed = put(put(state, 1, {4: net.vocabulary.mask_id}), 0, {7: 30})
    inputs = view_of(changed)
    answer = wrapper(inputs, Needs(hidden=True))
    span = 8 if cache == "prefix" else 4
    assert answer.processed_B.tolist() == [span, 12, span]
    for b in range(3):
        alone = BlockCache(net, cache, 4)
        for s in (state, changed):
            one = s.select(torch.tensor([b]))
            got = alone(replace(ModelInput.of(one, Needs()), row_B=torch.tensor([b])), Needs(hidden=True))
        mine = {at[1]: logits for at, logits in by_slot(answer).items() if at[0] == b}
        assert list(mine) == [at[1] for at in by_slot(got)]
        for at, logits in by_slot(got).items():
            assert_close(mine[at[1]], logits)
    assert_close(net.model.head(answer.hidden_RH), answer.logits_RV)


@caches
@kinds
def test_second_decode_with_the_same_cache_starts_fresh(kind, cache, network):
    net = network(kind)
    used = BlockCache(net, cache, 4)
    for seed, steps in [(0, 8), (1, 8), (0, 8), (0, 4), (2, 2)]:
        state = start(net, tokens_of([5, 9], seed), 8, steps)
        again, fresh = run(used, LLaDA(4), state), run(BlockCache(net, cache, 4), LLaDA(4), state)
        assert torch.equal(again.state.tokens_BL, fresh.state.tokens_BL)
        assert torch.equal(again.processed_B, fresh.processed_B)


@caches
def test_padding_is_not_taken_for_a_token(cache, network):
    """The same numbers on the canvas, but the last is padding now."""
    net = network("llada")
    m = net.vocabulary.mask_id
    wrapper = BlockCache(net, cache, 2)
    whole, short = [[m, m, 5, 0], [m, m, 5, 1]], [[m, m, 5], [m, m, 5, 1]]
    for canvases in (whole, short):
        inputs = view_of(State.from_canvases(canvases, steps=1, mask_id=m))
        answer = wrapper(inputs, Needs())
    exact = by_slot(net(inputs, Needs()))
    for at, logits in by_slot(answer).items():
        assert_close(logits, exact[at])


@caches
def test_look_aheads_bypass_the_cache(cache, network):
    net = network("llada")
    state = start(net, tokens_of([5, 9]), 8)
    look = replace(view_of(put(state, 0, {2: 77})), row_B=None)
    quiet, disturbed = BlockCache(net, cache, 4), BlockCache(net, cache, 4)
    for wrapper in (quiet, disturbed):
        wrapper(view_of(state), Needs())
    answer = disturbed(look, Needs())
    assert torch.equal(answer.logits_RV, net(look, Needs()).logits_RV)
    assert answer.processed_B is None
    filled = view_of(put(state, 0, {6: 11}))
    assert torch.equal(quiet(filled, Needs()).logits_RV, disturbed(filled, Needs()).logits_RV)


# Neighbours.


@caches
@kinds
def test_rows_decode_alone_as_in_a_batch(kind, cache, network):
    """Blocks end when their tokens are sure enough, so that rows begin new ones, and refresh, at different times."""
    net, prompts, news = network(kind), tokens_of([5, 14, 2, 9], seed=3), [12, 16, 7, 12]
    policy = make_policy("fixed", region="block:4", kappa="above:0.12", commit="all")

    def decoded(rows):
        recorder = Recorder(BlockCache(net, cache, 4, refresh=3))
        state = start(net, [prompts[b] for b in rows], [news[b] for b in rows])
        end = run(recorder, policy, state, keys=rows)
        ends = [end.state.tokens_BL[i, : int(end.state.length_B[i])].tolist() for i in range(len(rows))]
        return dict(zip(rows, zip(ends, end.processed_B.tolist(), strict=True), strict=True)), recorder.calls

    whole, calls = decoded([0, 1, 2, 3])
    sizes = [view.valid_BN.sum(-1) == answer.processed_B for view, answer in calls if answer.processed_B is not None]
    assert any(fresh_B.any() and not fresh_B.all() for fresh_B in sizes), "full and partial passes in one answer"
    assert decoded([3, 1, 0, 2])[0] == whole
    for b in range(4):
        assert decoded([b])[0] == {b: whole[b]}


@caches
@kinds
@each_case("order", [[0, 1, 2], [0, 2, 1], [2, 1, 0]])
def test_row_that_joins_leaves_the_bits_of_its_neighbours(kind, cache, order, network):
    """Row 2 joins at the third pass: only it is computed as a whole, wherever it stands among the rows."""
    net = network(kind)
    first = start(net, tokens_of([6, 6, 6]), 8)
    second = put(put(first, 0, {6: 30}), 1, {8: 31})
    third = put(put(second, 0, {9: 32}), 1, {6: 33})
    quiet, joined = BlockCache(net, cache, 4), BlockCache(net, cache, 4)
    for state in (first, second):
        pair = select(view_of(state), torch.tensor([0, 1]))
        quiet(pair, Needs())
        joined(pair, Needs())
    expected = by_slot(quiet(select(view_of(third), torch.tensor([0, 1])), Needs()))
    rows = select(view_of(third), torch.tensor(order))
    answer = joined(rows, Needs())
    span = 8 + net.shift if cache == "prefix" else 4 + net.shift
    assert answer.processed_B.tolist() == [14 if row == 2 else span for row in order]
    got = {(order[at], slot): logits for (at, slot), logits in by_slot(answer).items()}
    assert {at for at in got if at[0] != 2} == set(expected)
    for at, logits in expected.items():
        assert torch.equal(got[at], logits)
    whole = by_slot(net(select(view_of(third), torch.tensor([2])), Needs()))
    for (_, slot), logits in whole.items():
        assert_close(got[2, slot], logits)


@caches
def test_longer_row_that_joins_leaves_the_cache_of_its_neighbours(cache, network):
    """All canvases become longer, and so does the memory."""
    net = network("llada")
    state = start(net, tokens_of([6, 6, 40]), 8)
    short = state.select(torch.tensor([0, 1]))
    short = replace(short, tokens_BL=short.tokens_BL[:, :14], fixed_BL=short.fixed_BL[:, :14])
    short = replace(short, committed_BL=short.committed_BL[:, :14])
    quiet, joined = BlockCache(net, cache, 4), BlockCache(net, cache, 4)
    for wrapper in (quiet, joined):
        wrapper(view_of(short), Needs())
    expected = by_slot(quiet(view_of(put(short, 0, {6: 30})), Needs()))
    answer = joined(view_of(put(state, 0, {6: 30})), Needs())
    assert answer.processed_B.tolist() == [8, 8, 48] if cache == "prefix" else [4, 4, 48]
    got = by_slot(answer)
    for at, logits in expected.items():
        assert_close(got[at], logits)


# What is refused.


@pytest.mark.parametrize(
    ("needs", "attend", "what"),
    [
        (Needs(attention=True), False, "attention"),
        (Needs(revealed=True), False, "predictions of revealed tokens"),
        (Needs(), True, "pairwise attention"),
    ],
)
def test_unsupported_requests_are_refused(needs, attend, what, network):
    net = network("llada", readout=(1,))
    inputs = view_of(start(net, tokens_of([5]), 4))
    if attend:
        inputs = replace(inputs, attend_BNN=torch.ones(1, 9, 9, dtype=torch.bool))
    message = rf"the policy asks for {what}; allowed: predictions of masked slots under an approximate cache; choose"
    with pytest.raises(DenoiserError, match=message):
        BlockCache(net, "dual", 4)(inputs, needs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "both"}, r"cache is 'both'; allowed: prefix or dual"),
        ({"block": 0}, r"block is 0; allowed: 1 or more"),
        ({"refresh": -1}, r"refresh is -1; allowed: 0 or more"),
    ],
)
def test_impossible_settings_are_refused(options, message, network):
    with pytest.raises(ConfigError, match=message):
        BlockCache(network("llada"), **{"kind": "dual", "block": 4, "refresh": 0} | options)
