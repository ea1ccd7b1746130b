"""Another Python process that finds the package, for what must hold before anything else was imported."""

import os
import subprocess
import sys

from tests.helpers.paths import SRC


def environment(**changes: str) -> dict[str, str]:
    """This process's, with the package where a new process finds it and as many threads as the tests compute with."""
    path = os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **changes}


def fresh_python(code: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the code in a process of its own; the caller judges how it ended."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=env or environment(), capture_output=True, text=True, check=False)
