"""What one run may use."""

import math
from dataclasses import dataclass

from unmask.base.errors import require


@dataclass(frozen=True)
class Limits:
    """What one run may use."""

    wall_s: float = 10.0
    """Seconds on the clock, from the moment the completion starts."""
    cpu_s: float = 5.0
    """Seconds of processor time per process, in whole seconds, rounded up."""
    memory_mb: int = 512
    """Address space per process."""
    processes: int = 1
    """Processes at a time; 1 means that the completion cannot fork."""
    file_mb: int = 16
    """Size of one file; of all files together where the folder is in memory (`namespace`)."""
    output_kb: int = 64
    """What is kept of standard output, and as much of standard error. The rest is read and dropped."""

    def __post_init__(self) -> None:
        for name in ("wall_s", "cpu_s"):
            value = getattr(self, name)
            require(
                isinstance(value, int | float) and 0 < value < math.inf,
                name,
                value,
                "a number of seconds above 0",
                "10 is plenty for HumanEval",
            )
        for name, least in (("memory_mb", 64), ("processes", 1), ("file_mb", 1), ("output_kb", 0)):
            value = getattr(self, name)
            require(
                isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 20,
                name,
                value,
                f"a whole number from {least} to {(1 << 20) - 1}",
                f"the default is {Limits.__dataclass_fields__[name].default}",
            )


DEFAULT = Limits()
