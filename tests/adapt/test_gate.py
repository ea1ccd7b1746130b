"""Gate files, and decoding with them from Python and from a shell."""

import json
import random
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

import unmask
from tests.helpers.cases import each_case
from unmask.adapt import EndToEnd, Gate, Lift, coverage
from unmask.adapt import gate as gate_files
from unmask.adapt.diagnostics import DIAGNOSTICS, RegionDiagnostic
from unmask.adapt.gate import FORMAT
from unmask.api.load import load
from unmask.axes import AXES, ReMDM
from unmask.base.errors import ConfigError, GateFileError, OtherModel, StorageError, UnknownName
from unmask.base.json_files import hash_body
from unmask.cli import app as cli
from unmask.core import Trajectory
from unmask.methods import Dream, fixed_action

INF = float("inf")
OPEN = {"starts": (), "g": (0.1,), "tau": -INF}
RUNS = EndToEnd(reference=0.9, fixed=0.4, selective=0.45, low=-0.58, high=-0.36, prompts=100, differ=60)


@pytest.fixture(scope="module")
def model():
    return load("exact")


@pytest.fixture(scope="module")
def gate_of(kit, model):
    """A gate for a model, of any axis and calibration."""

    def made(axis="cardinality", kind="llada", *, steps_share=0.5, of=model, **choices):
        how = "end to end on 100 held-out prompts, selective less fixed"
        return Gate(
            model=of.name,
            fingerprint=of.fingerprint,
            task="carry-rtl",
            arms=kit.arms_of(axis, kind, **choices),
            steps_share=steps_share,
            lift=Lift(value=0.02, low=0.005, high=0.035, how=how),
            end_to_end=RUNS,
        )

    return made


def with_fields(options, **fields):
    """The same with other values, which are not checked."""
    return options.model_copy(update=fields)


def revised_file(gate, change):
    """The file's text with a changed body and the right hash."""
    whole = json.loads(gate.to_json())
    change(whole["body"])
    return json.dumps({**whole, "hash": hash_body(FORMAT, whole["body"])})


