"""A model on the workers of a cluster: the same generation as in one process, whoever dies on the way."""

import os
import pickle
import signal
import threading
import time

import pytest

import unmask
from tests.helpers.local_ray import local_ray
from unmask.api.load import load
from unmask.base.errors import ConfigError
from unmask.lab.cluster import Ray
from unmask.lab.cluster.remote_model import RemoteDenoiserStub, group_prompts, merge_generations, without_network

PROMPTS = [f"What is {n} plus {37 * n}?{' Say it.' * (n % 3)}" for n in range(12)]
SHORT = {"max_new_tokens": 8, "steps": 4}


@pytest.fixture(scope="module")
def mini():
    return load("mini", device="cpu")


class TestMerged:
    def test_parts_are_the_whole(self):
        model, prompts = load("exact", n=8, vocab=4), ["ab", "cd", "ba", "dc", "aa"]
        whole = model.generate(prompts, policy="wino", samples=2, temperature=0.5)
        groups = [[4, 0], [2], [3, 1]]
        parts = [
            model.generate([prompts[at] for at in group], policy="wino", samples=2, temperature=0.5) for group in groups
        ]
        out = merge_generations(parts, [[2 * at + sample for at in group for sample in range(2)] for group in groups])
        assert out.to_json() == whole.to_json()
        assert out.trajectory.to_bytes() == whole.trajectory.to_bytes()
        assert (out.texts, out.tokens, out.canvases) == (whole.texts, whole.tokens, whole.canvases)

    def test_every_warning_once_and_in_its_place(self):
        model = load("exact", n=8, vocab=4)
        parts = [model.generate(prompt) for prompt in ("ab", "cd", "ba")]
        for part, texts in zip(parts, ([], ["one", "two"], ["two", "three"]), strict=True):
            if texts:
                part.config["warnings"] = texts
        config = merge_generations(parts).config
        assert config["warnings"] == ["one", "two", "three"]
        names = list(config)
        assert names.index("warnings") + 1 == names.index("default_prompt")

    def test_parts_of_two_calls_are_refused(self):
        model = load("exact", n=8, vocab=4)
        with pytest.raises(ConfigError, match="configurations is 'different in seed'"):
            merge_generations([model.generate("ab"), model.generate("cd", seed=1)])
        with pytest.raises(ConfigError, match="one or more"):
            merge_generations([])


def test_batches_follow_from_the_prompts_alone():
    assert group_prompts(["aaa", "b", "cc", "d"], 2) == [[1, 3], [2, 0]]
    assert group_prompts(["a"], 8) == [[0]]
    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "you"}]
    assert group_prompts([talk, "1234567", "123456789"], 1) == [[1], [0], [2]]


def process_number(model):
    time.sleep(1)
    return os.getpid()


@pytest.fixture(scope="module")
def remote():
    with local_ray(cores=3), unmask.load("mini", cluster=Ray(workers=2), device="cpu") as model:
        yield model


@pytest.mark.cluster
class TestOnWorkers:
    def test_is_what_one_process_gives(self, mini, remote):
        """Two batches of three, of other shapes than all twelve at once: both ways are looked at."""
        out = remote.generate(PROMPTS, batch_size=3, **SHORT)
        parts = [[PROMPTS[at] for at in group] for group in group_prompts(PROMPTS, 3)]
        same = merge_generations([mini.generate(part, **SHORT) for part in parts], group_prompts(PROMPTS, 3))
        assert out.to_json() == same.to_json()
        assert out.trajectory.to_bytes() == same.trajectory.to_bytes()
        assert out.texts == mini.generate(PROMPTS, **SHORT).texts
        assert [row["prompt"] for row in out.config["rows"]] == PROMPTS
        again = mini.branch(out, row=7, step=2)
        assert again.tokens[0] == out.tokens[7]

    def test_random_numbers_and_samples(self, mini, remote):
        options = {**SHORT, "temperature": 0.7, "samples": 2, "seed": 3, "record": False}
        out = remote.generate(PROMPTS[:5], batch_size=4, **options)
        assert out.to_json() == mini.generate(PROMPTS[:5], **options).to_json()
        assert out.trajectory.steps == ()

    def test_infilling_and_the_prompt_nobody_gave(self, mini, remote):
        texts = ["[MASK] + 2 = 4", "1 + 1 = [MASK][MASK]"]
        assert remote.infill(texts, batch_size=1, record=False).tokens == mini.infill(texts).tokens
        out, one = remote.generate(**SHORT), mini.generate(**SHORT)
        assert out.to_json() == one.to_json()

    def test_a_killed_worker_changes_nothing(self, mini, remote):
        victims = [remote.executor.submit(process_number, None) for _ in range(2)]
        outcome = []
        options = {"max_new_tokens": 16, "steps": 16, "record": False}
        victim = victims[0].result()
        thread = threading.Thread(target=lambda: outcome.append(remote.generate(PROMPTS, batch_size=1, **options)))
        thread.start()
        time.sleep(0.5)
        os.kill(victim, signal.SIGKILL)
        thread.join()
        assert outcome[0].tokens == mini.generate(PROMPTS, **options).tokens

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"steps": 0}, "steps of row 0 is 0"),
            ({"policy": "lada"}, "did you mean llada"),
            ({"tempreature": 1}, "temperature"),
            ({"batch_size": 0}, "batch_size is 0; allowed: 1 or more rows"),
            ({"on_step": print}, "on_step is given, but the steps are taken by workers"),
            ({"samples": "2"}, "samples is '2'"),
        ],
    )
    def test_what_is_wrong_is_said_as_in_one_process(self, remote, options, words):
        with pytest.raises(ConfigError, match=words):
            remote.generate(PROMPTS[:2], **options)

    def test_what_a_cluster_does_not_do(self, remote):
        with pytest.raises(ConfigError, match="branch continues one row"):
            remote.branch(None, step=1)
        with pytest.raises(ConfigError, match="log_likelihood is not spread"):
            remote.log_likelihood("a")

    def test_a_model_that_is_none(self, remote):
        with pytest.raises(ConfigError, match=r"unknown model .mimi."):
            unmask.load("mimi", cluster=Ray(workers=1))

    def test_a_closed_one_says_so(self, remote):
        with unmask.load("exact", cluster=Ray(workers=1)) as model:
            assert model.generate("a", record=False).texts == load("exact").generate("a").texts
        assert "closed" in repr(model)
        with pytest.raises(ConfigError, match="load it again"):
            model.generate("a")


class TestWithoutNetwork:
    def test_everything_but_the_network_is_there(self, tiny_model):
        here = pickle.loads(pickle.dumps(without_network(tiny_model)))
        assert isinstance(here.denoiser, RemoteDenoiserStub)
        assert (here.name, here.fingerprint, here.options) == (
            tiny_model.name,
            tiny_model.fingerprint,
            tiny_model.options,
        )
        assert here.denoiser.vocabulary == tiny_model.denoiser.vocabulary
        assert here.codec.encode("Say it.") == tiny_model.codec.encode("Say it.")
        with pytest.raises(ConfigError, match="the network is on the workers of a cluster; allowed: generate"):
            here.generate("a", max_new_tokens=2)


def test_a_cluster_is_a_value_of_ours():
    with pytest.raises(ConfigError, match="cluster is 'ray'; allowed: a Ray"):
        unmask.load("mini", cluster="ray")
