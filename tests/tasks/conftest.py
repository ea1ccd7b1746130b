"""Where the data sets lie."""

import os
from pathlib import Path

import pytest

from unmask.tasks.official import DATA_VARIABLE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder named in UNMASK_DATA, or `shared/data` beside the checkout."""
    folder = Path(os.environ.get(DATA_VARIABLE) or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"needs the data sets: {DATA_VARIABLE} is not set and there is no folder 'shared/data'")
    return folder
