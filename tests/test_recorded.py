"""Recorded steps: the tokens, counts and records of the plain loop, without the host."""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import pytest
import torch

from tests.helpers.gpu import gpu
from tests.helpers.tape import HostFree, HostRead, Recorded, Tape, TapeRecorder
from unmask.adapt.detector import Lookup
from unmask.adapt.joint import JointPolicy
from unmask.adapt.proposed import Proposed
from unmask.adapt.random_gate import RandomGate
from unmask.adapt.selective import Selective
from unmask.adapt.staged import Staged
from unmask.catalog import load
from unmask.core import Action, LookAhead, Noise, Policy, Proposal, State, Trajectory, Vocabulary, row_key
from unmask.decode import decode
from unmask.denoisers import Exact, Joint, Network
from unmask.denoisers.transformer import Spec, Transformer
from unmask.diagnostics import DIAGNOSTICS
from unmask.errors import InvalidAction, Unfinished
from unmask.policies import METHODS, Composed, Fixed, LLaDA, Revised, make
from unmask.policies.candidates import Instead, candidates
from unmask.runner import Runner

EXACT = Exact(Joint.random(9, 4, dependence=1.5, seed=3), eos_ids=(2, 3))
OPEN = Lookup((0.0, 0.05), (0.2, None, 0.1), 0.1)
"""Deviates at some signals and not at others."""

SETTINGS = {
    "llada": [{}, {"remasking": "random"}, {"block_length": 2}],
    "fast-dllm": [{"threshold": 0.4}, {"rule": "factor"}, {"rule": "factor", "authors_tail": True}],
    "klass": [{"epsilon": 0.5, "threshold": 0.3}, {"variant": "dream", "strategy": "random"}, {"leave_unfinished": True}],
    "dos": [{}, {"base": "eb", "drop_self": True, "sinks": 0.4}],
    "dus": [{"block_length": 4}, {"block_length": 4, "skip": 0.4}],
    "dcd": [{"s_init": 2, "s_max": 3, "threshold": 0.5}, {"score": "entropy", "threshold": -0.5}],
    "remdm": [{f"operator.variant": v} for v in ("cap", "rescale", "conf", "loop")],
    "remdm-llada": [{}, {"k": 2}],
    "p2": [{}, {"exact": True, "form": "probability"}],
    "dream": [{}, {"alg": "origin"}, {"alg": "topk_margin", "alg_temp": 0.5}],
    "fixed": [{"alpha": name} for name in ("margin", "certainty", "stability", "dependency", "uniform")],
}


def four() -> JointPolicy:
    """Selective adaptation with all four diagnostics."""
    return JointPolicy(Fixed(), tuple(kind() for kind in DIAGNOSTICS.values()), (OPEN,) * len(DIAGNOSTICS))


def recordable() -> dict[str, Policy]:
    """Every policy that says so, at several settings."""
    found: dict[str, Policy] = {}
    for name in METHODS:
        for options in SETTINGS.get(name, [{}]):
            found[f"{name} {options}"] = make(name, **options)
    regions = ("block:2", "last-block:2", "window:2", "dilated:2", "near:1", "groups:2", "sliding:2:3", "masks:2:3")
    found |= {f"region {rule}": Fixed(region=rule) for rule in regions}
    counts = ("quota", "count:2", "share:0.5", "above:0.5", "factor:1", "eb:0.1", "all", 0.3)
    found |= {f"cardinality {rule}": Composed(cardinality=rule) for rule in counts}
    found |= {f"score {rule}": Composed(score=rule) for rule in ("entropy", "random", "confidence+stability")}
    found |= {f"commit {rule}": Composed(commitment=rule) for rule in ("margin:0.5", "confidence:0.9+remdm-conf")}
    found |= {f"dream's {axis}": next(reversed(named.values())) for axis, named in candidates("dream").items()}
    found |= {f"selective {n}": Selective(Fixed(), kind(), OPEN) for n, kind in DIAGNOSTICS.items()}
    found |= {"four": four(), "revised four": Revised(four()), "staged": Staged((LLaDA(), Fixed(region="block:2")))}
    found |= {"always": Proposed(LLaDA(), DIAGNOSTICS["region"]()), "random": RandomGate(Fixed(), DIAGNOSTICS["score"](), 0.5)}
    found |= {"instead": Instead(LLaDA(), region="block:2", kappa="count:2")}
    return {name: policy for name, policy in found.items() if isinstance(policy, Policy) and policy.recordable}