class TestFile:
    @each_case("axis", AXES)
    @each_case("kind", ["llada", "dream"])
    @each_case("tau", [None, -INF, 0.05])
    def test_round_trip(self, axis, kind, tau, gate_of, tmp_path):
        gate = gate_of(axis, kind, tau=tau, fixed=1)
        gate.save(tmp_path / "gate.json")
        again = Gate.load(tmp_path / "gate.json")
        assert again.to_json() == gate.to_json() == (tmp_path / "gate.json").read_text()
        assert again.hash == gate.hash
        assert again.policy() == gate.policy()
        assert again.end_to_end == RUNS

    def test_a_flipped_bit_is_noticed(self, gate_of, tmp_path):
        """Wherever it is: in what the file says, in its layout, in a number that stays the same number."""
        whole = gate_of("region", tau=1e-05, fixed=1).to_json().encode()
        assert b"1e-05" in whole
        draw = random.Random(5)
        places = [*(draw.randrange(len(whole)) for _ in range(50)), whole.index(b"1e-05") + 1]
        for place in places:
            for bit in range(8) if place == places[-1] else [draw.randrange(8)]:
                damaged = bytearray(whole)
                damaged[place] ^= 1 << bit
                (tmp_path / "gate.json").write_bytes(damaged)
                with pytest.raises(GateFileError, match=r"gate\.json"):
                    Gate.load(tmp_path / "gate.json")

    def test_keeps_settings_that_are_not_the_defaults(self, gate_of):
        gate = gate_of("region")
        gate = with_fields(gate, arms=replace(gate.arms, diagnostic=RegionDiagnostic(budget=0.75)))
        assert Gate.from_json(gate.to_json()).policy().diagnostic == RegionDiagnostic(budget=0.75)
        gate = gate_of("commitment")
        gate = with_fields(gate, arms=replace(gate.arms, operator=ReMDM("rescale", 0.3)))
        assert Gate.from_json(gate.to_json()).policy().operator == ReMDM("rescale", 0.3)

    def test_holds_what_it_should(self, gate_of, model):
        whole = json.loads(gate_of("commitment", fixed=2).to_json())
        assert (whole["format"], set(whole)) == (FORMAT, {"format", "hash", "body"})
        body = whole["body"]
        assert body["model"] == {"name": "exact", "fingerprint": model.fingerprint}
        assert (body["task"], body["axis"], body["reference"]) == ("carry-rtl", "commitment", "llada")
        assert (body["fixed"], body["candidates"][0]) == ("confidence:0.9", "all")
        assert body["diagnostic"] == {"epsilon": 1e-3, "window": 4}
        assert body["revision"]["variant"] == "conf"
        assert (body["steps_share"], body["unmask"]) == (0.5, unmask.__version__)
        assert body["lift"]["low"] == 0.005
        assert body["calibration"]["body"]["tau"]["value"] == 0.05

    def test_every_entry_is_in_the_hash(self, gate_of):
        gate = gate_of()
        other = [
            with_fields(gate, model="x"),
            with_fields(gate, fingerprint="x"),
            with_fields(gate, task="x"),
            with_fields(gate, steps_share=0.25),
            with_fields(gate, lift=with_fields(gate.lift, high=0.5)),
            with_fields(gate, end_to_end=with_fields(RUNS, fixed=0.5)),
            with_fields(gate, end_to_end=None),
            with_fields(gate, unmask="9.9"),
            gate_of("region"),
            gate_of(kind="dream"),
            gate_of(fixed=1),
            gate_of(tau=None),
        ]
        assert len({one.hash for one in [gate, *other]}) == 13

    @each_case(
        ("change", "words"),
        [
            (lambda text: text.replace('"carry-rtl"', '"carry-ltr"'), "edited"),
            (lambda text: text.replace('"value": 0.05', '"value": 0.06'), "edited"),
            (lambda text: text.replace(FORMAT, "unmask-gate-1"), r"'unmask-gate-1'.*'unmask-gate-2'.*calibrate again"),
            (lambda text: text[:-20], "not strict JSON"),
            (lambda text: text.replace("0.02", "NaN"), "NaN is no JSON number"),
            (lambda text: text.replace('"task"', '"axis": "score", "task"'), "given twice"),
            (lambda text: "[]", "names no format"),
            (lambda text: json.dumps({**json.loads(text), "note": 1}), "entries"),
        ],
    )
    def test_another_file_is_refused(self, change, words, gate_of, tmp_path):
        (tmp_path / "gate.json").write_text(change(gate_of().to_json()))
        with pytest.raises(GateFileError, match=words) as caught:
            Gate.load(tmp_path / "gate.json")
        assert str(tmp_path) in str(caught.value)

    @each_case(
        ("key", "value", "words"),
        [
            ("axis", "region", "describe a gate"),
            ("axis", "planning", "planning"),
            ("reference", "gpt", "gpt"),
            ("task", 3, "task is 3"),
            ("steps_share", 0, "steps_share is 0"),
            ("steps_share", "half", "'half'"),
            ("fixed", "count:1", "no calibration writes"),
            ("lift", {"value": 1.0, "low": 2.0, "high": 1.0, "how": ""}, "low <= high"),
            ("lift", {"value": 1.0}, "describe a gate"),
            ("end_to_end", {"reference": 1.0}, "describe a gate"),
            ("end_to_end", dict(RUNS) | {"fixed": 1.5}, "fixed is 1.5; allowed: 0 to 1"),
            ("end_to_end", dict(RUNS) | {"fixed": "x"}, "fixed is 'x'"),
            ("end_to_end", dict(RUNS) | {"low": 0.5}, "low <= high"),
            ("end_to_end", dict(RUNS) | {"low": -1.5}, "low is -1.5; allowed: -1 to 1"),
            ("end_to_end", dict(RUNS) | {"prompts": 0}, "prompts is 0; allowed: 1 or more"),
            ("end_to_end", dict(RUNS) | {"prompts": 1.5}, "prompts is 1.5"),
            ("end_to_end", dict(RUNS) | {"differ": 101}, "differ is 101; allowed: 0 to 100"),
            ("diagnostic", {"epsilon": -1.0}, "epsilon of CardinalityDiagnostic is -1.0"),
            ("diagnostic", {"epsilon": "x"}, "epsilon of CardinalityDiagnostic is 'x'"),
            ("diagnostic", {"speed": 1}, "describe a gate"),
            ("calibration", {}, "its calibration is refused"),
            ("extra", 1, "no calibration writes"),
        ],
    )
    def test_values_that_no_gate_has_are_refused(self, key, value, words, gate_of):
        with pytest.raises(GateFileError, match=words):
            Gate.from_json(revised_file(gate_of(), lambda body: body.__setitem__(key, value)))

    def test_an_edited_calibration_is_refused_even_with_the_right_outer_hash(self, gate_of):
        def change(body):
            body["calibration"]["body"]["tau"]["value"] = 0.0

        with pytest.raises(GateFileError, match="edited"):
            Gate.from_json(revised_file(gate_of(), change))

    def test_places(self, gate_of, tmp_path):
        with pytest.raises(GateFileError, match="No such file"):
            Gate.load(tmp_path / "none.json")
        (tmp_path / "bytes").write_bytes(b"\xff\xfe")
        with pytest.raises(GateFileError, match="not text"):
            Gate.load(tmp_path / "bytes")
        with pytest.raises(StorageError, match="choose another"):
            gate_of().save(tmp_path / "none" / "gate.json")

    def test_another_model_is_refused_unless_forced(self, gate_of, tmp_path):
        path = tmp_path / "gate.json"
        gate_of().save(path)
        own = gate_of().fingerprint
        assert Gate.load(path, fingerprint=own).fingerprint == own
        with pytest.raises(OtherModel, match="calibrated"):
            Gate.load(path, fingerprint="another")
        assert Gate.load(path, fingerprint="another", force=True).fingerprint == own


