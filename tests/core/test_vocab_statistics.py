"""The pass over the vocabulary against plain float64 arithmetic, and its promise about batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from unmask.core import Edit, Noise, Posterior, TokenDraw, vocab_statistics
from unmask.core.vocab_statistics import StatsRequest, VocabStats, compute_vocab_stats_in_torch

NEVER = float("-inf")
DTYPES = [torch.float32, torch.bfloat16, torch.float64]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-5, torch.float64: 1e-12}


def logits(seed, rows, vocab, dtype=torch.float64, scale=3.0, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, vocab, generator=generator, dtype=torch.float64) * scale + offset).to(dtype)


def uniforms(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def posterior(logits_RV, edit=None):
    edit = edit or Edit()
    made = compute_vocab_stats_in_torch(logits_RV, StatsRequest(edit=edit))
    return Posterior(logits_RV, made.logz_R, torch.arange(len(logits_RV))[:, None], edit)


def table_rows(u_RVD):
    """A table of uniforms as the pass asks for them: by packed rows."""
    return lambda row_C: u_RVD[row_C]


def plain_edit(z, edit):
    z = np.asarray(z, dtype=np.float64).copy()
    for token, delta in zip(edit.ids, edit.deltas, strict=True):
        z[token] += delta
    return z


def plain_softmax(z):
    weight = np.exp(z - z.max())
    return weight / weight.sum()


def plain_top(z, k):
    return sorted(range(len(z)), key=lambda i: (-z[i], i))[:k]


def plain_entropy(p):
    return -sum(x * np.log(x) for x in p if x > 0)


def plain_kl(p, q):
    return sum(a * (np.log(a) - np.log(b)) for a, b in zip(p, q, strict=True) if a > 0)


def plain_filter(z, top_p, top_k):
    """Dream's filters: which tokens may be drawn, as logits; and how near the nucleus' edge was to a tie."""
    z = z.copy()
    edge = np.inf
    if top_p < 1:
        order = plain_top(z, len(z))
        before = 0.0
        p = plain_softmax(z)
        for i in order:
            edge = min(edge, abs(before - top_p))
            if before > top_p:
                z[i] = -np.inf
            before += p[i]
    if 0 < top_k < len(z):
        kept = sorted(z, reverse=True)[:top_k]
        z[z < kept[-1]] = -np.inf
    return z, edge


def near(got, want, dtype=torch.float64):
    want = want if isinstance(want, torch.Tensor) else torch.tensor(np.array(want).tolist(), dtype=torch.float64)
    size = TOLERANCE[dtype]
    torch.testing.assert_close(got.double(), want.double().reshape(got.shape), rtol=size, atol=size)


def equal(one: VocabStats, other: VocabStats, names=None):
    """Bitwise, NaN included."""
    for name in names or VocabStats._fields:
        a, b = getattr(one, name), getattr(other, name)
        assert a.shape == b.shape, name
        assert a.dtype == b.dtype, name
        if a.is_floating_point():
            a, b = a.double().view(torch.long), b.double().view(torch.long)
        assert torch.equal(a, b), name


# --- clean statistics ---------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 3),
    vocab=st.integers(2, 200),
    k=st.integers(2, 5),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([0.0, 0.5, 3.0, 20.0]),
    barred=st.booleans(),
)
def test_against_plain_arithmetic(seed, rows, vocab, k, dtype, scale, barred):
    z_RV = logits(seed, rows, vocab, dtype, scale)
    old_RV = logits(seed + 1, rows, vocab, dtype, min(scale, 3.0))
    edit = Edit((vocab - 1, 0), (NEVER, -1.5)) if barred and vocab > 2 else Edit()
    given_R = torch.tensor([(-1, 0, 1, vocab - 1)[i % 4] for i in range(rows)])
    request = StatsRequest(
        top_k=k, edit=edit, given_R=given_R, previous=posterior(old_RV, edit), previous_R=torch.arange(rows)
    )
    got = compute_vocab_stats_in_torch(z_RV, request)
    assert got.p_RK.dtype == torch.promote_types(dtype, torch.float32)
    for row in range(rows):
        z, old = (plain_edit(t[row].double().numpy(), edit) for t in (z_RV, old_RV))
        p, q = plain_softmax(z), plain_softmax(old)
        order = plain_top(z, k)
        # The list may repeat tokens once only barred ones are left; their probability is 0.
        likely = [i for i in order if z[i] > NEVER]
        assert got.top_RK[row, : len(likely)].tolist() == likely
        near(got.p_RK[row], p[order], dtype)
        near(got.entropy_R[row], plain_entropy(p), dtype)
        near(got.logz_R[row], np.log(np.exp(z - z.max()).sum()) + z.max(), dtype)
        near(got.given_R[row], p[given_R[row]] if given_R[row] >= 0 else 0.0, dtype)
        near(got.drift_R[row], plain_kl(p, q), dtype)
        near(got.displacement_R[row], plain_kl(q, p), dtype)
        assert got.token_RD[row].tolist() == [order[0]]
        near(got.confidence_RD[row], p[order[:1]], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_vocabulary(dtype):
    z_RV, old_RV = logits(0, 3, 50_000, dtype), logits(1, 3, 50_000, dtype)
    previous = posterior(old_RV)
    got = compute_vocab_stats_in_torch(
        z_RV, StatsRequest(top_k=4, previous=previous, previous_R=torch.tensor([0, 1, -1]))
    )
    log_p, log_q = z_RV.double().log_softmax(-1), old_RV.double().log_softmax(-1)
    order = z_RV.double().sort(dim=-1, descending=True, stable=True).indices[:, :4]
    assert torch.equal(got.top_RK, order)
    near(got.p_RK, log_p.exp().gather(1, order), dtype)
    near(got.logz_R, z_RV.double().logsumexp(-1), dtype)
    near(got.entropy_R, -(log_p.exp() * log_p).sum(-1), torch.float32 if dtype != torch.float64 else dtype)
    near(got.drift_R[:2], (log_p.exp() * (log_p - log_q)).sum(-1)[:2], dtype)
    near(got.displacement_R[:2], (log_q.exp() * (log_q - log_p)).sum(-1)[:2], dtype)
    assert got.drift_R[2].isnan()
    assert got.displacement_R[2].isnan()


@pytest.mark.parametrize("offset", [0.0, 1000.0, -3000.0])
def test_greedy_confidence_is_the_largest_probability_to_the_bit(offset):
    got = compute_vocab_stats_in_torch(logits(2, 50, 40, torch.float32, offset=offset), StatsRequest(filtered=True))
    assert torch.equal(got.confidence_RD[:, 0], got.p_RK[:, 0])
    assert torch.equal(got.confidence_RD[:, 0], got.proposed_R)


# --- edits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alone", [0, 1, 2])
def test_a_single_token_left(alone):
    """Whichever token it is: the search for a second one must not lose the first."""
    z_RV = torch.tensor([[3.0, 1.0, 2.0]])
    barred = tuple(i for i in range(3) if i != alone)
    got = compute_vocab_stats_in_torch(z_RV, StatsRequest(edit=Edit(barred, (NEVER, NEVER))))
    assert got.p_RK.tolist() == [[1.0, 0.0]]
    assert got.entropy_R.tolist() == [0.0]
    assert got.logz_R.tolist() == [float(z_RV[0, alone])]
    assert got.token_RD.tolist() == [[alone]]
    assert got.confidence_RD.tolist() == [[1.0]]


def test_untrusted_tokens_have_confidence_zero_and_leave_the_others_denominator():
    z_RV = torch.tensor([[1.0, 3.0, 0.0, 2.0], [5.0, 3.0, 0.0, 2.0]], dtype=torch.float64)
    got = compute_vocab_stats_in_torch(z_RV, StatsRequest(untrusted=(1, 2)))
    assert got.token_RD.tolist() == [[1], [0]]
    near(got.confidence_RD, [[0.0], [np.exp(5) / (np.exp(5) + np.exp(2))]])
    # Nothing else moves.
    equal(
        got,
        compute_vocab_stats_in_torch(z_RV, StatsRequest()),
        [name for name in VocabStats._fields if name != "confidence_RD"],
    )


@pytest.mark.parametrize("offset", [0.0, 40.0, 1000.0])
def test_confidence_among_trusted_tokens_survives_large_logits(offset):
    """Peak first: a normaliser that holds it already would round it away (2e-6 at logits near 40)."""
    z_RV = logits(5, 400, 30, torch.float32, scale=1.0, offset=offset)
    got = compute_vocab_stats_in_torch(z_RV, StatsRequest(untrusted=(3, 4)))
    exact = z_RV.double()
    exact[:, [3, 4]] = NEVER
    want_R = exact.softmax(-1).gather(1, got.token_RD).squeeze(1)
    trusted_R = ~torch.isin(got.token_RD[:, 0], torch.tensor([3, 4]))
    assert (got.confidence_RD[trusted_R, 0].double() - want_R[trusted_R]).abs().max() < 3e-7


# --- draws --------------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    vocab=st.integers(2, 60),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 3.0]),
    top_p=st.sampled_from([1.0, 0.95, 0.6, 0.05]),
    top_k=st.sampled_from([0, 1, 3, 100]),
    dtype=st.sampled_from(DTYPES),
)
def test_inverse_cdf_and_filtered_statistics(seed, vocab, temperature, top_p, top_k, dtype):
    z_RV = logits(seed, 4, vocab, dtype)
    draw = TokenDraw(temperature, top_p, top_k, uniform_RD=uniforms(seed, 4, 3))
    got = compute_vocab_stats_in_torch(z_RV, StatsRequest(top_k=3, draw=draw, filtered=True))
    slack = 1e-4 if dtype != torch.float64 else 1e-9
    for row in range(4):
        z = z_RV[row].double().numpy()
        kept, edge = plain_filter(z / temperature, top_p, top_k)
        if edge < slack:
            continue
        p = plain_softmax(kept)
        total = p.cumsum()
        for d, u in enumerate(draw.uniform_RD[row].tolist()):
            if abs(total - u).min() > slack:
                assert int(got.token_RD[row, d]) == int(np.argmax(total > u))
            near(got.confidence_RD[row, d], plain_softmax(z)[got.token_RD[row, d]], dtype)
        order = plain_top(kept, 3)
        likely = [i for i in order if kept[i] > NEVER]
        assert got.filtered_top_RK[row, : len(likely)].tolist() == likely
        tolerance = torch.float32 if dtype == torch.bfloat16 else dtype
        torch.testing.assert_close(got.filtered_p_RK[row].double(), torch.tensor(p[order]), rtol=1e-4, atol=1e-4)
        if tolerance == torch.float64:
            near(got.filtered_p_RK[row], p[order])
            near(got.filtered_entropy_R[row], plain_entropy(p))
            near(got.proposed_R[row], p[got.token_RD[row, 0]])


@given(seed=st.integers(0, 10**6), top_p=st.sampled_from([1.0, 0.9, 0.3]), top_k=st.integers(0, 6))
def test_filters_act_on_the_statistics_at_temperature_zero(seed, top_p, top_k):
    z_RV = logits(seed, 3, 12)
    got = compute_vocab_stats_in_torch(z_RV, StatsRequest(draw=TokenDraw(0.0, top_p, top_k), filtered=True))
    clean = compute_vocab_stats_in_torch(z_RV, StatsRequest())
    for row in range(3):
        kept, edge = plain_filter(z_RV[row].numpy(), top_p, top_k)
        if edge > 1e-9:
            p = plain_softmax(kept)
            near(got.filtered_p_RK[row], np.sort(p)[::-1][:2])
            near(got.filtered_entropy_R[row], plain_entropy(p))
            near(got.proposed_R[row], p.max())
    equal(got, clean, ["token_RD", "confidence_RD", "p_RK", "entropy_R", "top_RK", "logz_R"])


def test_ties_at_rank_k_stay():
    z_RV = torch.tensor([[0.2, 0.3, 0.2, 0.2, 0.1]], dtype=torch.float64).log()
    # Rank 2 is a tie of three: all stay, only 0.1 goes.
    got = compute_vocab_stats_in_torch(z_RV, StatsRequest(top_k=5, draw=TokenDraw(top_k=2), filtered=True))
    near(got.filtered_p_RK, [[3 / 9, 2 / 9, 2 / 9, 2 / 9, 0]])
    assert got.filtered_top_RK[0, :4].tolist() == [1, 0, 2, 3]


def test_nucleus_before_top_k():
    """Dream's order; the other way round, top-k would renormalise before the nucleus is cut."""
    z_RV = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).log()
    # Nucleus 0.5 of the whole: 0.4, 0.3 stay. Of the top two alone (4/7, 3/7), 0.4 would stay alone.
    got = compute_vocab_stats_in_torch(z_RV, StatsRequest(draw=TokenDraw(top_p=0.5, top_k=2), filtered=True))
    near(got.filtered_p_RK, [[4 / 7, 3 / 7]])


