"""What the methods' classes say of themselves, held against their settings and their files."""

import pytest

from tests.helpers.cases import each_case
from unmask.methods import METHODS, OURS, RECONSTRUCTION, VERIFIED, describe_policy, make_policy

PUBLISHED = [name for name, method in METHODS.items() if method.label != OURS]

# Defects of the authors' code that are mended here, and the setting that brings each back. Where it is tested:
# test_authors.py (DUS, KLASS, the factor rule in DSB's runs), test_info_gain.py.
DEFECTS = {
    "dus": "leave_skipped",
    "klass": "leave_unfinished",
    "info-gain": "leave_unfinished",
    "fast-dllm": "authors_tail",
}
# Where paper and code differ, or the code does what few would expect: the setting that takes the other way.
OTHER_WAYS = {"p2": ("form", "exact", "noisy"), "swordsman": ("mean",), "klass": ("variant",), "dsb": ("max_block",)}


@pytest.mark.parametrize(("name", "flag"), DEFECTS.items())
def test_mended_defects_can_be_brought_back(name, flag):
    assert getattr(make_policy(name), flag) is False
    assert getattr(make_policy(name, **{flag: True}), flag) is True
    assert any(flag in line for line in METHODS[name].differs)


@pytest.mark.parametrize(("name", "settings"), OTHER_WAYS.items())
def test_other_ways_are_settings(name, settings):
    assert set(settings) <= set(describe_policy(make_policy(name)))


def test_labels():
    """Reconstructions are those with parts of ours, or untested against their authors' files."""
    labels = {name: METHODS[name].label for name in PUBLISHED}
    found = {name for name, label in labels.items() if label == RECONSTRUCTION}
    searches = {"lookum", "soar", "order-token-search", "medal"}
    assert found == {"eb-sampler", "dos", "swordsman", "vsb", "demask", "ddpd"} | searches
    assert {label for name, label in labels.items() if name not in found} == {VERIFIED}
    assert all(METHODS[name].differs for name in found)


@each_case("name", METHODS)
def test_presets_are_settings_of_the_method(name):
    for preset, values in METHODS[name].presets.items():
        assert isinstance(make_policy(name, **values), METHODS[name].kind), preset
