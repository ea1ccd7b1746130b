"""Values show themselves by what draws them, and as plain text where that part is missing."""

import sys
import webbrowser

import pytest

from tests.helpers.fresh_python import fresh_python
from unmask.api.load import load
from unmask.base.display import DRAWING, Displayable
from unmask.base.errors import ConfigError, ContractError, StorageError


@pytest.fixture(name="out", scope="module")
def _out():
    return load("exact").generate("a")


@pytest.fixture(name="opened")
def _opened(monkeypatch):
    """Addresses that a browser was asked to open."""
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def test_the_page_is_written_and_opened(out, opened, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = out.show()
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert (path.parent, path.suffix, opened) == (tmp_path, ".html", [path.as_uri()])
    assert path.stat().st_mode & 0o077 == 0
    assert out.trajectory.show(open=False) != path
    assert len(opened) == 1


def test_no_place_for_the_page(out, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StorageError, match=r"no page can be written to .*missing.*; set TMPDIR"):
        out.show()


def test_a_subclass_is_drawn_like_its_base(out):
    class Mine(type(out.trajectory)):
        pass

    mine = Mine(**{name: getattr(out.trajectory, name) for name in out.trajectory.__dataclass_fields__})
    assert mine._repr_html_() == out.trajectory._repr_html_()


def test_a_value_that_nothing_draws_is_named():
    class Note(Displayable):
        pass

    with pytest.raises(ContractError, match="nothing draws a Note"):
        Note()._repr_html_()


def test_without_the_part_that_draws_there_is_plain_text_and_what_to_install(out, monkeypatch):
    monkeypatch.setitem(sys.modules, DRAWING, None)
    assert out._repr_html_() is None
    for call in (out.show, out.to_pandas):
        with pytest.raises(ConfigError, match=r"pages and tables cannot be made .*; pip install 'unmask\[lab\]'"):
            call()


def test_nothing_that_draws_is_loaded_before_somebody_looks():
    run = fresh_python(f"import sys, unmask.core; print('{DRAWING}' in sys.modules, 'pandas' in sys.modules)")
    assert run.stdout.split() == ["False", "False"], run.stderr
