"""Where a network lives and in which type, decided before a byte of it is read."""

import torch

from unmask.base.environment import available_memory
from unmask.base.errors import NotEnoughMemory, require

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def resolve_device(name: str) -> torch.device:
    """`auto` is the first GPU, or the CPU where there is none."""
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda:0" if cuda else "cpu")
    allowed = ["auto", "cpu", *(["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))] if cuda else [])]
    require(name in allowed, "device", name, ", ".join(allowed), "this machine has no other")
    return torch.device("cuda:0" if name == "cuda" else name)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on a GPU, as the published weights are, and float32 on a CPU."""
    require(name in ("auto", *DTYPES), "dtype", name, ", ".join(("auto", *DTYPES)), "pick one")
    if name == "auto":
        name = "fp32" if device.type == "cpu" else "bf16"
    return DTYPES[name]


def short_name(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)


def check_memory(parameters: int, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse weights that cannot fit, instead of being killed half-way."""
    needed, free = parameters * dtype.itemsize, free_memory(device)
    if free is not None and needed > free:
        raise NotEnoughMemory(
            f"the weights need {_gib(needed)} in {short_name(dtype)}; allowed: {_gib(free)}, what {device} has free; "
            f"free some, {'choose --dtype bf16, ' if dtype == torch.float32 else ''}or use another device"
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes, or None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory()


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
