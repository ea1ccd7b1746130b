"""Masked LMs of Hugging Face: tiny ones of each family against the forward pass of transformers itself."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.helpers.cases import each_case
from tests.helpers.tiny_tokenizer import CLS, MASK, PAD, SEP, tiny_tokenizer
from unmask.api.model import Model
from unmask.base.errors import CheckpointError, ConfigError, DenoiserError
from unmask.core import ModelInput, ModelOutput, Needs, Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import LLaDA, make_policy, with_remasking
from unmask.models.masked_lm import MaskedLMCodec, load_masked_lm
from unmask.models.network import BUCKET

tf = pytest.importorskip("transformers", reason="needs transformers: pip install 'unmask[hf]'")
from tokenizers import processors  # noqa: E402

VOCAB = 48
"""Three more than there are words: many models pad their vocabulary."""
WINDOW = 70
LAYERS = 3

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": WINDOW,
    "pad_token_id": PAD,
    "initializer_range": 0.3,
}
FAMILIES = {
    "bert": lambda: tf.BertConfig(**SIZES),
    "roberta": lambda: tf.RobertaConfig(**SIZES),
    "xlm-roberta": lambda: tf.XLMRobertaConfig(**SIZES),
    "camembert": lambda: tf.CamembertConfig(**SIZES),
    "albert": lambda: tf.AlbertConfig(**SIZES, embedding_size=16),
    "distilbert": lambda: tf.DistilBertConfig(**SIZES, hidden_dim=64),
    "electra": lambda: tf.ElectraConfig(**SIZES, embedding_size=16),
    # Windows of 8, so that padding slots far from the text have nothing to read.
    "modernbert": lambda: tf.ModernBertConfig(
        **SIZES, local_attention=8, bos_token_id=CLS, cls_token_id=CLS, eos_token_id=SEP, sep_token_id=SEP
    ),
    "esm": lambda: tf.EsmConfig(**SIZES, mask_token_id=MASK, token_dropout=True, position_embedding_type="absolute"),
    "esm-rotary": lambda: tf.EsmConfig(
        **SIZES, mask_token_id=MASK, token_dropout=True, position_embedding_type="rotary"
    ),
    # Not in the adapter's table: the whole model runs. MPNet tells padding by its token.
    "mpnet": lambda: tf.MPNetConfig(**SIZES),
    "deberta-v2": lambda: tf.DebertaV2Config(**SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"]),
}
ROWS = [
    [CLS, 7, MASK, 9, SEP],
    [CLS, MASK, MASK, 8, 6, 5, 11, SEP],
    [CLS, *[MASK, 9, 30] * 12, SEP],
]


def save(folder, config, seed=0):
    torch.manual_seed(seed)
    model = tf.AutoModelForMaskedLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            # Zero at birth, and a bias that is left out would not be missed.
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _no_bars():
    tf.utils.logging.disable_progress_bar()
    yield
    tf.utils.logging.enable_progress_bar()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Saves a family's tiny checkpoint when first asked for it."""
    made = {}

    def folder(family):
        if family not in made:
            made[family] = save(tmp_path_factory.mktemp(family), FAMILIES[family]())
        return made[family]

    return folder


def ask(denoiser, rows, needs=None, slots=0, revealed=False):
    needs = needs or Needs(revealed=revealed)
    state = State.from_canvases(rows, steps=1, mask_id=MASK)
    state = state.pad_to(max(slots, state.tokens_BL.shape[1]))
    return denoiser(ModelInput.of(state, needs), needs)


def logits_by_row(answer: ModelOutput):
    return [answer.logits_RV[slots[wanted]] for slots, wanted in zip(answer.slot_BN, answer.wanted_BN, strict=True)]


def plain_forward(folder, row, **options):
    """What transformers itself says about a text, alone and without padding."""
    model = tf.AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        ids = torch.tensor([row])
        return model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids), **options)


