"""Somebody else's decoding loop, from a checkout of the user's, on the weights that ours runs on.

Its files are imported from where they lie; nothing of them is copied. They name classes of `transformers`, some of a
version that is not installed: while they are imported, small classes of the same names stand in for them. What is timed
is the loop and the network, and neither runs any code of `transformers`.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from unmask.base.errors import ConfigError, UnknownName, require
from unmask.base.files import format_path
from unmask.models import Network, Transformer, TransformerSpec

AUTHORS, FAST_DLLM = "authors", "fast-dllm"
FILES = {AUTHORS: ("generate.py",), FAST_DLLM: ("llada/generate.py", "llada/model/modeling_llada.py")}
"""Files that a checkout must hold."""
MODELLING = "modeling_llada"
THRESHOLD = 0.9
"""Threshold that Fast-dLLM publishes."""


@dataclass(frozen=True)
class OutsideLoop:
    """A loop and the network that it runs, as its authors call both."""

    label: str
    generate: Callable[..., Any]
    model: Any
    settings: Mapping[str, Any]

    def __call__(self, prompt_BL: Tensor, steps: int) -> Tensor:
        """Return the canvases at the end."""
        answer = self.generate(self.model, prompt_BL, steps=steps, **self.settings)
        tokens_BL: Tensor = answer[0] if isinstance(answer, tuple) else answer
        return tokens_BL


def read_checkouts(texts: Sequence[str]) -> dict[str, Path]:
    """Read NAME=PATH of each checkout and look for its files; refused before anything is measured."""
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        require(bool(equals and place), "--against", text, "NAME=PATH", f"e.g. {AUTHORS}=path/to/LLaDA")
        if name not in FILES:
            raise UnknownName("name before the = of --against", name, FILES)
        require(name not in found, "--against", text, f"{name} once", "drop one")
        found[name] = Path(place)
        for file in FILES[name]:
            if not (found[name] / file).is_file():
                raise ConfigError(
                    f"--against {name}: {format_path(place)} has no file {file}; allowed: a checkout of the "
                    f"repository, which holds it; clone it and pass its folder"
                )
    return found


def authors_loops(name: str, network: Network, folder: Path, *, answer: int, block: int) -> dict[str, OutsideLoop]:
    """Import LLaDA's loop, on the modelling beside it where there is some, else on our plain one."""
    check_family(name, network, AUTHORS)
    with _importing(folder):
        generate = _module(folder / "generate.py").generate
        theirs = _load_published(folder, "", network) if (folder / f"{MODELLING}.py").is_file() else None
    label = f"authors' loop on {'our plain' if theirs is None else 'their'} modelling"
    settings = _settings(network, answer, block)
    return {label: OutsideLoop(label, generate, theirs or PlainModelling(network.model), settings)}


def fast_dllm_loops(name: str, network: Network, folder: Path, *, answer: int, block: int) -> dict[str, OutsideLoop]:
    """Import Fast-dLLM's loops on its own modelling, by the name of the cache that does the same here."""
    check_family(name, network, FAST_DLLM)
    home = folder / "llada"
    with _importing(home):
        module = _module(home / "generate.py")
        model = _load_published(home, "model.", network)
    settings, label = _settings(network, answer, block), "Fast-dLLM on their modelling"
    dual = module.generate_with_dual_cache
    return {
        "prefix": OutsideLoop(label, module.generate_with_prefix_cache, model, settings),
        "dual": OutsideLoop(label, dual, model, settings),
        "dual, threshold": OutsideLoop(label, dual, model, {**settings, "threshold": THRESHOLD}),
    }


def check_family(name: str, network: Network, outside: str) -> None:
    """Refuse a network of another family than LLaDA's, which these loops are made for."""
    ok = network.shift == 0 and not network.model.spec.qkv_bias
    allowed = "a network of LLaDA's family, such as mini or llada-8b"
    require(ok, f"--against {outside} with", name, allowed, "choose one, or leave --against out")


def _settings(network: Network, answer: int, block: int) -> dict[str, Any]:
    mask_id = network.vocabulary.mask_id
    return {"gen_length": answer, "block_length": block, "temperature": 0.0, "mask_id": mask_id}


def share_weights(model: Transformer) -> Transformer:
    """Make other modules of the same weights: another engine on them does not change how the first run."""
    with torch.device("meta"):
        other = Transformer(model.spec)
    other.load_state_dict(model.state_dict(), assign=True)
    return other.requires_grad_(False)


class PlainModelling:
    """Our network as a loop made for Hugging Face calls it: the published arithmetic, logits of every position."""

    def __init__(self, model: Transformer):
        self.model = share_weights(model).set_fused(False)
        self.device = model.device

    def __call__(self, tokens_BN: Tensor, attention_mask: Tensor | None = None) -> SimpleNamespace:
        position_BN = torch.arange(tokens_BN.shape[1], device=self.device).expand_as(tokens_BN)
        hidden = self.model(tokens_BN, position_BN)
        return SimpleNamespace(logits=self.model.head(self.model.norm(hidden.x_BNH)))


