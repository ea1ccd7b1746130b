"""What a case may use, so that one that finds a hole does not take the machine with it."""

import resource

MEMORY = 8 << 30
"""Address space of a process: torch alone reserves two gigabytes."""


def bounded() -> None:
    """Limit the memory of this process: who asks for more gets an error and not the machine's."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
