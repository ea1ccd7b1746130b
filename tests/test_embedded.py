"""The models of the package: what lies there is what was trained, loads as the large ones do, and answers."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open

import unmask
from tests.helpers.compared import compare
from tests.helpers.paths import CONFIGS, ROOT, SRC
from unmask.api.load import SHIPPED, NetworkOptions, load
from unmask.base.errors import UnknownName
from unmask.lab.study.prompts import FRESH
from unmask.methods import make_policy
from unmask.methods.examples import HOME
from unmask.tasks import TASKS
from unmask.train import TrainConfig

NAMES = ("mini", "mini-dream")
CONSTRUCTED = [name for name, task in TASKS.items() if task.generator]
SORT = "Sort these: pear, apple, fig. Reply in <answer>...</answer>."

names = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def models():
    return {name: load(name) for name in NAMES}


def manifest(name):
    return json.loads((SHIPPED / name / "manifest.json").read_text(encoding="utf-8"))


# What lies in the package.


@names
def test_the_files_are_those_of_the_manifest(name):
    files = manifest(name)["files"]
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    for file, digest in files.items():
        assert hashlib.sha256((SHIPPED / name / file).read_bytes()).hexdigest() == digest, file
    assert {path.name for path in (SHIPPED / name).iterdir()} == {*files, "manifest.json", "README.md"}


@names
def test_small_enough_to_carry(name, models):
    assert sum(path.stat().st_size for path in (SHIPPED / name).iterdir()) <= 14e6
    stored = safe_open(SHIPPED / name / "model.safetensors", "pt")
    parameters = sum(stored.get_tensor(key).numel() for key in stored.keys())  # noqa: SIM118
    assert 4e6 <= parameters <= 7e6
    assert parameters == manifest(name)["parameters"] == models[name].denoiser.model.spec.parameters
    assert {stored.get_tensor(key).dtype for key in stored.keys()} == {torch.bfloat16}  # noqa: SIM118


@names
def test_trained_as_the_committed_configuration_says(name):
    """All but how often a run looks at itself."""
    config = TrainConfig.read(CONFIGS / f"{name}.toml").flatten()
    watching = {"run.log_every", "run.validate_every", "run.checkpoint_every", "run.score_every", "run.score_prompts"}
    wanted = json.loads(json.dumps({key: value for key, value in config.items() if key not in watching}))
    trained = {key: value for key, value in manifest(name)["config"].items() if key not in watching}
    assert trained == wanted


@names
def test_the_card_shows_the_numbers_of_its_tables(name):
    card = (SHIPPED / name / "README.md").read_text(encoding="utf-8")
    for heading in ("## Data", "## Training", "## Loss", "## Scores", "## Limits"):
        assert heading in card
    assert f"{manifest(name)['validation']:.4f}" in card
    assert all(task in card for task in CONSTRUCTED)


@pytest.mark.slow
def test_the_wheel_has_them(tmp_path):
    """Built, installed into an empty folder and loaded there, with no hub to ask."""
    source, target = tmp_path / "source", tmp_path / "target"
    for part in ("pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / part, source)
    shutil.copytree(SRC / "unmask", source / "src" / "unmask", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--target", str(target)]
    alone = ["--no-deps", "--no-build-isolation", "--no-index"]
    # Weights hardly shrink, and bytecode is not what is tested: both cost seconds.
    quick = ["--no-compile", "--config-settings=--build-option=--compression=stored"]
    subprocess.run([*pip, *alone, *quick, str(source)], check=True)
    assert sorted(path.name for path in (target / "unmask" / "models" / "shipped").iterdir()) == sorted(NAMES)
    examples = target / HOME.relative_to(SRC)
    assert {path.name for path in examples.glob("*.json")} == {path.name for path in HOME.glob("*.json")}
    shutil.rmtree(source)
    code = (
        "import unmask; print(unmask.__file__)\nfor n in ('mini', 'mini-dream'): print(unmask.load(n).generate().text)"
    )
    env = {**os.environ, "PYTHONPATH": str(target), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "none")}
    ran = subprocess.run(
        [sys.executable, "-c", code, *NAMES], env=env, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    place, *answers = ran.stdout.splitlines()
    assert place.startswith(str(target))
    assert answers == ["<answer></p></section></main></answer>"] * 2


# How they load.


@names
def test_nothing_is_fetched(name, monkeypatch):
    monkeypatch.setattr("unmask.api.load.resolve_path", lambda *a, **k: pytest.fail("asked the hub"))
    assert load(name).name == name


@names
def test_a_name_and_its_folder_are_one_model(name, models):
    folder = load(str(SHIPPED / name))
    asked = {"prompt": SORT, "max_new_tokens": 24}
    assert folder.generate(**asked).tokens == models[name].generate(**asked).tokens
    assert folder.options["fingerprint"] == models[name].options["fingerprint"]


def test_families(models):
    told = {name: (m.options["family"], m.reference, m.denoiser.shift) for name, m in models.items()}
    assert told == {"mini": ("llada", "llada", 0), "mini-dream": ("Dream", "dream", 1)}
    assert models["mini"].denoiser.model.spec.qkv_bias is False
    spec = models["mini-dream"].denoiser.model.spec
    assert spec.qkv_bias
    assert spec.kv_heads < spec.heads


def test_options():
    assert "path" not in NetworkOptions.model_fields
    with pytest.raises(UnknownName, match="path"):
        load("mini", path="somewhere")
    assert load("mini", dtype="bf16").denoiser.model.dtype == torch.bfloat16
    assert load("mini", readout=[1]).denoiser.readout == (1,)
    assert load("mini", chat=False).codec.encode("a") != load("mini").codec.encode("a")


@names
def test_digits_stand_alone_and_turns_have_marks(name, models):
    codec = models[name].codec
    digits = codec.tokenizer.encode("4711", add_special_tokens=False).tokens
    assert [token.lstrip("Ġ") for token in digits] == ["4", "7", "1", "1"]
    vocabulary = models[name].denoiser.vocabulary
    assert 2048 <= vocabulary.size <= 8192
    assert vocabulary.mask_id not in vocabulary.eos_ids
    assert len(vocabulary.eos_ids) == 2
    assert codec.template is not None


# What they do.


@names
def test_the_opening_is_answered(name, models):
    assert models[name].generate().text == "<answer></p></section></main></answer>"


@names
def test_a_batch_gives_what_each_prompt_gives_alone(name, models):
    prompts = [SORT, "What is 3 + 4?", models[name].default_prompt]
    together = models[name].generate(prompts, max_new_tokens=24)
    alone = [models[name].generate(prompt, max_new_tokens=24) for prompt in prompts]
    assert list(together.texts) == [one.text for one in alone]


@pytest.mark.slow
@names
def test_trained_and_not_blank(name, models):
    """On prompts that no split and no training run has: far above what an untrained network reaches, which is 0."""
    tasks = ["html-close-tags", "carry-rtl"]
    found = compare(
        models[name], tasks, split=FRESH, prompts=4, policies={"reference": make_policy(models[name].reference)}
    )
    means = found.mean_utilities()
    assert means["html-close-tags"] > 0.6
    assert means["carry-rtl"] > 0.5


def test_the_result_names_the_model():
    out = unmask.load("mini").generate("What is 3 + 4?", max_new_tokens=8)
    assert out.config["model"]["name"] == "mini"
    assert len(out.config["model"]["fingerprint"]) == 16
