"""A row alone and in a batch: how many rows that takes is found on the device, and smaller batches are filled up."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.device import DEVICE
from tests.helpers.gpu import gpu
from unmask.api.load import load
from unmask.base.errors import DenoiserError
from unmask.core import ModelInput, Needs, Noise, State, Vocabulary, row_key, select
from unmask.engine import decode
from unmask.methods import LLaDA, make_policy
from unmask.models import BlockCache, Network, Transformer, TransformerSpec
from unmask.models.execution import choose_execution, use_engine
from unmask.models.invariance import COMPARED_ROWS, Bounds, RowBounds, find_bounds
from unmask.models.transformer import PlainOps

CUDA = torch.device("cuda:0")


class FewDiffer(PlainOps):
    """Operations that give other last bits to fewer rows than four, as a GPU's products do."""

    few = 4

    def gate(self, gate, up):
        return super().gate(gate, up) * (1 + 2**-20 if len(gate) < self.few else 1)


class FewSlotsDiffer(PlainOps):
    """Other last bits for few slots, however many rows they make."""

    def gate(self, gate, up):
        return super().gate(gate, up) * (1 + 2**-20 if gate[..., 0].numel() < 150 else 1)


class AllDiffer(PlainOps):
    """Other bits for every number of rows."""

    def gate(self, gate, up):
        return super().gate(gate, up) * (1 + len(gate) * 2**-20)


class PlacesDiffer(PlainOps):
    """Other bits for a row's place."""

    def gate(self, gate, up):
        return super().gate(gate, up) * (1 + torch.arange(len(gate))[:, None, None] * 2**-20)


@pytest.fixture
def uneven(network, transformer):
    """A network of its own whose layers run some operations."""

    def build(ops, kind="llada", invariant=True):
        model = transformer(kind).use_ops(ops)
        return replace(network(kind), model=model, row_bounds=RowBounds(model) if invariant else None)

    return build


def a_view(net, rows, lengths=(20, 18, 7), device="cpu", new=12):
    draw = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 200, (lengths[b % len(lengths)],), generator=draw).tolist() for b in range(rows)]
    state = State.from_prompts(prompts, new_tokens=new, steps=6, mask_id=net.vocabulary.mask_id, device=device)
    return ModelInput.of(state, Needs())


def of_rows(denoiser, view, rows):
    """The logits of each of the first rows, as a batch of these alone has them."""
    some = select(view, torch.arange(rows, device=view.tokens_BN.device))
    answer = denoiser(some, Needs())
    owner_R = answer.slots.index_R // view.tokens_BN.shape[1]
    return [answer.logits_RV[owner_R == b].clone() for b in range(rows)]


def equal_in_all_sizes(denoiser, view, sizes):
    """By size: whether each row has the bits it has in the largest batch."""
    whole = of_rows(denoiser, view, max(sizes))
    return {
        size: all(torch.equal(one, other) for one, other in zip(of_rows(denoiser, view, size), whole, strict=False))
        for size in sizes
    }


# The search.


def places(differ):
    """What n places give for one row, if the sizes for which `differ` holds have other bits."""
    return lambda n: torch.full((n, 3), 1.0 + (n if differ(n) else 0))


@pytest.mark.parametrize(
    ("differ", "bounds"),
    [
        (lambda n: False, Bounds(1)),
        (lambda n: n < 3, Bounds(3)),
        (lambda n: n in (1, 6), Bounds(7)),
        (lambda n: True, Bounds(32, 32)),
    ],
)
def test_search_finds_the_least_size_from_which_all_agree(differ, bounds):
    assert find_bounds(places(differ), COMPARED_ROWS) == bounds


def test_devices_where_places_differ_are_refused(uneven):
    net = uneven(PlacesDiffer())
    message = "invariant is True, but on this device a row's bits depend on its place among 32 rows; allowed: False"
    with pytest.raises(DenoiserError, match=message):
        net.row_bounds.find_layer_bounds(32, 32)


# What it is for.


@pytest.mark.parametrize("kind", ["llada", "dream"])
@pytest.mark.parametrize("ops", [FewDiffer(), AllDiffer()], ids=["few", "all"])
def test_rows_have_the_same_bits_in_every_batch(kind, ops, uneven):
    sizes = (1, 2, 3, 4, 5, 7)
    plain, net = uneven(ops, kind, invariant=False), uneven(ops, kind)
    view = a_view(net, 7)
    without = equal_in_all_sizes(plain, view, sizes)
    assert not without[1], "else this test could not fail"
    assert all(equal_in_all_sizes(net, view, sizes).values())


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_cached_rows_have_the_same_bits_in_every_batch(cache, uneven):
    """A complete pass, then two over spans."""
    net = uneven(FewDiffer())
    view = replace(a_view(net, 5), row_B=torch.arange(5))

    def third(denoiser, rows):
        wrapper = BlockCache(denoiser, cache, 4)
        for _ in range(2):
            of_rows(wrapper, view, rows)
        return of_rows(wrapper, view, rows)

    for size in (1, 2, 3, 4):
        assert all(torch.equal(a, b) for a, b in zip(third(net, size), third(net, 5), strict=False))
    plain = uneven(FewDiffer(), invariant=False)
    assert not torch.equal(third(plain, 1)[0], third(plain, 5)[0]), "else this test could not fail"


