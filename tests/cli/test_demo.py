"""`unmask demo` as a user types it."""

import pytest


def test_report(command, tmp_path):
    ended = command("demo", "--out", "deep/report", "--problems", "1", "--seeds", "2")
    assert (ended.code, ended.err) == (0, "")
    names = [f"demo.{kind}" for kind in ("csv", "html", "md", "png")]
    assert sorted(path.name for path in (tmp_path / "deep" / "report").iterdir()) == names
    assert all(f"deep/report/{name}" in ended.out for name in names)
    assert "most probable answer" in ended.out
    assert "WINO" in ended.out


def test_a_folder_that_cannot_be_made_costs_no_work(command, monkeypatch):
    monkeypatch.setattr("unmask.lab.demo", lambda *a, **k: pytest.fail("worked before it looked"))
    assert command("demo", "--out", "/dev/null/report").code == 2
