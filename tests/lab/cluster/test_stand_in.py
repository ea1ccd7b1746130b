"""A model as the driver of a cluster sees it."""

import pickle

import pytest

from unmask.api.load import load
from unmask.base.errors import ConfigError
from unmask.lab.cluster.stand_in import stand_in


def test_everything_but_the_network(tiny_model):
    here = pickle.loads(pickle.dumps(stand_in(tiny_model)))
    assert (here.name, here.fingerprint, here.options) == (tiny_model.name, tiny_model.fingerprint, tiny_model.options)
    assert here.denoiser.vocabulary == tiny_model.denoiser.vocabulary
    assert here.denoiser.device == tiny_model.denoiser.device
    assert here.codec.encode("Say it.") == tiny_model.codec.encode("Say it.")


def test_nothing_here_may_call_it(tiny_model):
    with pytest.raises(ConfigError, match="the network is on the workers of a cluster; allowed: generate and infill"):
        stand_in(tiny_model).generate("a", max_new_tokens=2)


def test_a_table_of_probabilities_goes_as_it_is():
    model = load("exact")
    assert stand_in(model) is model
