"""Studies that many tests of the report look at, each analysed once."""

from dataclasses import replace

import pytest

from tests.helpers import made_findings
from tests.helpers import made_studies as made
from unmask.lab.analysis.findings import Findings, findings
from unmask.report.study import study_report


@pytest.fixture(scope="session")
def known_store(tmp_path_factory):
    return made.store(tmp_path_factory.mktemp("known") / "study", made.known())


@pytest.fixture(scope="session")
def known(known_store):
    """Opportunity whose truth can be worked out by hand; no diagnostics."""
    return findings(known_store)


@pytest.fixture(scope="session")
def known_report(known):
    return study_report(known)


@pytest.fixture(scope="session")
def broken(tmp_path_factory):
    return made_findings.broken(tmp_path_factory.mktemp("broken"))


@pytest.fixture(scope="session")
def broken_report(broken):
    return study_report(broken)


@pytest.fixture(scope="session")
def diagnosed_store(tmp_path_factory):
    tables, read = made.diagnosed(made_findings.KINDS, prompts=40)
    return made.store(tmp_path_factory.mktemp("diagnosed") / "study", tables, read=read)


@pytest.fixture(scope="session")
def diagnosed(diagnosed_store):
    """Opportunity and diagnostics; nothing was decoded end to end."""
    return made_findings.quick(diagnosed_store)


@pytest.fixture(scope="session")
def diagnosed_report(diagnosed):
    return study_report(diagnosed)


@pytest.fixture(scope="session")
def whole(diagnosed) -> Findings:
    """The same with whole answers."""
    return replace(diagnosed, end_to_end=made_findings.decoded())


@pytest.fixture(scope="session")
def whole_report(whole):
    return study_report(whole)


@pytest.fixture(scope="session")
def dream(tmp_path_factory) -> Findings:
    """Both a native axis and the revision extension."""
    tables, read = made.both_kinds("useless")
    undecoded = made_findings.diagnosed(tmp_path_factory.mktemp("dream"), tables, read, reference="dream")
    return replace(undecoded, end_to_end=made_findings.decoded_dream())


@pytest.fixture(scope="session")
def dream_report(dream):
    return study_report(dream)
