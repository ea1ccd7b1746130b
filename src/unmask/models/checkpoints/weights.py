"""Weights between safetensors files with published names and our stacked parameters, tensor by tensor."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from unmask.base.errors import CheckpointError
from unmask.base.files import atomic_write
from unmask.models.checkpoints.config import TensorNames, read_json
from unmask.models.transformer import Transformer, TransformerSpec

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
STORED = ("F32", "F16", "BF16")
"""Accepted types of stored weights; quantised ones would load without their scales and predict nonsense."""

OnTensor = Callable[[str, int], None]
"""Function that is called with the name and the bytes of each loaded parameter."""


def list_weight_files(folder: Path) -> list[str]:
    """List the files with the weights: those named in the index, else model.safetensors."""
    path = folder / INDEX
    if not path.exists():
        return [SINGLE]
    table = read_json(path).get("weight_map")
    files = list(table.values()) if isinstance(table, dict) else []
    # A name with a folder in it could point anywhere on the disk.
    if not files or not all(isinstance(f, str) and Path(f).name == f and f.endswith(".safetensors") for f in files):
        raise CheckpointError(
            f"{path} has no usable 'weight_map'; allowed: tensor names with safetensors files of this folder; download "
            "it again"
        )
    return sorted(set(files))


def load_weights(
    spec: TransformerSpec,
    names: TensorNames,
    folder: Path,
    device: torch.device | str,
    dtype: torch.dtype,
    on_tensor: OnTensor | None = None,
) -> Transformer:
    """Load a network's weights from safetensors files, one tensor at a time to its device and dtype.

    Before memory is taken, names and shapes are compared with those that the configuration implies.
    """
    parts = names.map_parameters(spec)
    with ExitStack() as stack:
        opened = _open_tensors(folder, {name: shape for part in parts.values() for name, shape in part}, device, stack)
        model = Transformer.empty(spec, device, dtype).requires_grad_(False).eval()
        for parameter, tensors in parts.items():
            target, row = model.get_parameter(parameter), 0
            # One published tensor at a time, so that the peak of memory is the model and one tensor.
            for name, shape in tensors:
                target[row : row + shape[0]].copy_(opened[name][1].get_tensor(name))
                row += shape[0]
            if on_tensor is not None:
                on_tensor(parameter, target.numel() * target.element_size())
    return model


def _open_tensors(
    folder: Path, expected: dict[str, tuple[int, ...]], device: torch.device | str, stack: ExitStack
) -> dict[str, tuple[Path, Any]]:
    """Open all weight files; return the file and the open handle of each tensor.

    Refuses files that cannot be read, and tensors that are missing, surplus, stored twice or of another shape.
    """
    opened: dict[str, tuple[Path, Any]] = {}
    for path in (folder / file for file in list_weight_files(folder)):
        if not path.is_file():
            what = f"{folder} has no safetensors weights" if path.name == SINGLE else f"{path} does not exist"
            raise CheckpointError(
                f"{what}; allowed: {SINGLE}, or every shard that {INDEX} names (pickles such as *.bin are never read); "
                "the download is incomplete, repeat it"
            )
        try:
            handle = stack.enter_context(safe_open(path, framework="pt", device=str(device)))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{path} cannot be read ({type(error).__name__}: {error}); allowed: a complete safetensors file; it is "
                "truncated or damaged, download it again (into the cache of the hub: hf download --force-download)"
            ) from error
        for name in handle.keys():  # noqa: SIM118  a handle cannot be iterated over
            if name in opened:
                raise CheckpointError(
                    f"the tensor {name!r} is in {opened[name][0]} and in {path}; allowed: every tensor once; the "
                    "shards belong to different models, download them again"
                )
            opened[name] = path, handle
    for name, shape in expected.items():
        if name not in opened:
            raise CheckpointError(
                f"{folder} has no tensor {name!r}; allowed: every tensor its config.json implies; a shard is missing "
                "or belongs to another model, download it again"
            )
        path, handle = opened[name]
        stored = handle.get_slice(name)
        if stored.get_dtype() not in STORED:
            raise CheckpointError(
                f"tensor {name!r} in {path} is stored as {stored.get_dtype()}; allowed: {', '.join(STORED)}; quantised "
                "checkpoints need their scales, which this code does not read"
            )
        if tuple(stored.get_shape()) != shape:
            raise CheckpointError(
                f"tensor {name!r} in {path} has shape {tuple(stored.get_shape())}; allowed: {shape}, by config.json; "
                "config and weights belong to different models"
            )
    for name in sorted(set(opened) - set(expected)):
        raise CheckpointError(
            f"{opened[name][0]} holds the tensor {name!r}; allowed: the {len(expected)} tensors its config.json "
            "implies; config and weights belong to different models"
        )
    return opened


def save_weights(model: Transformer, names: TensorNames, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write a network's weights under published names to one file, complete or not at all."""
    tensors: dict[str, torch.Tensor] = {}
    for parameter, published in names.map_parameters(model.spec).items():
        rows = [shape[0] for _, shape in published]
        values = model.get_parameter(parameter).detach().to(dtype or model.dtype).split(rows)
        tensors |= {name: part.contiguous() for (name, _), part in zip(published, values, strict=True)}
    with atomic_write(folder / SINGLE) as part:
        # Packed here and written by us: a full disk is then an OSError, which callers know, and not the library's own.
        part.write_bytes(save(tensors, metadata={"format": "pt"}))
    # The index of an older checkpoint would be read first.
    (folder / INDEX).unlink(missing_ok=True)
