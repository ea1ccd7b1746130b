"""What the Tab key completes: names of models, methods and tasks.

The names stand here once more: their tables need torch, which takes seconds to load. A test holds them together.
"""

MODELS = ("mini", "mini-dream", "exact", "llada", "llada-1.5", "dream", "masked-lm")
# fmt: off
METHODS = (
    "llada", "fast-dllm", "fast-dllm-dream", "klass", "eb-sampler", "dos", "dus", "dsb", "swordsman", "dcd", "vsb",
    "remdm", "remdm-llada", "wino", "core", "info-gain", "lookum", "soar", "order-token-search", "medal", "demask",
    "ddpd", "p2", "dream", "best-of", "revised", "fixed", "composed",
)
# fmt: on
SELECTIVE, ALL, REFERENCE = "selective", "all", "reference"


def models(incomplete: str) -> list[str]:
    return _starting(MODELS, incomplete)


def methods(incomplete: str) -> list[str]:
    return _starting((*METHODS, SELECTIVE), incomplete)


def compared(incomplete: str) -> list[str]:
    """What --policy of `unmask compare` takes."""
    return _starting((*METHODS, ALL, REFERENCE), incomplete)


def tasks(incomplete: str) -> list[str]:
    from unmask.tasks import CONTROLS, TASKS

    return _starting((*TASKS, *CONTROLS, "constructed", ALL), incomplete)


def _starting(names: tuple[str, ...], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