def test_cached_rows_of_a_short_last_block_have_the_same_bits(uneven):
    """Its passes are narrower than those of other blocks, and need more rows."""
    net = uneven(FewSlotsDiffer())
    view = a_view(net, 6, new=44)
    answer_BN = view.valid_BN & ~view.fixed_BN
    tokens_BN = torch.where(answer_BN & (answer_BN.cumsum(-1) <= 40), 7, view.tokens_BN)
    wanted_BN = view.wanted_BN & (tokens_BN == net.vocabulary.mask_id)
    view = replace(view, tokens_BN=tokens_BN, wanted_BN=wanted_BN, row_B=torch.arange(6))

    def second(rows):
        wrapper = BlockCache(net, "dual", 40)
        of_rows(wrapper, view, rows)
        return of_rows(wrapper, view, rows)

    for size in (1, 2, 3):
        assert all(torch.equal(a, b) for a, b in zip(second(size), second(6), strict=False)), size


def test_pieces_of_long_batches_have_the_same_bits(uneven, monkeypatch):
    """Pieces that go through the layers together are filled up as well."""
    monkeypatch.setattr("unmask.models.network.PIECE", 32 * 6)
    net = uneven(FewDiffer())
    view = a_view(net, 7)
    assert all(equal_in_all_sizes(net, view, (1, 3, 6, 7)).values())
    plain = uneven(FewDiffer(), invariant=False)
    assert not equal_in_all_sizes(plain, view, (1, 7))[1]


@pytest.mark.parametrize("dtype", ["fp32" if DEVICE.type == "cpu" else "bf16"])
@pytest.mark.parametrize(
    ("name", "policy"),
    [("mini", LLaDA(8)), ("mini", make_policy("fast-dllm", block_length=8)), ("mini-dream", make_policy("dream"))],
    ids=lambda value: getattr(value, "name", value),
)
def test_rows_decode_alone_as_in_a_batch(name, dtype, policy):
    """With the default engine, on the CPU or where `UNMASK_TEST_DEVICE` says: tokens and confidences, to the bit."""
    net = load(name, device=str(DEVICE), dtype=dtype, invariant=True).denoiser
    draw = torch.Generator().manual_seed(3)
    prompts = [torch.randint(0, 200, (n,), generator=draw).tolist() for n in (5, 40, 12)]

    def decoded(rows):
        state = State.from_prompts(
            [prompts[b] for b in rows], new_tokens=8, steps=4, mask_id=net.vocabulary.mask_id, device=DEVICE
        )
        end = decode(net, policy, state, noise=Noise.of([row_key(0, b) for b in rows], DEVICE))
        return {b: told(end.row(at)) for at, b in enumerate(rows)}

    whole = decoded([0, 1, 2])
    assert decoded([2, 0, 1]) == whole
    for b in range(3):
        assert decoded([b]) == {b: whole[b]}


def told(row):
    """What a row decided, and how sure it was: of its answer alone, so that padding does not matter."""
    length = int(row.state.length_B[0])
    sure = [step.confidence_BL[0, :length].cpu().numpy().tobytes() for step in row.steps]
    return row.state.tokens_BL[0, :length].tolist(), sure


# On a GPU.


@pytest.fixture(scope="module")
def wide():
    """Four layers of LLaDA-8B's width, in bfloat16."""
    spec = TransformerSpec(126464, 4096, 4, 32, 32, 12288, 5e5, 1e-5, qkv_bias=False, rope_float32=True)
    model = Transformer.empty(spec, CUDA, torch.bfloat16).requires_grad_(False)
    draw = torch.Generator(CUDA).manual_seed(0)
    for name, values in model.named_parameters():
        values.fill_(1.0) if "norm" in name else values.normal_(std=0.02, generator=draw)
    return Network(model, Vocabulary(spec.vocab, spec.vocab - 1), readout=(2, 3))


@gpu
@pytest.mark.parametrize("engine", ["auto", "graph"])
def test_rows_have_the_same_bits_in_every_batch_on_a_gpu(engine, wide):
    net = use_engine(wide, choose_execution(engine, CUDA).engine, invariant=True)
    for lengths in ((96, 90, 70), (200, 33, 128)):  # the second pads some rows to several times their length
        view = a_view(net, 32, lengths, CUDA, new=32)
        for _ in range(3):  # plain, recorded, replayed
            equal = equal_in_all_sizes(net, view, (1, 2, 3, 4, 8, 32))
            assert all(equal.values()), equal


@gpu
@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_cached_rows_have_the_same_bits_in_every_batch_on_a_gpu(cache, wide):
    net = use_engine(wide, choose_execution("auto", CUDA).engine, invariant=True)
    view = a_view(net, 8, (96, 90, 70), CUDA, new=32)
    view = replace(view, row_B=torch.arange(8, device=CUDA))
    seen = {}
    for size in (8, 1, 2, 3, 4):
        wrapper = BlockCache(net, cache, 16)
        for _ in range(3):
            seen[size] = of_rows(wrapper, view, size)
        assert all(torch.equal(a, b) for a, b in zip(seen[size], seen[8], strict=False)), size