def test_every_drawn_token_is_one_the_filtered_statistics_kept():
    """At an exact tie with top_p too: draws and statistics filter with the same arithmetic."""
    z_RV = logits(0, 60, 5, torch.float32, scale=1.0)
    u_RD = torch.full((1, 1), 1 - 1e-9, dtype=torch.float64)
    for row in range(60):
        edge = float(z_RV[row].double().softmax(-1).sort(descending=True).values[:2].sum())
        draw = TokenDraw(1.0, edge, uniform_RD=u_RD)
        assert compute_vocab_stats_in_torch(z_RV[row : row + 1], StatsRequest(draw=draw, filtered=True)).proposed_R > 0


@pytest.mark.parametrize("sampler", ["inverse", "gumbel"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_frequencies(sampler, dtype):
    draws, temperature = 20_000, 0.7
    row = torch.tensor([0.3, -1.0, 1.2, 0.0, 0.9, 4.0], dtype=dtype)
    noise, zero, position = Noise.of([5]), torch.zeros(draws, dtype=torch.long), torch.arange(draws)
    if sampler == "inverse":
        draw = TokenDraw(temperature, uniform_RD=noise.uniform_packed(zero, position, zero, "token")[:, None])
    else:
        table = noise.uniform_vocab(zero, position, zero, 6, "token")
        draw = TokenDraw(temperature, uniform_vocab=table_rows(table[..., None]))
    got = compute_vocab_stats_in_torch(row.expand(draws, 6), StatsRequest(draw=draw, edit=Edit((5,), (NEVER,))))
    p = plain_softmax(row[:5].double().numpy() / temperature)
    counts = torch.bincount(got.token_RD[:, 0], minlength=6).numpy()
    assert counts[5] == 0
    assert chisquare(counts[:5], p * draws).pvalue > 1e-3


@given(seed=st.integers(0, 10**6), vocab=st.integers(2, 50), temperature=st.sampled_from([0.3, 1.0, 2.5]))
def test_gumbel_is_lladas_formula(seed, vocab, temperature):
    z_RV = logits(seed, 3, vocab, torch.float32)
    u_RVD = uniforms(seed, 3, vocab, 2)
    got = compute_vocab_stats_in_torch(z_RV, StatsRequest(draw=TokenDraw(temperature, uniform_vocab=table_rows(u_RVD))))
    for d in range(2):
        value_RV = z_RV.double().exp() / (-u_RVD[..., d].log()) ** temperature
        assert torch.equal(got.token_RD[:, d], value_RV.argmax(-1))


def test_a_uniform_on_the_edge_takes_the_next_possible_token():
    z_RV = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, NEVER, NEVER, 0.0], [NEVER, 0.0, NEVER, NEVER]])
    u_RD = torch.tensor([[0.25, 0.5, 0.75]]).double().expand(3, 3)
    got = compute_vocab_stats_in_torch(z_RV, StatsRequest(draw=TokenDraw(1.0, uniform_RD=u_RD)))
    assert got.token_RD.tolist() == [[1, 2, 3], [0, 3, 3], [1, 1, 1]]