POLICIES = recordable()


def rows(denoiser, new_tokens=(2, 6, 4, 5), steps=None, device="cpu", prompts=((0,), (1, 2), (3,), (2, 1))):
    """Rows of several lengths that end at several times."""
    state = State.from_prompts(
        [list(p) for p in prompts],
        new_tokens=list(new_tokens),
        steps=list(steps or new_tokens),
        mask_id=denoiser.vocabulary.mask_id,
        device=device,
    )
    return {"start": state, "noise": Noise.of([row_key(0, bytes(p)) for p in prompts], device)}


def both(denoiser, policy, run, recorder=None, **options):
    """The plain loop's result and the recorded one's."""
    recorder = recorder or TapeRecorder(replays=False)
    around = replace(denoiser, recorder=recorder) if isinstance(denoiser, Network) else Recorded(denoiser, recorder)
    plain = decode(denoiser, policy, run["start"], noise=run["noise"], **options)
    recorded = decode(around, policy, run["start"], noise=run["noise"], **options)
    return plain, recorded, recorder


@cache
def tiny() -> Network:
    """One narrow layer; one token ends the text, so that some tails close."""
    model = Transformer.empty(Spec(24, 16, 2, 2, 1, 32, 1e4, 1e-5, True, True), "cpu", torch.float32)
    torch.manual_seed(1)
    for name, values in model.named_parameters():
        torch.nn.init.ones_(values) if "norm" in name else torch.nn.init.normal_(values, std=0.5)
    return Network(model.requires_grad_(False), Vocabulary(24, 23, (5, 7)), readout=(0, 1))


def test_the_named_methods_are_recordable():
    """Those whose steps have one shape; the others look ahead, search, or pick positions out."""
    plain = {"wino", "core", "info-gain", "vsb"}
    assert {name for name in METHODS if not make(name).recordable} == plain
    assert four().recordable
    assert not make("fast-dllm", spacing=8).recordable
    assert not make("p2", noisy=True).recordable
    assert not make("revised", base=make("wino")).recordable
    assert not Selective(make("fast-dllm", spacing=2), DIAGNOSTICS["score"](), OPEN).recordable


@pytest.mark.parametrize("name", POLICIES)
def test_steps_are_those_of_the_plain_loop(name):
    policy = POLICIES[name]
    even = {"new_tokens": (4, 4, 6, 2), "steps": (2, 4, 6, 2)} if "block" in name or "klass" in name else {}
    for options in ({"eos_fill": True}, {"proposal": Proposal(temperature=1.0)}):
        plain, recorded, recorder = both(EXACT, policy, rows(EXACT, **even), **options)
        assert recorder.done["at once"] and not recorder.refused
        assert plain.to_bytes() == recorded.to_bytes()
        assert torch.equal(plain.remasks_B, recorded.remasks_B)


@pytest.mark.parametrize("name", POLICIES)
def test_a_step_can_be_recorded(name):
    """No host read, no copy from the host, no shape out of values; and a replay does what the step would have done."""
    policy, network = POLICIES[name], tiny()
    recorder = TapeRecorder()
    for first in range(3):
        run = rows(network, (2, 4, 4), (2, 4, 4), prompts=((first, 8), (1, 2), (3,)))
        plain, recorded, _ = both(
            network, policy, run, recorder, proposal=Proposal(temperature=0.7), eos_fill=True, record=first == 2
        )
        assert plain.to_bytes() == recorded.to_bytes()
    assert not recorder.refused
    assert recorder.done["recorded"] and recorder.done["replayed"]
