"""Proposals: every option acts as its docstring says, and answers land on the right slots."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, DenoiserError
from unmask.core import ModelInput, ModelOutput, Needs, Noise, SamplingParams, State, Vocabulary, sample

EOS, EOT, MASK, SIZE = 3, 4, 6, 7
VOCABULARY = Vocabulary(SIZE, MASK, (EOS, EOT))
FULL = Needs(top_k=3, filtered=True)


def state(rows=3, answer=6) -> State:
    return State.from_prompts([[1, 2]] * rows, new_tokens=answer, steps=1, mask_id=MASK)


def logits(inputs: ModelInput, seed=0, **columns: float) -> ModelOutput:
    """Random logits of the wanted slots, with some columns moved: `t3=2.0` adds 2 to token 3."""
    generator = torch.Generator().manual_seed(seed)
    z_RV = torch.randn(int(inputs.wanted_BN.sum()), SIZE, generator=generator, dtype=torch.float64)
    for name, delta in columns.items():
        z_RV[:, int(name[1:])] += delta
    return ModelOutput(z_RV, inputs.wanted_BN)


def run(
    sampling: SamplingParams, needs: Needs = FULL, start: State | None = None, seed=0, previous=None, **columns: float
):
    start = start or state()
    inputs = ModelInput.of(start, needs)
    noise = Noise.of(list(range(start.batch)))
    return sample(
        logits(inputs, seed, **columns),
        inputs,
        sampling,
        needs,
        VOCABULARY,
        noise=noise,
        step_B=start.step_B,
        previous=previous,
    )


def wanted(prediction, values_BN):
    return values_BN[prediction.wanted_BN]


def changed(name, plain, optioned):
    """Whether an answer differs between two predictions."""
    get = {
        "token": lambda p: p.token_BN,
        "confidence": lambda p: p.confidence_BN,
        "clean": lambda p: p.clean.p_BNK,
        "filtered": lambda p: p.filtered.p_BNK,
        "entropy": lambda p: p.filtered.entropy_BN,
        "proposed": lambda p: p.proposed_BN,
    }[name]
    return not torch.equal(get(plain), get(optioned))


BOTH = (0.0, 0.7)


@pytest.mark.parametrize("temperature", BOTH)
@pytest.mark.parametrize("option", [{"top_p": 0.4}, {"top_k": 2}])
def test_filters_move_the_filtered_statistics_always_and_the_token_above_zero(temperature, option):
    plain, filtered = (
        run(SamplingParams(temperature=temperature)),
        run(SamplingParams(temperature=temperature, **option)),
    )
    assert changed("filtered", plain, filtered)
    assert changed("entropy", plain, filtered)
    assert changed("proposed", plain, filtered)
    assert not changed("clean", plain, filtered)
    assert changed("token", plain, filtered) == (temperature > 0)


@pytest.mark.parametrize("temperature", BOTH)
def test_logits_eos_inf_bars_end_of_text_only(temperature):
    plain = run(SamplingParams(temperature=temperature), t3=3.0, t4=2.0)
    barred = run(SamplingParams(temperature=temperature, logits_eos_inf=True), t3=3.0, t4=2.0)
    assert (wanted(plain, plain.token_BN) == EOS).any()
    assert not (wanted(barred, barred.token_BN) == EOS).any()
    assert (wanted(barred, barred.token_BN) == EOT).any()
    assert changed("clean", plain, barred)


@pytest.mark.parametrize("temperature", BOTH)
def test_confidence_eos_eot_inf(temperature):
    plain = run(SamplingParams(temperature=temperature), t3=1.0, t4=1.0)
    distrusted = run(SamplingParams(temperature=temperature, confidence_eos_eot_inf=True), t3=1.0, t4=1.0)
    assert not changed("token", plain, distrusted)
    ending = (plain.token_BN == EOS) | (plain.token_BN == EOT)
    for token in (EOS, EOT):
        assert (plain.wanted_BN & (plain.token_BN == token)).any()
    assert (distrusted.confidence_BN[ending & plain.wanted_BN] == 0).all()
    others = plain.wanted_BN & ~ending
    assert (distrusted.confidence_BN[others] > plain.confidence_BN[others]).all()
    assert not changed("clean", plain, distrusted)


@pytest.mark.parametrize("temperature", BOTH)
def test_eos_penalty(temperature):
    plain = run(SamplingParams(temperature=temperature), t3=1.0, t4=1.0)
    some = run(SamplingParams(temperature=temperature, eos_penalty=1.0), t3=1.0, t4=1.0)
    assert changed("token", plain, some)
    assert changed("clean", plain, some)
    # Moved up by one and down by one is not moved at all.
    torch.testing.assert_close(some.clean.p_BNK, run(SamplingParams(temperature=temperature)).clean.p_BNK)
    much = run(SamplingParams(temperature=temperature, eos_penalty=100.0), t3=1.0, t4=1.0)
    assert not torch.isin(wanted(much, much.token_BN), torch.tensor([EOS, EOT])).any()


@pytest.mark.parametrize("temperature", BOTH)
def test_bar_mask(temperature):
    barred = run(SamplingParams(temperature=temperature), t6=3.0)
    assert not (wanted(barred, barred.token_BN) == MASK).any()
    assert not (wanted(barred, barred.clean.top_BNK) == MASK).any()
    free = run(SamplingParams(temperature=temperature, bar_mask=False), t6=3.0)
    assert (wanted(free, free.token_BN) == MASK).any()
    # Its probability goes to the others: as if the column had never been there.
    assert torch.equal(barred.clean.p_BNK, run(SamplingParams(temperature=temperature), t6=-50.0).clean.p_BNK)


@each_case(
    ("option", "value"),
    [
        ({"temperature": -0.1}, "-0.1"),
        ({"temperature": float("nan")}, "nan"),
        ({"top_p": 0.0}, "0.0"),
        ({"top_p": 1.5}, "1.5"),
        ({"top_p": float("nan")}, "nan"),
        ({"top_k": -1}, "-1"),
        ({"sampler": "beam"}, "'beam'"),
        ({"sampler": "gumbel", "top_p": 0.9}, "'gumbel'"),
        ({"sampler": "gumbel", "top_k": 5}, "'gumbel'"),
    ],
)
def test_refusals(option, value):
    with pytest.raises(ConfigError) as caught:
        SamplingParams(**option)
    what, allowed, todo = str(caught.value).split("; ")
    assert value in what
    assert allowed.startswith("allowed: ")
    assert todo


@pytest.mark.parametrize(
    ("rows", "columns", "extra", "words"),
    [
        (18, SIZE + 1, 0, r"8 logit columns; allowed: 7.*tokenizer"),
        (18, SIZE, 1, r"\(3, 9\); allowed: \(3, 8\)"),
        (17, SIZE, 0, r"17 logit rows; allowed: 18"),
        # One row too: it must not be spread over all slots.
        (1, SIZE, 0, r"1 logit rows; allowed: 18"),
    ],
)
def test_output_of_another_shape_is_refused(rows, columns, extra, words):
    inputs = ModelInput.of(state(), FULL)
    output = ModelOutput(torch.zeros(rows, columns), torch.nn.functional.pad(inputs.wanted_BN, (0, extra)))
    with pytest.raises(DenoiserError, match=words):
        sample(output, inputs, SamplingParams(), FULL, VOCABULARY, noise=Noise.of([0, 1, 2]), step_B=state().step_B)


def test_answers_land_on_their_slots():
    """Rows of different length, infilling, and zeros where nothing was wanted."""
    start = State.from_canvases([[MASK, 1, MASK], [2, 2, 1, MASK, 0]], steps=1, mask_id=MASK)
    inputs = ModelInput.of(start, FULL)
    z_RV = torch.full((3, SIZE), -10.0)
    for row, token in enumerate((5, 2, 1)):
        z_RV[row, token] = 10.0
    seen = sample(
        ModelOutput(z_RV, inputs.wanted_BN),
        inputs,
        SamplingParams(),
        FULL,
        VOCABULARY,
        noise=Noise.of([0, 1]),
        step_B=start.step_B,
    )
    assert seen.token_BN.tolist() == [[5, 0, 2, 0, 0], [0, 0, 0, 1, 0]]
    assert (seen.confidence_BN > 0.99).tolist() == inputs.wanted_BN.tolist()
    assert (seen.logz_BN != 0).tolist() == inputs.wanted_BN.tolist()
    assert (seen.clean.p_BNK[~inputs.wanted_BN] == 0).all()
    assert seen.vocab == SIZE


def test_a_row_proposes_the_same_alone_and_padded():
    sampling = SamplingParams(temperature=0.7)
    start = state()
    inputs = ModelInput.of(start, FULL)
    packed, noise = logits(inputs), Noise.of([0, 1, 2])
    whole = sample(packed, inputs, sampling, FULL, VOCABULARY, noise=noise, step_B=start.step_B)
    row = torch.tensor([1])
    long = start.select(row).pad_to(20)
    alone = sample(
        ModelOutput(packed.logits_RV[6:12], long.masked_BL),
        ModelInput.of(long, FULL),
        sampling,
        FULL,
        VOCABULARY,
        noise=noise.select(row),
        step_B=long.step_B,
    )
    assert torch.equal(alone.token_BN[:, :8], whole.token_BN[1:2])
    assert torch.equal(alone.confidence_BN[:, :8], whole.confidence_BN[1:2])


def test_noise_follows_the_step_and_the_slots_position():
    sampling, start = SamplingParams(temperature=2.0), state(1, 6)
    inputs = ModelInput.of(start, FULL)
    packed, noise = logits(inputs), Noise.of([4])

    def tokens(view, step):
        seen = sample(packed, view, sampling, FULL, VOCABULARY, noise=noise, step_B=torch.tensor([step]))
        return wanted(seen, seen.token_BN).tolist()

    assert tokens(inputs, 0) == tokens(inputs, 0) != tokens(inputs, 1)
    moved = replace(inputs, position_BN=inputs.position_BN + 1)
    assert tokens(inputs, 0) != tokens(moved, 0)
    u = noise.uniform(torch.tensor([0]), inputs.position_BN, "token")[0, 2:]
    p_RV = packed.logits_RV[:, :MASK].div(2.0).softmax(-1)
    assert tokens(inputs, 0) == [int((row.cumsum(0) > x).nonzero()[0]) for row, x in zip(p_RV, u, strict=True)]


def test_drift_is_nan_without_a_previous_posterior():
    needs = replace(FULL, divergence=True)
    first = run(SamplingParams(), needs)
    assert first.drift_BN.isnan().all()
    assert first.displacement_BN.isnan().all()
    again = run(SamplingParams(), needs, seed=1, previous=first.posterior)
    assert torch.equal(again.drift_BN.isnan(), ~again.wanted_BN)
    p, q = again.posterior.to_dense()[..., :MASK], first.posterior.to_dense()[..., :MASK]
    seen = again.wanted_BN
    torch.testing.assert_close(again.drift_BN[seen], (p * (p / q).log()).sum(-1)[seen])
    torch.testing.assert_close(again.displacement_BN[seen], (q * (q / p).log()).sum(-1)[seen])
    assert run(SamplingParams(), FULL, previous=first.posterior).drift_BN is None


def test_drift_only_of_positions_masked_at_both_steps():
    needs = replace(FULL, divergence=True)
    before = State.from_canvases([[MASK, 1, MASK, MASK]], steps=1, mask_id=MASK)
    first = run(SamplingParams(), needs, before)
    # Position 2 was revealed, position 1 (say) re-opened.
    after = State.from_canvases([[MASK, MASK, 2, MASK]], steps=1, mask_id=MASK)
    second = run(SamplingParams(), needs, after, seed=1, previous=first.posterior)
    assert second.drift_BN.isnan().tolist() == [[False, True, True, False]]
    longer = run(SamplingParams(), needs, after.pad_to(9), seed=1, previous=first.posterior)
    assert torch.equal(longer.drift_BN[:, [0, 3]], second.drift_BN[:, [0, 3]])
    assert longer.drift_BN[:, 4:].isnan().all()


def test_visible_attention_mass():
    start = State.from_canvases([[1, MASK, MASK, 2], [1, MASK, 0]], steps=1, mask_id=MASK)
    inputs = ModelInput.of(start, FULL)
    attention = torch.tensor([0.1, 0.2, 0.3, 0.4]).expand(2, 4, 4)
    packed = replace(logits(inputs), attention_BNN=attention)
    seen = sample(packed, inputs, SamplingParams(), FULL, VOCABULARY, noise=Noise.of([0, 1]), step_B=start.step_B)
    # Row 0 sees tokens at 0 and 3; row 1 at 0 and 2, its last slot is padding.
    torch.testing.assert_close(seen.visible_BN, torch.tensor([[0.5] * 4, [0.4] * 4]))
    assert run(SamplingParams()).visible_BN is None


def test_nothing_wanted():
    start = State.from_canvases([[MASK, 1]], steps=1, mask_id=MASK)
    done = replace(start, tokens_BL=torch.tensor([[2, 1]]))
    seen = run(SamplingParams(temperature=0.7), replace(FULL, divergence=True), done)
    assert not seen.wanted_BN.any()
    assert (seen.confidence_BN == 0).all()


def test_revealed_positions_on_request():
    start = replace(state(1, 3), tokens_BL=torch.tensor([[1, 2, MASK, 5, MASK]]))
    assert ModelInput.of(start, Needs()).wanted_BN.tolist() == [[False, False, True, False, True]]
    assert ModelInput.of(start, Needs(revealed=True)).wanted_BN.tolist() == [[False, False, True, True, True]]
