"""Every attack of `tests/attacks` fails behind the walls of this machine that promise it, and succeeds without any."""

import pytest

from tests.attacks import completions, sandbox
from tests.helpers.paths import DOCS

BY_NAME = {attack.name: attack for attack in sandbox.ATTACKS}
OUTWARD = [attack for attack in sandbox.ATTACKS if attack.goal in ("signals", "network")]
SUBTLE = [BY_NAME[name] for name in (*completions.ASKED, *completions.FORGED)]


def escapes(attacks, mode: str) -> dict[str, str]:
    outcomes = {attack.name: sandbox.run(attack, mode) for attack in attacks}
    return {name: outcome.detail for name, outcome in outcomes.items() if outcome.result == "escaped"}


def test_names_are_told_apart():
    assert len(BY_NAME) == len(sandbox.ATTACKS)
    assert {attack.goal for attack in sandbox.ATTACKS} == set(sandbox.PROMISES) == set(sandbox.WORDS)


@pytest.mark.parametrize("mode", ["weak: seccomp"])
def test_the_filter_alone_lets_no_signal_and_no_message_out(mode):
    """The weakest walls that promise it: no namespaces, no Landlock, the same user."""
    if mode not in sandbox.modes():
        pytest.skip(sandbox.missing()[mode])
    assert not escapes(OUTWARD, mode)


def test_no_wrong_completion_leaves_the_scoring():
    assert not escapes(SUBTLE, sandbox.modes()[0])


@pytest.mark.slow
def test_no_attack_escapes_from_any_mode():
    assert not {mode: found for mode in sandbox.modes() if (found := escapes(sandbox.ATTACKS, mode))}


@pytest.mark.slow
def test_attacks_succeed_without_walls():
    """Else they would show nothing."""
    tried = [attack for attack in sandbox.ATTACKS if attack.bare and attack.goal != "limits"]
    assert len(tried) > 90
    assert not [attack.name for attack in tried if not sandbox.run_bare(attack)]


def test_the_documentation_lists_the_attacks_and_none_escaped():
    """The table comes from `python -m tests.attacks.sandbox`; it is out of date if an attack was added."""
    page = (DOCS / "sandbox.md").read_text(encoding="utf-8")
    written = page.split(sandbox.BEGIN)[1].split(sandbox.END)[0]
    assert written.count("\n| ") == len(sandbox.PROMISES) + 1
    assert "escaped" not in written
    for goal, words in sandbox.WORDS.items():
        count = sum(attack.goal == goal for attack in sandbox.ATTACKS)
        assert f"| {words} ({count}) | " in written
        assert f"* {words}: {sandbox.listed(goal)}." in written
