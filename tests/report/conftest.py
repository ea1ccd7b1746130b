"""Studies that many tests of the report look at, each analysed once."""

import pytest

from tests.helpers import made_studies as made
from tests.helpers.stored_study import StoredStudy
from unmask.lab.analysis import analyse
from unmask.report.study import study_report

KINDS = {"find": "finds", "guess": "useless", "same": "constant", "mute": "abstains"}
"""Tasks, and what the signal does on each."""


@pytest.fixture(scope="session")
def known_store(tmp_path_factory):
    return made.store(tmp_path_factory.mktemp("known") / "study", made.known())


@pytest.fixture(scope="session")
def known(known_store):
    """Opportunity whose truth can be worked out by hand; no diagnostics."""
    return analyse(known_store, resamples=200)


@pytest.fixture(scope="session")
def known_report(known):
    return study_report(known)


@pytest.fixture(scope="session")
def diagnosed(tmp_path_factory):
    """Opportunity and diagnostics; nothing was decoded end to end."""
    tables, read = made.diagnosed(KINDS, prompts=40)
    store = made.store(tmp_path_factory.mktemp("diagnosed") / "study", tables, read=read)
    return analyse(store, resamples=200, draws=50)


@pytest.fixture(scope="session")
def diagnosed_report(diagnosed):
    return study_report(diagnosed)


@pytest.fixture(scope="session")
def whole():
    """The stored study of version 0.7.0, which has everything; few resamples."""
    return analyse(StoredStudy(), resamples=50, draws=20)


@pytest.fixture(scope="session")
def whole_report(whole):
    return study_report(whole)
