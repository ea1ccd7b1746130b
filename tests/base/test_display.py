"""Values are shown by `report`, and as plain text where it is not installed."""

import sys
import webbrowser

import pytest

from tests.helpers.fresh_python import fresh_python
from unmask.api.load import load
from unmask.base.display import DRAWING, Displayable
from unmask.base.errors import ConfigError, ContractError, StorageError


@pytest.fixture(scope="module")
def out():
    return load("exact").generate("a")


def test_show_writes_a_private_page_and_opens_it(out, tmp_path, monkeypatch):
    addresses = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = out.show()
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert (path.parent, path.suffix, addresses) == (tmp_path, ".html", [path.as_uri()])
    assert path.stat().st_mode & 0o077 == 0
    assert out.trajectory.show(open=False) != path
    assert len(addresses) == 1
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StorageError, match="missing"):
        out.show()


def test_values_of_unknown_types_are_refused():
    with pytest.raises(ContractError, match="Note"):
        type("Note", (Displayable,), {})()._repr_html_()


def test_without_report_a_notebook_shows_plain_text(out, monkeypatch):
    monkeypatch.setitem(sys.modules, DRAWING, None)
    assert out._repr_html_() is None
    for call in (out.show, out.to_pandas):
        with pytest.raises(ConfigError, match=r"pip install 'unmask\[lab\]'"):
            call()


def test_core_does_not_load_report():
    run = fresh_python(f"import sys, unmask.core; print('{DRAWING}' in sys.modules, 'pandas' in sys.modules)")
    assert run.stdout.split() == ["False", "False"], run.stderr
