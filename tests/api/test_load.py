"""`load`: names, folders and hub ids; options of checkpoints; what a loaded model does with them."""

import json
import shutil

import numpy as np
import pytest

from tests.helpers.cases import each_case
from unmask.api.load import CheckpointOptions, ExactOptions, find_saved_codec, find_text_info, load
from unmask.api.request import get_text_info
from unmask.base.errors import (
    CheckpointError,
    ConfigError,
    DenoiserError,
    HubError,
    UnknownName,
    UnmaskError,
)
from unmask.models.checkpoints.load import fingerprint

QUESTION = "How many clips did Natalia sell?"


@pytest.fixture(scope="module")
def folders(scaled, tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoints")
    return {"llada": scaled.llada(place / "llada"), "dream": scaled.dream(place / "dream")}


@pytest.fixture(scope="module")
def llada(folders):
    return load(str(folders["llada"]))


@pytest.fixture(scope="module")
def dream(folders):
    return load(str(folders["dream"]))


def drawn(out):
    return out.tokens, [step.revealed_BL.tolist() for step in out.trajectory.steps]


class TestLoad:
    def test_name_with_a_path_loads_that_folder(self, folders, llada):
        named = load("llada", path=str(folders["llada"]))
        assert drawn(named.generate(QUESTION, max_new_tokens=8)) == drawn(llada.generate(QUESTION, max_new_tokens=8))

    def test_fingerprint_follows_the_weights(self, scaled, tmp_path):
        one, same, other = (scaled.llada(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
        assert fingerprint(one) == fingerprint(same) != fingerprint(other)

    def test_fingerprint_reads_small_files_whole(self, scaled, tmp_path):
        folder = scaled.llada(tmp_path / "a", single_file=True)
        before, path = fingerprint(folder), folder / "model.safetensors"
        changed = bytearray(path.read_bytes())
        changed[-1] ^= 1
        path.write_bytes(changed)
        assert fingerprint(folder) != before
        with_template, path = fingerprint(folder), folder / "chat_template.jinja"
        path.write_text("{{ messages }}")
        assert fingerprint(folder) != with_template

    def test_fingerprint_reads_both_ends_of_large_files(self, tmp_path):
        """The value is frozen: gates and stored runs name their model by it."""
        with (tmp_path / "model.safetensors").open("wb") as file:
            file.truncate(80 << 20)
        assert fingerprint(tmp_path) == "089dfbe854ba7aea"
        for at in (0, (80 << 20) - 1):
            before = fingerprint(tmp_path)
            with (tmp_path / "model.safetensors").open("r+b") as file:
                file.seek(at)
                file.write(b"x")
            assert fingerprint(tmp_path) != before

    def test_progress_reports_every_parameter(self, folders):
        seen = []
        load(str(folders["dream"]), on_progress=lambda name, size: seen.append((name, size)))
        assert sum(size for _, size in seen) == 4 * load(str(folders["dream"])).denoiser.model.spec.parameters
        assert seen[0][0] == "embed.weight"

    def test_text_info_needs_no_weights(self, folders, tmp_path, monkeypatch):
        """Of a folder, of the package, of a part of a download; what is not here is None."""
        whole = get_text_info(load(str(folders["dream"])))
        part = tmp_path / "models--Dream-org--Dream-v0-Instruct-7B" / "snapshots" / "abc"
        shutil.copytree(folders["dream"], part, ignore=shutil.ignore_patterns("*.safetensors*"))
        refs = part.parent.parent / "refs"
        refs.mkdir()
        (refs / "main").write_text("abc")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        for text in (find_text_info(str(folders["dream"]), {}), find_text_info("dream", {"device": "cuda"})):
            assert (text.vocab, text.max_length) == (whole.vocab, whole.max_length)
            assert text.codec.encode(QUESTION) == whole.codec.encode(QUESTION)
        assert find_text_info("mini", {}).count_prompt_canvas("Hi", 8) == get_text_info(
            load("mini", device="cpu")
        ).count_prompt_canvas("Hi", 8)
        assert find_text_info("exact", {"n": 6}).max_length == 6
        assert find_text_info("llada", {}) is None
        assert find_text_info("dream", {"path": str(tmp_path)}) is None

    def test_saved_codec_finds_the_tokenizer_of_a_run(self, dream):
        run = dream.generate(QUESTION, max_new_tokens=4)
        assert find_saved_codec(run.config).decode(run.tokens[0]) == dream.codec.decode(run.tokens[0])
        for config in (None, {}, {"model": 3}, {"model": {"name": "exact", "n": "x"}}, {"model": {"name": "./none"}}):
            assert find_saved_codec(config) is None


class TestOptions:
    """Each option of a checkpoint has its effect."""

    def test_table_has_every_option(self):
        tested = {"path", "revision", "offline", "device", "dtype", "engine", "invariant", "chat", "readout", "query"}
        assert set(CheckpointOptions.model_fields) == tested

    def test_invariant_is_used_and_recorded(self, folders, llada):
        sure = load(str(folders["llada"]), invariant=True)
        assert sure.options["invariant"] is True
        assert sure.denoiser.row_bounds is not None
        assert "invariant" not in llada.options, "stored configurations are those from before there was the option"
        assert drawn(sure.generate(QUESTION, max_new_tokens=8)) == drawn(llada.generate(QUESTION, max_new_tokens=8))

    def test_readout_is_used(self, folders):
        policy = {"policy": "fixed", "alpha": [0, 0, 0, 0, 1], "max_new_tokens": 12}
        first, last = (load(str(folders["llada"]), readout=[n]) for n in (0, 2))
        assert drawn(first.generate(QUESTION, **policy)) != drawn(last.generate(QUESTION, **policy))

    def test_query_is_used_and_recorded(self):
        """The other read-out, and nothing else."""
        own, predicting = (load("mini-dream", device="cpu", **more) for more in ({}, {"query": "predicting"}))
        assert (own.denoiser.query, predicting.denoiser.query) == ("own", "predicting")
        assert predicting.options == own.options | {"query": "predicting"}
        by_confidence, by_attention = (
            {"policy": "fixed", "alpha": rule, "max_new_tokens": 12} for rule in ("confidence", "dependency")
        )
        prompt = "A page was cut off after <main><p>hi."
        assert drawn(own.generate(prompt, **by_confidence)) == drawn(predicting.generate(prompt, **by_confidence))
        assert drawn(own.generate(prompt, **by_attention)) != drawn(predicting.generate(prompt, **by_attention))

    def test_unknown_keys_are_named(self, scaled, tmp_path):
        """They stand in every result; one that says something is warned of when the model is loaded."""
        folder = str(scaled.llada(tmp_path / "a", own_key=4, extra=None))
        with pytest.warns(UserWarning, match=r"^'own_key' in .*config\.json is 4, a key that is not known here"):
            model = load(folder)
        assert model.generate(QUESTION, max_new_tokens=4).config["model"]["ignored"] == ["extra", "own_key"]

    def test_offline_and_revision_reach_the_hub(self, monkeypatch, folders):
        asked = []

        def locate(place, **options):
            asked.append((place, options))
            return folders["llada"]

        monkeypatch.setattr("unmask.api.load.resolve_path", locate)
        load("llada", offline=True, revision="v2")
        load("GSAI-ML/LLaDA-1.5")
        assert asked[0] == ("GSAI-ML/LLaDA-8B-Instruct", {"revision": "v2", "offline": True})
        assert asked[1] == ("GSAI-ML/LLaDA-1.5", {"revision": None, "offline": False})


EXACT_OPTIONS = {"n": 6, "vocab": 3, "dependence": 0.5, "structure": "far", "seed": 1, "eos": "b"}


def test_every_option_of_exact_changes_the_model():
    model = load("exact")
    assert model.options == {
        "n": 8,
        "vocab": 4,
        "dependence": 1.5,
        "structure": "dense",
        "seed": 0,
        "eos": None,
    }
    assert model.options.keys() == EXACT_OPTIONS.keys() == ExactOptions.model_fields.keys()
    for option, value in EXACT_OPTIONS.items():
        other = load("exact", **{option: value}).denoiser
        same = np.array_equal(other.joint.p, model.denoiser.joint.p) and other.eos_ids == model.denoiser.eos_ids
        assert not same, option


REFUSED = [
    ("exakt", {}, UnknownName, ["'exakt'", "did you mean exact?"]),
    ("lada", {}, UnknownName, ["did you mean llada"]),
    (3, {}, ConfigError, ["model is 3", "a name, a hub id or a folder"]),
    ("exact", {"vocap": 3}, UnknownName, ["option of exact 'vocap'", "did you mean vocab?", "structure"]),
    ("exact", {"structure": "ring"}, ConfigError, ["'ring'", "chain"]),
    ("exact", {"vocab": 1}, ConfigError, ["vocab is 1", "2 to 52"]),
    ("exact", {"n": 40}, ConfigError, ["4**40", "lower n"]),
    ("exact", {"n": "8"}, ConfigError, ["n of exact is '8'", "int"]),
    ("exact", {"seed": -1}, ConfigError, ["seed is -1", "0 or more"]),
    ("exact", {"dependence": float("nan")}, ConfigError, ["dependence is nan"]),
    ("exact", {"eos": "x"}, ConfigError, ["'x'", "'abcd'"]),
    ("exact", {"eos": "aa"}, ConfigError, ["'aa'", "different letters"]),
    ("llada folder", {"dtype": "fp8"}, ConfigError, ["dtype is 'fp8'", "bf16"]),
    ("llada folder", {"device": "tpu"}, ConfigError, ["device is 'tpu'", "cpu"]),
    ("llada folder", {"engine": "graph"}, ConfigError, ["engine is 'graph'", "cpu"]),
    ("llada folder", {"engine": "fast"}, ConfigError, ["engine is 'fast'", "auto"]),
    ("llada folder", {"readout": [3]}, ConfigError, ["readout is [3]", "0 to 2"]),
    ("llada folder", {"readout": []}, ConfigError, ["readout is []", "one or more"]),
    ("llada folder", {"chat": "yes"}, ConfigError, ["chat", "'yes'"]),
    ("llada folder", {"invariant": "yes"}, ConfigError, ["invariant", "'yes'"]),
    ("llada folder", {"attention": True}, ConfigError, ["'attention'"]),
    ("llada folder", {"dtpe": "bf16"}, UnknownName, ["did you mean dtype?"]),
    ("llada folder", {"path": "elsewhere"}, ConfigError, ["leave it out"]),
    ("llada folder/config.json", {}, CheckpointError, ["config.json is a file; allowed: the folder of a checkpoint"]),
    ("llada folder/nothing", {}, CheckpointError, ["does not exist"]),
    ("llada", {"path": "dream folder"}, ConfigError, ["a llada checkpoint; load dream"]),
    ("mini", {"path": "somewhere"}, UnknownName, ["option of mini 'path'"]),
    ("mini", {"query": "predicting"}, ConfigError, ["query is 'predicting'; allowed: own with llada, whose slots"]),
    ("mini-dream", {"query": "both"}, ConfigError, ["query is 'both'; allowed: own or predicting"]),
    ("masked-lm", {}, ConfigError, ["path of masked-lm is None"]),
    ("no-such/model", {"offline": True}, HubError, ["no-such/model"]),
    *((name, {}, UnmaskError, []) for name in ["./" + "x" * 300, "x/" * 3000, "./a\0b", "a\0b", "/\ud800"]),
]


class TestRefused:
    @each_case(("name", "options", "error", "words"), REFUSED)
    def test_impossible_models_are_refused(self, name, options, error, words, folders, monkeypatch, tmp_path):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        places = {"llada folder": str(folders["llada"]), "dream folder": str(folders["dream"])}
        if isinstance(name, str) and name.startswith("llada folder"):
            name = name.replace("llada folder", places["llada folder"])
        with pytest.raises(error) as caught:
            load(name, **{key: places.get(str(value), value) for key, value in options.items()})
        assert all(word in str(caught.value) for word in words), caught.value
        assert len(str(caught.value)) < 700

    @each_case("options", [{"dtpye": "bf16"}, {"dtype": "fp8"}, {"device": "tpu"}, {"engine": "warp"}])
    def test_options_are_checked_before_the_hub_is_asked(self, options, monkeypatch):
        monkeypatch.setattr("unmask.api.load.resolve_path", lambda *_, **__: pytest.fail("asked the hub"))
        with pytest.raises(ConfigError):
            load("GSAI-ML/LLaDA-8B-Instruct", **options)


class TestGenerate:
    def test_conversation_is_one_prompt(self, llada):
        turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
        asked = [*turns, {"role": "user", "content": QUESTION}]
        out = llada.generate(asked, max_new_tokens=8)
        assert "Hello." in out.canvases[0]
        assert json.loads(out.to_json())["config"]["rows"][0]["prompt"] == asked
        both = llada.generate([asked, QUESTION], max_new_tokens=8)
        assert both.tokens[0] == out.tokens[0]

    def test_defaults_are_those_of_the_family(self, dream):
        out = dream.generate(QUESTION, steps=2)
        assert len(out.tokens[0]) == 128
        assert out.config["policy"]["name"] == "dream"

    def test_wino_is_refused_on_dream(self, llada, dream):
        assert len(llada.generate(QUESTION, policy="wino", max_new_tokens=8).tokens[0]) == 8
        with pytest.raises(DenoiserError, match="one slot early"):
            dream.generate(QUESTION, policy="wino", max_new_tokens=8)


class TestApproximateCaches:
    def run(self, model, **options):
        return model.generate(QUESTION, max_new_tokens=32, steps=32, policy="llada", block_length=8, **options)

    def test_kind_and_refresh_have_an_effect(self, llada):
        ways = [{}, {"cache": "prefix"}, {"cache": "dual"}, {"cache": "dual", "cache_refresh": 3}]
        runs = [self.run(llada, **way) for way in ways]
        assert len({run.tokens for run in runs}) == 4
        assert len({run.cost.processed_tokens for run in runs}) == 4
        assert runs[0].cost.processed_tokens > runs[1].cost.processed_tokens > runs[2].cost.processed_tokens