@each_case("attention", [False, True])
@each_case("family", FAMILIES)
def test_logits_equal_those_of_transformers(home, family, attention):
    denoiser, _ = load_masked_lm(home(family), attention=attention)
    assert denoiser.model.config.model_type == family.removesuffix("-rotary")
    answer = ask(denoiser, ROWS, Needs(attention=attention, hidden=True))
    assert answer.logits_RV.shape == (15, VOCAB)
    at = 0
    for row, canvas in enumerate(ROWS):
        plain = plain_forward(home(family), canvas, output_attentions=True, output_hidden_states=True)
        masked = [slot for slot, token in enumerate(canvas) if token == MASK]
        mine = slice(at, at := at + len(masked))
        torch.testing.assert_close(answer.logits_RV[mine], plain.logits[0, masked], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(answer.hidden_RH[mine], plain.hidden_states[-1][0, masked], rtol=1e-5, atol=1e-5)
        if attention:
            upper = torch.stack(plain.attentions[LAYERS // 2 :]).mean((0, 2))[0]
            n = len(canvas)
            torch.testing.assert_close(answer.attention_BNN[row, :n, :n], upper, rtol=1e-5, atol=1e-6)


@each_case("family", FAMILIES)
def test_rows_ignore_neighbours_and_padding(home, family):
    """Bitwise at one shape: other neighbours, other lengths beside it, another order."""
    denoiser, _ = load_masked_lm(home(family))
    draw = np.random.default_rng(0)

    def canvas(length):
        tokens = np.where(draw.random(length) < 0.3, MASK, draw.integers(5, 45, length))
        return [CLS, MASK, *tokens[3:].tolist(), SEP]

    whole, others = canvas(BUCKET), [canvas(n) for n in (31, 20, 9)]
    together = logits_by_row(ask(denoiser, [whole, *others]))
    for order in ([3, 0, 2, 1], [1, 2, 3, 0]):
        turned = logits_by_row(ask(denoiser, [[whole, *others][n] for n in order]))
        assert all(torch.equal(turned[at], together[n]) for at, n in enumerate(order))
    # As long as the batch itself: without padding anywhere attention would take another road.
    full = logits_by_row(ask(denoiser, [whole, *(canvas(BUCKET) for _ in others)]))
    assert torch.equal(full[0], together[0])
    # Up to rounding in any batch, and bitwise with more padding inside the bucket.
    for row, expected in zip([whole, *others], together, strict=True):
        torch.testing.assert_close(logits_by_row(ask(denoiser, [row]))[0], expected, rtol=1e-4, atol=1e-4)
    short = logits_by_row(ask(denoiser, others[1:]))
    padded = logits_by_row(ask(denoiser, others[1:], slots=25))
    assert all(torch.equal(a, b) for a, b in zip(short, padded, strict=True))


@pytest.mark.parametrize("family", ["roberta", "esm"])
def test_positions_are_counted_after_padding(home, family):
    """RoBERTa's first position is pad_token_id + 1; a padding token inside a canvas is a token like others."""
    denoiser, _ = load_masked_lm(home(family))
    assert denoiser.max_positions == WINDOW - (PAD + 1)
    canvas = [CLS, 7, PAD, MASK, 9, SEP]
    position = torch.arange(PAD + 1, PAD + 7)[None]
    expected = plain_forward(home(family), canvas, position_ids=position).logits[0, 3]
    answer = ask(denoiser, [ROWS[2], canvas])
    torch.testing.assert_close(logits_by_row(answer)[1][0], expected, rtol=1e-5, atol=1e-5)
    shifted = plain_forward(home(family), canvas, position_ids=position - 1).logits[0, 3]
    assert (shifted - expected).abs().max() > 0.1


def test_canvas_may_fill_the_window(home):
    denoiser, _ = load_masked_lm(home("roberta"))
    canvas = [CLS, MASK, *[9] * (WINDOW - 5), SEP]
    assert len(canvas) == denoiser.max_positions
    expected = plain_forward(home("roberta"), canvas).logits[0, [1]]
    torch.testing.assert_close(ask(denoiser, [canvas]).logits_RV, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(DenoiserError, match="69 slots; allowed: at most 68"):
        ask(denoiser, [[*canvas, SEP]])


def test_unsupported_inputs_are_refused(home):
    denoiser, _ = load_masked_lm(home("bert"))
    state = State.from_canvases(ROWS, steps=1, mask_id=MASK)
    inputs = ModelInput.of(state, Needs())
    with pytest.raises(DenoiserError, match="attention=True"):
        denoiser(inputs, Needs(attention=True))
    with pytest.raises(DenoiserError, match="positions 0 to 37 in order"):
        denoiser(replace(inputs, position_BN=inputs.position_BN + 1), Needs())
    with pytest.raises(DenoiserError, match="holds token 48; allowed: 0 to 47"):
        denoiser(replace(inputs, tokens_BN=torch.where(inputs.tokens_BN == 7, 48, inputs.tokens_BN)), Needs())
    with pytest.raises(DenoiserError, match="wino"):
        decode(denoiser, make_policy("wino"), state, noise=Noise.of([1, 2, 3]))


def test_other_checkpoints_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no safetensors weights"):
        load_masked_lm(tmp_path / "nowhere")
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(CheckpointError, match=r"no safetensors weights.*pickles .* are not read.*save_pretrained"):
        load_masked_lm(tmp_path)
    headless = tmp_path / "headless"
    tf.BertModel(tf.BertConfig(**SIZES)).save_pretrained(headless)
    tiny_tokenizer().save_pretrained(headless)
    with pytest.raises(CheckpointError, match=r"lacks the weights cls\.predictions"):
        load_masked_lm(headless)
    causal = tmp_path / "causal"
    tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=1, n_head=2)).save_pretrained(causal)
    tiny_tokenizer().save_pretrained(causal)
    with pytest.raises(CheckpointError, match="causal cannot be loaded"):
        load_masked_lm(causal)
    decoder = save(tmp_path / "decoder", tf.BertConfig(**SIZES, is_decoder=True))
    with pytest.raises(CheckpointError, match="with a decoder"):
        load_masked_lm(decoder)


def test_models_that_read_padding_are_refused(tmp_path):
    """FNet mixes all slots by a Fourier transform, padding included, and would be silently wrong in every batch."""
    sizes = {name: value for name, value in SIZES.items() if name != "num_attention_heads"}
    folder = save(tmp_path, tf.FNetConfig(**sizes))
    with pytest.raises(
        CheckpointError, match=r"a fnet whose predictions change with the padding.*choose another model"
    ):
        load_masked_lm(folder)


def test_tokenizers_of_other_models_are_refused(tmp_path, home):
    with pytest.raises(CheckpointError, match="no mask token"):
        load_masked_lm(home("bert"), tokenizer=tiny_tokenizer(mask_token=None))
    small = save(tmp_path / "small", tf.BertConfig(**{**SIZES, "vocab_size": 30}))
    with pytest.raises(CheckpointError, match="ids reach 44; allowed: up to 29"):
        load_masked_lm(small)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 2}, r"has no place: bert\.encoder\.layer\.2\..* and 12 more; allowed"),
        ({"hidden_size": 64}, r"other shapes than its config\.json says: .* \[.*32\] for \[.*64\]"),
        ({"hidden_size": "x"}, r"cannot be loaded \(.*'hidden_size' expected int, got str"),
        ({"num_attention_heads": 5}, r"hidden size \(32\) is not a multiple"),
        ({"model_type": "nothing"}, r"edited cannot be loaded.*`nothing`.*; allowed: config\.json"),
    ],
)
def test_configurations_of_other_weights_are_refused(tmp_path, changes, words):
    folder = save(tmp_path / "edited", FAMILIES["bert"]())
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=words) as refusal:
        load_masked_lm(folder)
    assert "\n" not in str(refusal.value)
    assert "above report" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"readout_layers": [1]}, r"readout is \[1\].*attention=True"),
        ({"readout_layers": [3], "attention": True}, "out of 0 to 2"),
        ({"readout_layers": [], "attention": True}, "at least one"),
        ({"readout_layers": [1, 1], "attention": True}, "different layers"),
    ],
)
def test_impossible_readouts_are_refused(home, options, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load_masked_lm(home("bert"), **options)


def test_old_transformers_are_refused(home, monkeypatch):
    folder = home("bert")
    # By name: transformers replaces itself in sys.modules while it loads its parts.
    monkeypatch.setattr("transformers.__version__", "5.2.0")
    with pytest.raises(ConfigError, match=r"version 5\.2\.0; allowed: version 5\.3"):
        load_masked_lm(folder)


CANVASES = [[CLS, 7, MASK, MASK, MASK, MASK, SEP], [CLS, MASK, MASK, 9, MASK, SEP], [CLS, MASK, 8, MASK, MASK]]


@pytest.mark.parametrize("family", ["roberta", "modernbert", "deberta-v2"])
def test_batch_decodes_as_its_rows_do(home, family):
    denoiser, _ = load_masked_lm(home(family))
    state = State.from_canvases([*CANVASES, *ROWS], steps=[2, 3, 2, 1, 1, 5], mask_id=MASK)
    noise = Noise.of(range(6))
    for policy in (LLaDA(), with_remasking()):
        sampling = SamplingParams(temperature=0.7)
        end = decode(denoiser, policy, state, noise=noise, sampling=sampling)
        assert not end.state.masked_BL.any()
        for row in range(6):
            one = torch.tensor([row])
            alone = decode(denoiser, policy, state.select(one), noise=noise.select(one), sampling=sampling)
            assert torch.equal(alone.state.tokens_BL[0], end.state.tokens_BL[row])


def test_model_generates_and_infills(home):
    denoiser, codec = load_masked_lm(home("roberta"))
    model = Model("tiny", denoiser, codec, options={}, max_length=denoiser.max_positions)
    filled = model.infill("w7 [MASK*3] w9", steps=2)
    assert filled.text.startswith("w7 ")
    assert filled.tokens[0][:2] == (CLS, 7)
    assert filled.tokens[0][-2:] == (9, SEP)
    assert MASK not in filled.tokens[0]
    assert len(filled.tokens[0]) == 7
    written = model.generate("w7 w8", max_new_tokens=4, policy="fixed")
    assert written.canvases[0].startswith("[CLS] w7 w8 ")
    assert written.canvases[0].endswith("[SEP]")
    assert len(written.tokens[0]) == 4
    with pytest.raises(ConfigError, match="1 to 64"):
        model.generate("w7 w8", max_new_tokens=65)


# The codec.


def test_codec_frames_canvases_and_opens_prompts():
    codec = MaskedLMCodec(tiny_tokenizer())
    assert codec.mask == "[MASK]"
    assert codec.eos_ids == (SEP,)
    assert codec.encode("w7 w8") == [CLS, 7, 8]
    assert codec.encode("") == [CLS]
    assert codec.canvas("w7 [MASK] w8 [MASK*3]") == [CLS, 7, MASK, 8, MASK, MASK, MASK, SEP]
    assert codec.decode([CLS, 7, MASK, SEP, PAD]) == "[CLS] w7 [MASK] [SEP] [PAD]"
    assert codec.answer([CLS, 7, 8, SEP, 9]) == "w7 w8"
    assert codec.answer((7, PAD, 8)) == "w7 w8"
    for blank in ("w7 [MASK]", "[MASK*2] w7"):
        with pytest.raises(ConfigError, match="use infill"):
            codec.encode(blank)
    with pytest.raises(ConfigError, match="no chat format"):
        codec.encode([{"role": "user", "content": "w7"}])


def test_unknown_text_is_refused():
    codec = MaskedLMCodec(tiny_tokenizer())
    with pytest.raises(ConfigError, match="the text holds 'quux', for which the model has no token; allowed"):
        codec.canvas("w7 [MASK*2] quux")
    with pytest.raises(ConfigError, match="'zebra'"):
        codec.encode("zebra w7 quux")


def test_codec_uses_the_signs_of_its_tokenizer():
    """RoBERTa's words for everything, its mask that swallows the space before it, and no closing token."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "Ġb", "b", "Ġ"]
    core = Tokenizer(models.BPE({w: n for n, w in enumerate(words)}, [("Ġ", "b")], unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        mask_token=tf.AddedToken("<mask>", lstrip=True, special=True),
    )
    codec = MaskedLMCodec(tokenizer)
    assert codec.mask == "<mask>"
    assert codec.eos_ids == (2,)
    assert codec.canvas("a [MASK] b") == codec.canvas("a <mask> b") == [0, 5, 4, 6]
    assert codec.canvas("a[MASK*2]") == [0, 5, 4, 4]
    assert codec.encode("a b") == [0, 5, 6]
    assert codec.answer([5, 6, 2, 6]) == "a b"
    with pytest.raises(ConfigError, match="holds a blank"):
        codec.encode("a <mask>")