# --- faults and promises ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_bad_logits_show_in_logz_and_in_no_other_row(bad, temperature):
    z_RV = logits(0, 4, 9, torch.float32)
    spoilt_RV = z_RV.clone()
    spoilt_RV[2, 4] = bad
    draw = TokenDraw(temperature, uniform_RD=uniforms(0, 4, 1) if temperature else None)
    clean, got = (compute_vocab_stats_in_torch(t, StatsRequest(draw=draw)) for t in (z_RV, spoilt_RV))
    assert got.logz_R.isfinite().tolist() == [True, True, False, True]
    assert torch.equal(got.p_RK[[0, 1, 3]], clean.p_RK[[0, 1, 3]])
    assert ((got.token_RD >= 0) & (got.token_RD < 9)).all()


def everything(seed, rows, vocab, dtype, sampler):
    """Logits and a request that uses every branch of the pass."""
    z_RV, old_RV = logits(seed, rows, vocab, dtype), logits(seed + 1, rows, vocab, dtype)
    draw = TokenDraw(0.7, 0.9, max(2, vocab // 2), uniform_RD=uniforms(seed, rows, 2))
    if sampler == "gumbel":
        draw = TokenDraw(0.7, uniform_vocab=table_rows(uniforms(seed, rows, vocab, 1)))
    given_R = torch.arange(rows) % vocab
    return z_RV, StatsRequest(
        3, Edit((1,), (-0.5,)), draw, True, (0,), given_R, posterior(old_RV), torch.arange(rows).flip(0)
    )


def rows_of(request, rows):
    draw = request.draw
    uniform_RD = None if draw.uniform_RD is None else draw.uniform_RD[rows]
    whole = draw.uniform_vocab
    uniform_vocab = None if whole is None else lambda row_C: whole(rows[row_C])
    return replace(
        request,
        draw=replace(draw, uniform_RD=uniform_RD, uniform_vocab=uniform_vocab),
        given_R=request.given_R[rows],
        previous_R=request.previous_R[rows],
    )


def part(whole, rows):
    return VocabStats(*(values[rows] for values in whole))


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("vocab", "dtype", "sampler"),
    [
        *((vocab, dtype, "inverse") for vocab in (2, 7, 64, 1000) for dtype in DTYPES),
        *((vocab, torch.bfloat16, "gumbel") for vocab in (2, 7, 64, 1000)),
        (40_000, torch.float32, "inverse"),
        (40_000, torch.bfloat16, "gumbel"),
        (40_000, torch.float64, "inverse"),
    ],
)
def test_a_rows_bits_depend_on_nothing_else(vocab, dtype, sampler, threads, monkeypatch):
    z_RV, request = everything(0, 5, vocab, dtype, sampler)
    threads(1)
    want = compute_vocab_stats_in_torch(z_RV, request)
    groups = [torch.arange(5), torch.arange(5).flip(0), torch.tensor([4]), torch.tensor([0]), torch.tensor([2, 2, 1])]
    for count, chunk in ((1, 1 << 20), (2, 3 * vocab), (2, 1 << 20), (1, 1)):
        threads(count)
        monkeypatch.setattr(vocab_statistics, "_CHUNK", chunk)
        # Many threads on a busy machine are slow: a long vocabulary is tried whole and alone only.
        for group in groups if count == 1 or vocab < 40_000 else groups[0:3:2]:
            equal(compute_vocab_stats_in_torch(z_RV[group], rows_of(request, group)), part(want, group))


@pytest.mark.parametrize("vocab", [2, 5, 33, 300])
def test_a_rows_bits_in_a_very_large_batch(vocab, threads):
    z_RV, request = everything(1, 2000, vocab, torch.float32, "inverse")
    threads(2)
    want = compute_vocab_stats_in_torch(z_RV, request)
    for group in (torch.tensor([0]), torch.tensor([1999, 17]), torch.arange(100, 131)):
        equal(compute_vocab_stats_in_torch(z_RV[group], rows_of(request, group)), part(want, group))
