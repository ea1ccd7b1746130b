"""A test file lies where its module lies: `tests/a/test_b.py` is about `unmask/a/b.py`, or the package `unmask/a/b`."""

from tests.helpers.paths import SRC, TESTS

HOME = SRC / "unmask"
# What is about no single module, and why.
ACROSS = {
    "test_embedded.py": "the trained models that travel with the package, from their files to their answers",
    "test_every_method.py": "every published method on every model of the package, from the shell",
    "test_extending.py": "the examples of docs/extending.md",
    "test_fuzz.py": "random arguments to all that a user calls",
    "test_golden_values.py": "all that a user sees, against tests/golden_values",
    "test_house.py": "sizes and names in all of the source",
    "test_imports.py": "the order of imports in all of the source",
    "test_look_ahead.py": "what a method may rely on: the contracts of core, kept by decode",
    "test_mirror.py": "this file",
    "test_readme.py": "the commands of README.md",
    "test_torture.py": "the torture of tests/torture: what it sees, and that it can be repeated",
    "checkpoints/test_parity.py": "whole runs against the authors' loops: checkpoints, denoisers, policies and decode",
    "diagnostics/test_planted.py": "every diagnostic on problems whose better action is known",
    "policies/test_authors.py": "whole runs of the authors' loops: policies and decode",
    "policies/test_neutral.py": "every method at the setting where it is a simpler one",
    "policies/test_toy.py": "the toy network of this folder's golden files is the one they were made with",
    "stats/test_validity.py": "simulated studies: what the estimators and intervals are worth together",
}


def test_every_test_file_has_its_module():
    homeless = [
        str(place)
        for path in sorted(TESTS.rglob("test_*.py"))
        if str(place := path.relative_to(TESTS)) not in ACROSS
        # Pages in a real browser, whichever module makes them.
        and place.parts[0] != "browser"
        and not (module := HOME / place.parent / place.name.removeprefix("test_")).exists()
        and not (module.with_suffix("") / "__init__.py").exists()
    ]
    assert not homeless, "rename these after a module or a package, or add them to ACROSS with a reason"


def test_what_is_across_is_there_and_mirrors_nothing():
    for name in ACROSS:
        assert (TESTS / name).exists(), name
        assert not (HOME / name.replace("test_", "")).exists(), name