def _load_published(folder: Path, package: str, network: Network) -> Any:
    """Make the authors' network around our weights, which both then share."""
    if not package:
        # The published file looks for its configuration beside itself, as part of a package.
        holder = ModuleType("checkout")
        holder.__path__ = [str(folder)]
        sys.modules["checkout"], package = holder, "checkout."
    modelling = importlib.import_module(f"{package}{MODELLING}")
    settings = importlib.import_module(f"{package}configuration_llada")
    chosen = published_settings(network.model.spec)
    inner = modelling.LLaDAModel(settings.ModelConfig(**chosen, init_device="meta"), init_params=False)
    model = modelling.LLaDAModelLM(settings.LLaDAConfig(**chosen), model=inner)
    model.load_state_dict(published_weights(network.model), assign=True)
    return model.eval().requires_grad_(False)


def published_settings(spec: TransformerSpec) -> dict[str, Any]:
    """Return the configuration of this network in the words of LLaDA's configuration class."""
    switched_off = ["alibi", "flash_attention", "attention_layer_norm", "input_emb_norm", "scale_logits"]
    switched_off += ["include_bias", "include_qkv_bias", "bias_for_layer_norm", "weight_tying"]
    return {
        **dict.fromkeys(switched_off, False),
        **dict.fromkeys(("attention_dropout", "residual_dropout", "embedding_dropout"), 0.0),
        **{"d_model": spec.width, "n_layers": spec.layers, "n_heads": spec.heads, "n_kv_heads": spec.kv_heads},
        **{"mlp_hidden_size": spec.mlp, "vocab_size": spec.vocab, "embedding_size": spec.vocab},
        **{"rope": True, "rope_full_precision": True, "rope_theta": spec.theta, "rms_norm_eps": spec.eps},
        **{"layer_norm_type": "rms", "activation_type": "silu", "block_type": "llama", "block_group_size": 1},
        "max_sequence_length": 4096,
    }


def published_weights(model: Transformer) -> dict[str, Tensor]:
    """Return our tensors under the published names; parts of a fused one are views of it."""
    # Not at the top: a host without tokenizers and safetensors can run every other part of the bench.
    names = importlib.import_module("unmask.models.checkpoints").LLADA.names
    own = model.state_dict()
    return {
        name: part
        for ours, parts in names.map_parameters(model.spec).items()
        for (name, _), part in zip(parts, own[ours].split([shape[0] for _, shape in parts]), strict=True)
    }


def _module(path: Path) -> Any:
    """Import a file as a module that nobody else can import."""
    spec = importlib.util.spec_from_file_location("checkout_loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Import from this folder, with stand-ins for `transformers`; afterwards all is as it was before."""
    before, path, bytecode = dict(sys.modules), list(sys.path), sys.dont_write_bytecode
    finder = _StandIns()
    for name in [name for name in sys.modules if name.partition(".")[0] in (*finder.roots, "model")]:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    except Exception as error:
        raise ConfigError(
            f"the code in {format_path(folder)} cannot be used: {type(error).__name__}: {error}; allowed: a checkout "
            "as published; look at the commit it stands at"
        ) from error
    finally:
        sys.meta_path.remove(finder)
        sys.path[:], sys.dont_write_bytecode = path, bytecode
        for name in [name for name in sys.modules if name not in before and _outside(name, finder.roots)]:
            del sys.modules[name]
        sys.modules.update(before)


def _outside(name: str, roots: Sequence[str]) -> bool:
    return name.partition(".")[0] in (*roots, "model", "checkout", "checkout_loop")


class _StandIns:
    """Import finder that supplies stand-ins for the modules of `transformers`, and of `einops` where that is missing.

    A stand-in has the names of `_NAMES`; any other name gives a class without behaviour.
    """

    def __init__(self) -> None:
        lacking = [] if importlib.util.find_spec("einops") else ["einops"]
        self.roots = ("transformers", *lacking)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self.roots:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update({} if module.__name__ == "einops" else _NAMES)


class _StandInModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Unused,), {})


class _Unused:
    """A class that is named on import and never used by what is timed."""

    def __init__(self, *arguments: Any, **options: Any):
        raise ConfigError(f"it uses {type(self).__name__}, for which nothing stands in")

    @classmethod
    def register(cls, *arguments: Any, **options: Any) -> None:
        """Files end with this; it concerns whoever loads models by name."""


class _StandInConfig:
    def __init__(self, **settings: Any):
        self.use_return_dict = True
        self.__dict__.update(settings)


class _StandInModel(nn.Module):
    def __init__(self, config: Any, *arguments: Any, **options: Any):
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


_NAMES: Mapping[str, Any] = {
    "PreTrainedModel": _StandInModel,
    "PretrainedConfig": _StandInConfig,
    "PreTrainedConfig": _StandInConfig,
    "CausalLMOutputWithPast": SimpleNamespace,
}
