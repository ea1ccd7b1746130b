"""A transformer as a denoiser: which slots are answered, what they read, and that neighbours do not matter."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.cases import each_case
from unmask.base.errors import DenoiserError
from unmask.core import ModelInput, Needs, Noise, State, Vocabulary, row_key
from unmask.engine import decode
from unmask.methods import make_policy
from unmask.models import Network, Transformer, TransformerSpec, default_readout_layers
from unmask.models.network import BUCKET

KINDS = ["llada", "dream", "mini", "mini-dream"]
"""Scaled down with random weights, and trained: the models of the package."""
CLOSE = 2e-5
"""Rounding of float32 between shapes or against float64, as a share of the largest logit (about 8)."""

kinds = each_case("kind", KINDS)


def tokens_of(lengths, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 480, (n,), generator=draw).tolist() for n in lengths]


def view_of(rows, wanted=None, slots=None) -> ModelInput:
    """Rows of tokens without a prompt; every slot is asked for unless `wanted` lists some."""
    slots = slots or max(map(len, rows))
    tokens_BN = torch.tensor([[*row, *[0] * (slots - len(row))] for row in rows])
    valid_BN = torch.tensor([[i < len(row) for i in range(slots)] for row in rows])
    wanted_BN = valid_BN.clone()
    if wanted is not None:
        wanted_BN = torch.tensor([[i in chosen for i in range(slots)] for chosen in wanted])
    return ModelInput(
        tokens_BN=tokens_BN,
        position_BN=torch.arange(slots).expand(len(rows), slots),
        valid_BN=valid_BN,
        fixed_BN=torch.zeros_like(valid_BN),
        wanted_BN=wanted_BN,
    )


def rows_of(answer, view):
    """The packed logits of each row of the batch."""
    return answer.logits_RV.split(view.wanted_BN.sum(-1).tolist())


def assert_close(got, expected, within=CLOSE):
    largest = expected.abs().max().item()
    torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=within * largest)


def assert_same_attention(got, expected, within=3e-5):
    torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=within)


def shifted(logits_NV, kind):
    """Whose logits speak for each slot."""
    return logits_NV if kind in ("llada", "mini") else torch.cat((logits_NV[:1], logits_NV[:-1]))


# What is answered.


@kinds
def test_logits_equal_the_float64_reference(kind, network, reference):
    rows = tokens_of([9, 17])
    inputs, net = view_of(rows), network(kind)
    for row, got in zip(rows, rows_of(net(inputs, Needs()), inputs), strict=True):
        assert_close(got, shifted(reference(net.model, row).logits_NV, kind))


@kinds
def test_wanted_slots_are_packed_row_by_row(kind, network):
    rows = tokens_of([20, 14])
    everything = network(kind)(view_of(rows), Needs())
    some = view_of(rows, wanted=[{3, 0, 19}, {1, 13}])
    answer = network(kind)(some, Needs())
    assert answer.slots.index_R.tolist() == [0, 3, 19, 21, 33]
    assert torch.equal(answer.logits_RV, everything.logits_RV[[0, 3, 19, 21, 33]])
    assert torch.equal(answer.wanted_BN, some.wanted_BN)
    assert answer.forwards == 1
    assert answer.processed_B is answer.attention_BNN is answer.hidden_RH is None


@kinds
def test_hidden_states_give_the_logits(kind, network):
    inputs, net = view_of(tokens_of([7, 12]), [{2, 5}, {0, 11}]), network(kind)
    answer = net(inputs, Needs(hidden=True))
    assert answer.hidden_RH.shape == (4, net.model.spec.width)
    assert_close(net.model.head(answer.hidden_RH), answer.logits_RV)
    assert torch.equal(answer.logits_RV, net(inputs, Needs()).logits_RV)


@pytest.mark.parametrize("token", [-1, 512, 10**6])
def test_unsupported_inputs_are_refused(token, network):
    with pytest.raises(DenoiserError, match=rf"holds token {token}; allowed: 0 to 511"):
        network("llada")(view_of([[3, token, 4]]), Needs())
    with pytest.raises(DenoiserError, match="no layers to read attention from"):
        network("llada")(view_of(tokens_of([5])), Needs(attention=True))


# Dream's shift.


def test_dream_reads_each_position_one_slot_before(network, reference):
    [row] = tokens_of([12])
    net = network("dream")
    expected = reference(net.model, row).logits_NV
    for slot in range(12):
        got = net(view_of([row], [{slot}]), Needs()).logits_RV
        assert_close(got[0], expected[max(slot - 1, 0)])
    assert (expected[1:] - expected[:-1]).abs().amax(-1).min() > 1, "neighbouring slots must differ for this to tell"


def with_extra(rows, positions) -> ModelInput:
    """Masks behind the canvas at positions of it; nobody reads them but they read everything."""
    plain, slots = view_of(rows), len(positions[0])
    batch, length = plain.tokens_BN.shape
    attend = torch.zeros(batch, length + slots, length + slots, dtype=torch.bool)
    attend[:, :, :length] = plain.valid_BN[:, None]
    attend |= torch.eye(length + slots, dtype=torch.bool)

    def cat(left, right):
        return torch.cat((left, torch.as_tensor(right).expand(batch, slots)), 1)

    return replace(
        plain,
        tokens_BN=cat(plain.tokens_BN, 503),
        position_BN=cat(plain.position_BN, positions),
        valid_BN=cat(plain.valid_BN, True),
        fixed_BN=cat(plain.fixed_BN, False),
        wanted_BN=cat(plain.wanted_BN, True),
        attend_BNN=attend,
    )


EXTRA = [
    ([2, 3, 4], [1, 6, 7]),
    ([4, 2, 3], [3, 1, 7]),
    ([0, 1, 5], [6, 6, 4]),
    ([3, 3, 4], [2, 2, 7]),
    ([5, 0, 1], [4, 7, 7]),
]
"""Positions of slots 6 to 8 behind a canvas of six, and where Dream reads them: in the run of extra slots that holds
the position before, else in the canvas."""


@kinds
@each_case(("positions", "read_at"), EXTRA)
def test_extra_slots_are_predicted_where_their_position_is(kind, positions, read_at, network, reference):
    inputs, net = with_extra(tokens_of([6, 6]), [positions, positions]), network(kind)
    source = read_at if kind in ("dream", "mini-dream") else [6, 7, 8]
    for b, got in enumerate(rows_of(net(inputs, Needs()), inputs)):
        expected = reference(net.model, inputs.tokens_BN[b], inputs.position_BN[b], inputs.attend_BNN[b]).logits_NV
        assert_close(got[-3:], expected[source])


# What a slot reads.


@kinds
@each_case("seed", range(4))
def test_pairwise_attention_equals_the_reference(kind, seed, network, reference):
    """A slot may be forbidden to read itself."""
    rows = tokens_of([10, 7], seed)
    draw = torch.Generator().manual_seed(seed)
    attend_BNN = torch.rand(2, 10, 10, generator=draw) < 0.5
    attend_BNN[:, :, 0] = True
    inputs, net = replace(view_of(rows), attend_BNN=attend_BNN), network(kind)
    for b, got in enumerate(rows_of(net(inputs, Needs()), inputs)):
        n = len(rows[b])
        expected = reference(net.model, rows[b], allowed_NK=attend_BNN[b, :n, :n]).logits_NV
        assert_close(got, shifted(expected, kind))


@kinds
def test_rows_ignore_padding(kind, network):
    inputs = view_of(tokens_of([5, 40]))
    spoilt = inputs.tokens_BN.clone()
    spoilt[0, 5:] = 77
    answers = [network(kind)(replace(inputs, tokens_BN=t), Needs()).logits_RV for t in (inputs.tokens_BN, spoilt)]
    assert torch.equal(*answers)


# Neighbours.

LENGTHS = [20, 33, 7, 40]


@kinds
def test_rows_have_the_same_bits_beside_any_neighbours(kind, network):
    """In another order, and among other neighbours."""
    rows, net = tokens_of(LENGTHS), network(kind)
    inputs = view_of(rows, slots=40)
    whole = rows_of(net(inputs, Needs()), inputs)
    order = [2, 0, 3, 1]
    for b, got in zip(order, rows_of(net(other := view_of([rows[b] for b in order]), Needs()), other), strict=True):
        assert torch.equal(got, whole[b])
    for b, row in enumerate(rows):
        strangers = tokens_of(LENGTHS, seed=5)
        strangers[b] = row
        other = view_of(strangers, slots=40)
        assert torch.equal(rows_of(net(other, Needs()), other)[b], whole[b])


@kinds
def test_padding_inside_a_bucket_changes_no_bit(kind, network):
    [row] = tokens_of([33])
    first = network(kind)(view_of([row]), Needs()).logits_RV
    for slots in range(34, 2 * BUCKET + 1, 6):
        assert torch.equal(network(kind)(view_of([row], slots=slots), Needs()).logits_RV, first)


@each_case(
    ("kind", "policy", "options"),
    [
        ("llada", "llada", {"block_length": 4}),
        ("llada", "llada", {"remasking": "random"}),
        (
            "llada",
            "fixed",
            {"alpha": "uniform", "region": "block:8", "kappa": "above:0.05", "commit": "confidence:0.5"},
        ),
        ("llada", "fixed", {"alpha": "dependency", "kappa": "count:2"}),
        ("llada", "wino", {"block_length": 8, "tau1": 0.05, "tau2": 0.05}),
        ("dream", "dream", {"alg": "entropy"}),
        ("dream", "dream", {"alg": "topk_margin", "alg_temp": 0.3}),
        ("dream", "fixed", {"alpha": {"margin": 0.5, "stability": 0.5}, "kappa": "count:3"}),
    ],
)
def test_decoded_tokens_do_not_depend_on_neighbours_or_padding(kind, policy, options, network):
    net, prompts = network(kind, readout=(1, 2)), tokens_of([3, 30, 11], seed=2)
    news = [16, 8, 16] if policy == "llada" else [13, 8, 16]
    policy = make_policy(policy, **options)

    def run(rows, pad=0):
        state = State.from_prompts(
            [prompts[b] for b in rows],
            new_tokens=[news[b] for b in rows],
            steps=[news[b] // 2 for b in rows],
            mask_id=net.vocabulary.mask_id,
        )
        noise = Noise.of([row_key(0, repr(prompts[b])) for b in rows])
        end = decode(net, policy, state.pad_to(state.tokens_BL.shape[1] + pad), noise=noise)
        ends = [end.state.tokens_BL[i, : int(end.state.length_B[i])].tolist() for i in range(len(rows))]
        return dict(zip(rows, ends, strict=True))

    whole = run([0, 1, 2])
    assert run([2, 0, 1]) == run([0, 1, 2], pad=40) == whole
    for b in range(3):
        assert run([b]) == {b: whole[b]}
        assert net.vocabulary.mask_id not in whole[b]


# The attention read-out.


@pytest.fixture(params=[("llada", 4), ("llada", 2), ("llada", 1), ("dream", 2)], ids=lambda p: f"{p[0]}-{p[1]}")
def reader(request, network):
    """A network of each kind and grouping that reads layers 0 and 2."""
    kind, kv_heads = request.param
    return network(kind, readout=(0, 2), kv_heads=kv_heads)


def mean_of(seen, layers=(0, 2), heads=slice(None)):
    return torch.stack([seen.attention[n][heads] for n in layers]).mean((0, 1))


def test_attention_equals_the_mean_of_the_reference(reader, reference):
    rows = tokens_of([12, 40])
    got = reader(view_of(rows), Needs(attention=True)).attention_BNN
    assert got.dtype == torch.float32
    for b, row in enumerate(rows):
        n = len(row)
        assert_same_attention(got[b, :n, :n], mean_of(reference(reader.model, row)))


@each_case("dtype", [torch.float32, torch.bfloat16])
@kinds
def test_reading_attention_changes_no_bit(kind, dtype, network):
    net = network(kind, dtype, readout=(0, 1, 2))
    for inputs in (view_of(tokens_of([12, 40])), with_extra(tokens_of([6, 9]), [[2, 3, 4]] * 2)):
        assert torch.equal(net(inputs, Needs(attention=True)).logits_RV, net(inputs, Needs()).logits_RV)


# Whose attention.


X, OTHER_X, Y, OTHER_Y, ASKS_X, MASK = range(6)


def lookup_network(query, shift=1) -> Network:
    """One layer that copies a token it looks for: `ASKS_X` looks for an X of either kind, a mask for a Y.

    Queries and keys live in the slow dimensions of the rotation, where positions do not matter.
    """
    spec = TransformerSpec(6, 32, 1, 1, 1, 8, theta=1e12, eps=1e-6, qkv_bias=False, rope_float32=True)
    model = Transformer(spec).eval()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    for norm in (model.norm, model.layers[0].attn_norm, model.layers[0].mlp_norm):
        torch.nn.init.ones_(norm.weight)
    eye_HH, layer = torch.eye(32), model.layers[0]
    looks, keys = {ASKS_X: 14, MASK: 15}, {X: 14, OTHER_X: 14, Y: 15, OTHER_Y: 15}
    with torch.no_grad():
        model.embed.weight.copy_(eye_HH[:6])
        for token, place in looks.items():
            layer.qkv.weight[place, token] = 10
        for token, place in keys.items():
            layer.qkv.weight[32 + place, token] = 10
        for token in range(6):
            layer.qkv.weight[64 + 16 + token, token] = 1
            model.head.weight[token, 16 + token] = 1
        layer.out.weight.copy_(eye_HH)
    return Network(model, Vocabulary(6, MASK), shift, (0,), query)


def test_predicting_query_is_the_slot_before():
    """The last position is predicted at the slot of `ASKS_X`: X decides what is said there, Y does not."""
    canvas = [X, Y, ASKS_X, MASK]

    def says(tokens, net):
        return net(view_of([tokens], [[3]]), Needs(attention=True))

    own, predicting = (says(canvas, lookup_network(query)) for query in ("own", "predicting"))
    assert torch.equal(own.logits_RV, predicting.logits_RV)
    assert predicting.logits_RV.argmax() == X
    assert says([OTHER_X, Y, ASKS_X, MASK], lookup_network("own")).logits_RV.argmax() == OTHER_X
    assert torch.equal(says([X, OTHER_Y, ASKS_X, MASK], lookup_network("own")).logits_RV, own.logits_RV)
    assert predicting.attention_BNN[0, 3].tolist() == pytest.approx([1, 0, 0, 0], abs=1e-4)
    assert own.attention_BNN[0, 3].tolist() == pytest.approx([0, 1, 0, 0], abs=1e-4)
    assert torch.equal(predicting.attention_BNN[0, 1:], own.attention_BNN[0, :-1])
    assert torch.equal(predicting.attention_BNN[0, 0], own.attention_BNN[0, 0])


@kinds
def test_slot_has_the_same_bits_alone_and_among_many(kind, network):
    """Up to a pack of rows the head is one product of one shape."""
    rows = tokens_of([40])
    many = network(kind)(view_of(rows), Needs()).logits_RV
    for slot in (0, 1, 39):
        assert torch.equal(network(kind)(view_of(rows, [{slot}]), Needs()).logits_RV[0], many[slot])


@pytest.mark.parametrize(
    ("layers", "chosen"), [(1, (0,)), (2, (1,)), (3, (1, 2)), (28, (15, 19, 22, 26)), (32, (18, 22, 26, 30))]
)
def test_default_layers_are_four_of_the_upper_half(layers, chosen):
    assert default_readout_layers(layers) == chosen