@dataclass(frozen=True)
class OtherRegion(RegionDiagnostic):
    """A second diagnostic of an axis, with a setting of its own."""

    name: ClassVar[str] = "other-region"
    extra: float = 1.0


class TestNamedDiagnostics:
    """A gate of a diagnostic that is not called as its axis."""

    @pytest.fixture
    def registered(self, monkeypatch):
        monkeypatch.setattr(gate_files, "DIAGNOSTICS", {**DIAGNOSTICS, "other-region": OtherRegion()})

    @pytest.fixture
    def gate(self, gate_of):
        gate = gate_of("region", **OPEN)
        return with_fields(gate, arms=replace(gate.arms, diagnostic=OtherRegion(budget=0.75, extra=2.0)))

    @pytest.mark.usefixtures("registered")
    def test_round_trip(self, gate, tmp_path):
        gate.save(tmp_path / "gate.json")
        again = Gate.load(tmp_path / "gate.json")
        assert again.to_json() == gate.to_json()
        assert again.policy() == gate.policy()
        assert again.policy().diagnostic == OtherRegion(budget=0.75, extra=2.0)
        body = json.loads(gate.to_json())["body"]
        assert (body["axis"], body["diagnostic_name"]) == ("region", "other-region")
        assert "axis: region, by the diagnostic other-region" in again.inspect()

    def test_is_refused_where_nobody_knows_it(self, gate):
        with pytest.raises(GateFileError, match="unknown diagnostic 'other-region'"):
            Gate.from_json(gate.to_json())


def steps(out):
    return [(s.rows_B.tolist(), s.revealed_BL.tolist()) for s in out.trajectory.steps], out.tokens


