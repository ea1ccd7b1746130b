"""What is sent into the jail."""

import ast
from pathlib import Path

from unmask.tasks.sandbox import jail, process


def test_every_module_of_the_jail_is_sent_after_those_it_needs():
    folder = Path(jail.__file__).parent
    assert sorted(process.JAIL_MODULES) == sorted(path.stem for path in folder.glob("*.py"))
    sent: set[str] = set()
    for name in process.JAIL_MODULES:
        tree = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))
        relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
        needed = {node.module for node in relative if node.module}
        needed |= {alias.name for node in relative if not node.module for alias in node.names}
        assert needed <= sent, name
        sent.add(name)
