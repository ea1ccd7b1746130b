"""What the methods' classes say of themselves, held against their settings and their files."""

import sys
from dataclasses import fields

import pytest

from tests.helpers.cases import each_case
from unmask.methods import METHODS, OURS, RECONSTRUCTION, TAXONOMY, VERIFIED, make_policy

PUBLISHED = [name for name, method in METHODS.items() if method.card.label != OURS]

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


@each_case("name", PUBLISHED)
def test_the_file_says_the_row(name):
    method = METHODS[name]
    first = next(other for other in METHODS.values() if other.__module__ == method.__module__)
    said = " ".join((sys.modules[method.__module__].__doc__ or "").split())
    assert " | ".join(getattr(first.card, axis) for axis in TAXONOMY) in said


@pytest.mark.parametrize(("name", "flag"), DEFECTS.items())
def test_mended_defects_can_be_brought_back(name, flag):
    assert getattr(make_policy(name), flag) is False
    assert getattr(make_policy(name, **{flag: True}), flag) is True
    assert any(flag in line for line in METHODS[name].card.differs)


@pytest.mark.parametrize(("name", "settings"), OTHER_WAYS.items())
def test_other_ways_are_settings(name, settings):
    assert set(settings) <= {f.name for f in fields(METHODS[name])}


def test_labels():
    """Reconstructions are those with parts of ours, or untested against their authors' files."""
    labels = {name: METHODS[name].card.label for name in PUBLISHED}
    found = {name for name, label in labels.items() if label == RECONSTRUCTION}
    searches = {"lookum", "soar", "order-token-search", "medal"}
    assert found == {"eb-sampler", "dos", "swordsman", "vsb", "demask", "ddpd"} | searches
    assert {label for name, label in labels.items() if name not in found} == {VERIFIED}
    assert all(METHODS[name].card.differs for name in found)


@each_case("name", METHODS)
def test_presets_are_settings_of_the_method(name):
    for preset, values in METHODS[name].card.presets.items():
        assert isinstance(make_policy(name, **values), METHODS[name]), preset
