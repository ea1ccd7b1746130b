"""Run the notebooks of this folder and keep their outputs: `make notebooks`.

Every cell notes a hash of the code that led to its outputs, so that a test can tell outputs of older cells.
"""

import hashlib
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
MADE_FROM = "made_from"
"""In the metadata of a cell."""


def code_hashes(notebook: Any) -> list[str]:
    """Of every code cell: its source and all before it."""
    so_far, hashes = hashlib.sha256(), []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            so_far.update(cell.source.encode() + b"\0")
            hashes.append(so_far.hexdigest()[:16])
    return hashes


def executed(path: Path) -> Any:
    """The notebook with fresh outputs; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, record_timing=False, resources={"metadata": {"path": str(FOLDER)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, made_from in zip(code, code_hashes(notebook), strict=True):
        cell.metadata[MADE_FROM] = made_from
    # The rest says which Python ran it, which changes with every machine.
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return notebook


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(executed(place), place)
        print(f"{place.name}: {place.stat().st_size:,} bytes")
