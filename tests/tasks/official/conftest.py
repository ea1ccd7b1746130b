"""Where the data sets lie."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data(shared) -> Path:
    if not (shared / "data").is_dir():
        pytest.skip("needs the data sets: there is no folder 'shared/data' beside the checkout")
    return shared / "data"