class TestGenerate:
    def test_by_file_by_object_and_without_naming_the_policy(self, model, gate_of, tmp_path):
        gate = gate_of(**OPEN)
        gate.save(tmp_path / "gate.json")
        ways = [
            model.generate(["ab", "c"], policy="selective", gate=str(tmp_path / "gate.json")),
            model.generate(["ab", "c"], policy="selective", gate=tmp_path / "gate.json"),
            model.generate(["ab", "c"], gate=gate),
            model.generate(["ab", "c"], policy=gate.policy()),
        ]
        assert len({json.dumps(steps(out)) for out in ways}) == 1
        assert ways[0].to_json() == ways[1].to_json() == ways[2].to_json()
        assert steps(ways[0]) != steps(model.generate(["ab", "c"]))
        assert coverage(ways[0].trajectory)["cardinality"].share == 1

    def test_infill_and_steps_follow_the_gate(self, model, gate_of):
        gate = gate_of(**OPEN)
        assert model.generate("ab", gate=gate_of(steps_share=1.0, tau=None)).config["rows"][0]["steps"] == 6
        assert model.infill("ab______", gate=gate).texts == model.generate("ab", gate=gate).canvases

    def test_a_branch_goes_on_with_the_gate(self, model, gate_of, tmp_path):
        """In memory by itself; a file holds no gate, so it must be named."""
        gate = gate_of(**OPEN)
        whole = model.generate("ab", gate=gate)
        again = model.branch(whole, step=1)
        assert (again.texts, again.config["gate"]) == (whole.texts, whole.config["gate"])
        whole.trajectory.save(tmp_path / "run.npz")
        with pytest.raises(ConfigError, match="decoded with a gate, which its file does not hold; name it"):
            model.branch(tmp_path / "run.npz", step=1)
        assert model.branch(tmp_path / "run.npz", step=1, gate=gate).texts == whole.texts

    def test_alone_as_in_a_batch(self, model, gate_of):
        gate = gate_of("score", **OPEN)
        options = {"gate": gate, "temperature": 0.9, "samples": 2, "steps": 3}
        together = model.generate(["a", "bcd", "dd"], **options)
        alone = [text for prompt in ("a", "bcd", "dd") for text in model.generate(prompt, **options).texts]
        assert list(together.texts) == alone

    def test_the_configuration_shows_the_gate(self, model, gate_of):
        gate = gate_of("region", fixed=2, **OPEN)
        config = json.loads(model.generate("ab", gate=gate).to_json())["config"]
        assert config["gate"]["hash"] == gate.hash
        assert (config["gate"]["axis"], config["gate"]["fixed"]) == ("region", "block:16")
        assert (config["gate"]["tau"], config["gate"]["forced"]) == ("-inf", False)
        assert config["gate"]["lift"]["value"] == 0.02
        assert config["gate"]["end_to_end"] == dict(RUNS)
        assert config["gate"]["model"]["name"] == "exact"
        assert config["policy"]["name"] == "selective"
        assert config["policy"]["fixed"]["region"] == "block:16"
        assert config["policy"]["detector"] == {"starts": [], "expected": [0.1], "tau": "-inf"}
        assert "gate" not in model.generate("ab").config

    def test_other_steps_than_those_of_the_calibration_are_said(self, model, gate_of):
        gate = gate_of(steps_share=0.5)
        words = r"calibrated at 0.5 x new tokens \(3 steps for 6\) and is used at 6 steps"
        with pytest.warns(UserWarning, match=words) as said:
            out = model.generate(["ab", "ba"], gate=gate, steps=6)
        assert [warning.filename for warning in said] == [__file__]
        assert out.config["warnings"] == [str(said[0].message)]
        assert json.loads(out.to_json())["config"]["warnings"] == out.config["warnings"]
        with pytest.warns(UserWarning, match="used at 4 steps"):
            model.infill("ab____", gate=gate, steps=4)

    def test_another_model_is_refused_unless_forced(self, gate_of):
        other = load("exact", seed=3)
        gate = gate_of(**OPEN)
        with pytest.raises(OtherModel, match=gate.fingerprint):
            other.generate("ab", gate=gate)
        out = other.generate("ab", gate=gate, force_gate=True)
        assert out.config["gate"]["forced"] is True

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"policy": "selective"}, "gate='gate.json'"),
            ({"policy": "selectiv"}, "did you mean selective"),
            ({"gate": 3}, "gate is 3"),
            ({"force_gate": True}, "False without a gate"),
            ({"force_gate": "yes"}, "true or false"),
        ],
    )
    def test_refused(self, options, words, model):
        with pytest.raises(ConfigError, match=words):
            model.generate("ab", **options)

    def test_refused_beside_a_gate(self, model, gate_of):
        with pytest.raises(ConfigError, match="drop the policy or the gate"):
            model.generate("ab", policy="llada", gate=gate_of())
        with pytest.raises(ConfigError, match="drop the policy or the gate"):
            model.generate("ab", policy=fixed_action(), gate=gate_of())
        with pytest.raises(ConfigError, match="in its file"):
            model.generate("ab", gate=gate_of(), block_length=4)
        assert issubclass(UnknownName, ConfigError)


