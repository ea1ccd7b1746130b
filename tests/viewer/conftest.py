"""A study of the package's own model, and a server that shows it."""

import pytest

from tests.helpers.view_server import exact, mini, serving


@pytest.fixture(scope="package")
def study(view_study):
    """To be read only."""
    return view_study


@pytest.fixture(scope="package")
def client(study):
    with serving({"mini": mini(), "exact": exact(), "end": exact(eos="d")}, study) as client:
        yield client
