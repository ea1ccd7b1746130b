"""What is measured: a network, loaded or of a published shape with random weights, and the canvases it is given."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from unmask.base.errors import ConfigError, NotEnoughMemory, UnknownName
from unmask.core import Denoiser, Noise, State, Vocabulary, row_key
from unmask.models import Network, Transformer, TransformerSpec, default_layers
from unmask.models.execution import choose_execution, dtype_name, free_memory, use_engine

LARGE = 10**9
"""Parameters from which a network gets the long canvas."""


@dataclass(frozen=True)
class Shape:
    """A published network without its weights."""

    spec: TransformerSpec
    vocabulary: Vocabulary
    shift: int


SHAPES: Mapping[str, Shape] = {
    "llada-8b": Shape(
        TransformerSpec(
            vocab=126_464,
            width=4096,
            layers=32,
            heads=32,
            kv_heads=32,
            mlp=12_288,
            theta=5e5,
            eps=1e-5,
            qkv_bias=False,
            rope_float32=True,
        ),
        Vocabulary(126_464, 126_336, (126_081, 126_348)),
        shift=0,
    ),
    "dream-7b": Shape(
        TransformerSpec(
            vocab=152_064,
            width=3584,
            layers=28,
            heads=28,
            kv_heads=4,
            mlp=18_944,
            theta=1e6,
            eps=1e-6,
            qkv_bias=True,
            rope_float32=False,
        ),
        Vocabulary(152_064, 151_666, (151_643, 151_645)),
        shift=1,
    ),
}
"""By the name that `--shape` takes."""


@dataclass(frozen=True)
class CanvasShape:
    """The positions of a row and how they are decoded."""

    prompt: int
    answer: int
    steps: int
    block: int

    @property
    def slots(self) -> int:
        return self.prompt + self.answer


LONG, SHORT = CanvasShape(128, 128, 64, 32), CanvasShape(32, 32, 16, 16)


@dataclass(frozen=True)
class Subject:
    """The network as it runs by default, and its canvases."""

    name: str
    network: Network
    canvas: CanvasShape
    random: bool
    """Whether its weights are."""

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def spec(self) -> TransformerSpec:
        return self.network.model.spec

    def state(self, batch: int, *, steps: int | None = None, wanted: int | None = None) -> State:
        """Rows with an empty answer; with fewer wanted positions the rest of it belongs to the prompt."""
        blanks = self.canvas.answer if wanted is None else wanted
        return State.from_prompts(
            self.prompts(batch, self.canvas.slots - blanks),
            new_tokens=blanks,
            steps=min(self.canvas.steps if steps is None else steps, blanks),
            mask_id=self.network.vocabulary.mask_id,
            device=self.device,
        )

    def prompts(self, batch: int, length: int) -> list[list[int]]:
        """The first rows are the same for every batch."""
        draw = torch.Generator().manual_seed(0)
        most = min(200, self.network.vocabulary.mask_id)
        return [torch.randint(0, most, (length,), generator=draw).tolist() for _ in range(batch)]

    def noise(self, batch: int) -> Noise:
        return Noise.of([row_key(0, row) for row in range(batch)], self.device)

    def described(self) -> dict[str, Any]:
        """For whoever reads the numbers."""
        spec = self.spec
        return {
            "name": self.name,
            "weights": "random" if self.random else "loaded",
            "parameters": spec.parameters,
            "layers": spec.layers,
            "width": spec.width,
            "vocabulary": spec.vocab,
            "dtype": dtype_name(self.network.model.dtype),
            "prompt": self.canvas.prompt,
            "answer": self.canvas.answer,
            "steps": self.canvas.steps,
            "block": self.canvas.block,
        }


def random_subject(
    name: str, device: torch.device, dtype: torch.dtype, *, rows: int = 1, quick: bool = False
) -> Subject:
    """A published shape with weights drawn where they live; refused where they and so many rows do not fit."""
    if name not in SHAPES:
        raise UnknownName("shape", name, SHAPES)
    shape = SHAPES[name]
    needed, free = memory_of(shape.spec, rows, dtype), free_memory(device)
    if free is not None and needed > free:
        raise NotEnoughMemory(
            f"{name} needs {needed / 2**30:.1f} GiB in {dtype_name(dtype)} for its weights and {rows} rows; allowed: "
            f"{free / 2**30:.1f} GiB, what {device} has free; free some, use another device, or measure --model mini"
        )
    return _subject(name, random_network(shape, device, dtype), quick, random=True)


def memory_of(spec: TransformerSpec, rows: int, dtype: torch.dtype) -> int:
    """Bytes of the weights, and of the widest moment of a forward: two of the MLP's inputs, and logits in float32."""
    slots = rows * LONG.slots
    logits = 4 * rows * LONG.answer * spec.vocab * torch.float32.itemsize
    return (spec.parameters + slots * (2 * spec.mlp + 8 * spec.width)) * dtype.itemsize + logits


def random_network(shape: Shape, device: torch.device, dtype: torch.dtype) -> Network:
    """Normal weights, norms of ones, the default engine."""
    torch.manual_seed(0)
    model = Transformer.empty(shape.spec, device, dtype)
    with torch.no_grad():
        for name, values in model.named_parameters():
            torch.nn.init.ones_(values) if "norm" in name else torch.nn.init.normal_(values, std=0.02)
    network = Network(model.requires_grad_(False), shape.vocabulary, shape.shift, default_layers(shape.spec.layers))
    return use_engine(network, choose_execution("auto", device).engine)


def twin(model: Transformer) -> Transformer:
    """The same weights in modules of their own: another engine on one does not change how the other runs."""
    with torch.device("meta"):
        other = Transformer(model.spec)
    other.load_state_dict(model.state_dict(), assign=True)
    return other.requires_grad_(False)


def subject_of(name: str, denoiser: Denoiser, *, quick: bool = False) -> Subject:
    """A loaded model; only a plain network has layers whose running can be compared."""
    if not isinstance(denoiser, Network):
        raise ConfigError(
            f"the model {name} has no layers to be timed ({type(denoiser).__name__}); allowed: one network, such as "
            "mini, llada or dream; choose another model"
        )
    return _subject(name, denoiser, quick, random=False)


def _subject(name: str, network: Network, quick: bool, *, random: bool) -> Subject:
    long = network.model.spec.parameters >= LARGE
    canvas = LONG if long else SHORT
    # A quick run takes fewer, larger steps: a step's cost does not depend on how many there are.
    canvas = replace(canvas, steps=8 if long else 4) if quick else canvas
    return Subject(name, network, canvas, random)