@pytest.fixture(scope="module", params=["llada", "dream"])
def network(request, scaled, tmp_path_factory):
    return load(str(getattr(scaled, request.param)(tmp_path_factory.mktemp("net") / request.param)))


class TestNetworks:
    """With a network's own rounding, and attention that is read out."""

    @pytest.mark.parametrize("axis", AXES)
    def test_a_shut_gate_is_the_fixed_action_and_an_open_one_deviates(self, axis, network, gate_of):
        own = {"of": network, "kind": network.reference, "fixed": 1}
        how = {"max_new_tokens": 12}
        shut, wide = gate_of(axis, tau=None, **own), gate_of(axis, **own, **OPEN)
        assert shut.arms.reference == {"llada": fixed_action(), "dream": Dream()}[network.reference]
        ran = network.generate(["Hi", "What is this?"], gate=shut, **how)
        assert steps(ran) == steps(network.generate(["Hi", "What is this?"], policy=shut.arms.fixed, **how))
        assert coverage(ran.trajectory)[axis].share == 0
        ran = network.generate(["Hi", "What is this?"], gate=wide, **how)
        assert coverage(ran.trajectory)[axis].share == 1
        assert ran.to_json() == network.generate(["Hi", "What is this?"], gate=wide, **how).to_json()
        assert not ran.trajectory.state.masked_BL.any()


class TestShell:
    @pytest.fixture
    def run(self, capsys, tmp_path, monkeypatch, gate_of):
        monkeypatch.chdir(tmp_path)
        gate_of(**OPEN).save("gate.json")
        gate_of(tau=None).save("shut.json")

        def command(*arguments):
            code = cli.main([*arguments])
            shown = capsys.readouterr()
            return code, shown.out, shown.err

        return command

    def test_has_its_effect(self, run, tmp_path):
        ran = []
        for extra in ((), ("--gate", "gate.json"), ("--gate", "shut.json")):
            assert run("generate", "ab", "-m", "exact", *extra, "--save", "run.npz")[0] == 0
            ran.append([s.revealed_BL.tolist() for s in Trajectory.load(tmp_path / "run.npz").steps])
        assert ran[0] != ran[1]
        assert ran[0] == ran[2]

    def test_refused(self, run, tmp_path):
        (tmp_path / "edited.json").write_text((tmp_path / "gate.json").read_text().replace("carry-rtl", "carry-ltr"))
        for arguments, words in (
            (("--gate", "edited.json"), "edited"),
            (("--gate", "none.json"), "none.json"),
            (("--policy", "selective"), "gate.json"),
            (("--set", "gate=gate.json"), "--gate"),
        ):
            code, _, err = run("generate", "ab", "-m", "exact", *arguments)
            assert code == 2
            assert words in err
