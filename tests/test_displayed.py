"""Values that show themselves: a page that is written and opened, whoever draws it."""

import webbrowser

import pytest

from tests.helpers.fresh_python import fresh_python
from unmask import displayed
from unmask.displayed import Display, Displayed
from unmask.errors import ContractError, StorageError


class Note(Displayed):
    """Something to look at."""


@pytest.fixture
def drawn(monkeypatch):
    shown = Display(lambda note: "<p>cell</p>", lambda note: "<p>page \u2713</p>", lambda note: "table")
    monkeypatch.setattr(displayed, "_find", [{"Note": shown}.__getitem__])


@pytest.fixture
def opened(monkeypatch):
    """Addresses that a browser was asked to open."""
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


@pytest.mark.usefixtures("drawn")
def test_the_page_is_written_and_opened(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = Note().show()
    assert path.read_text(encoding="utf-8") == "<p>page \u2713</p>"
    assert (path.parent, path.suffix, opened) == (tmp_path, ".html", [path.as_uri()])
    assert Note().show(open=False) != path
    assert len(opened) == 1


@pytest.mark.usefixtures("drawn")
def test_cell_and_table():
    assert (Note()._repr_html_(), Note().to_pandas()) == ("<p>cell</p>", "table")


@pytest.mark.usefixtures("drawn")
def test_no_place_for_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StorageError, match=r"no page can be written to .*missing.*; set TMPDIR"):
        Note().show()


def test_nobody_draws(monkeypatch):
    monkeypatch.setattr(displayed, "_find", [])
    with pytest.raises(ContractError, match="nobody draws a Note"):
        Note()._repr_html_()


def test_nothing_that_draws_is_loaded_before_somebody_looks():
    run = fresh_python("import sys, unmask.core; print('unmask.notebook' in sys.modules, 'pandas' in sys.modules)")
    assert run.stdout.split() == ["False", "False"], run.stderr
