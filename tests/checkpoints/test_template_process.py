"""Templates of strangers: whatever they try, this process goes on and says which template did what."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.helpers.cases import each_case
from tests.helpers.fresh_python import fresh_python
from unmask.base.errors import CheckpointError
from unmask.checkpoints import template_process
from unmask.checkpoints.chat_template import ChatTemplate
from unmask.checkpoints.template_process import _kept, render_apart

HELLO = [{"role": "user", "content": "Hello"}]
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(template_process, "SECONDS", 0.2)


def refusal(source):
    with pytest.raises(CheckpointError) as caught:
        ChatTemplate(source, origin="the chat template in x.json").render(HELLO)
    message = str(caught.value)
    assert message.startswith("the chat template in x.json ")
    assert "; allowed: " in message
    assert "chat=False" in message
    assert len(message) < 1000
    return message


ENDLESS = {
    "loops": LOOP,
    "a power": "{{ 10 ** (10 ** 9) }}",
    "a sum": "{% set ns = namespace(n=0) %}" + LOOP.replace("{% endfor %}", "{% set ns.n = ns.n + 1 %}{% endfor %}", 1),
    "sorting": "{% for i in range(99999) %}{% set x = range(99999)|list|sort|length %}{% endfor %}",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_template_without_end_is_stopped(kind, impatient):
    assert "takes more than 0.2 s of processor time" in refusal(ENDLESS[kind])
    assert ChatTemplate("{{ messages[0].content }}").render(HELLO) == "Hello"


HOARDS = {
    "a long text": "{{ 'a' * 10 ** 10 }}",
    "doubling": "{% set ns = namespace(t='ab') %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
    "a list": "{{ ([0] * 10 ** 9)|length }}",
    "padding": "{{ '%99999999999d'|format(1) }}",
    "centre": "{{ 'a'|center(10 ** 11) }}",
}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep the limit on memory")
@pytest.mark.parametrize("kind", HOARDS)
def test_a_template_that_hoards_is_stopped(kind):
    message = refusal(HOARDS[kind])
    assert "takes more than 1024 MiB of memory" in message or "fails" in message
    assert ChatTemplate("{{ messages[0].content }}").render(HELLO) == "Hello"


FAILING = {
    "a long range": "{% for i in range(10 ** 12) %}{% endfor %}",
    "macros without end": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a deep template": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep blocks": "{% if 1 %}" * 2000 + "x" + "{% endif %}" * 2000,
    "a huge number": "{{ 10 ** 5000 }}",
    "internals": "{{ ''.__class__.__base__.__subclasses__() }}",
    "internals by a filter": "{{ (''|attr('__class__')).mro() }}",
    "internals by a format": "{{ '{0.__class__.__init__.__globals__}'.format(1) }}",
    "a cycler": "{{ cycler.__init__.__globals__.os.system('false') }}",
    "a joiner": "{{ (joiner|attr('__init__')|attr('__globals__')).os }}",
    "a lipsum": "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "self": "{{ self._TemplateReference__context.environment.from_string('x') }}",
}


@each_case("kind", FAILING)
def test_a_template_that_fails_is_named(kind):
    refusal(FAILING[kind])
    assert ChatTemplate("{{ messages[0].content }}").render(HELLO) == "Hello"


def test_much_text_is_stopped():
    assert "characters or more" in refusal("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}")
    assert "characters or more" in refusal("{{ lipsum(n=9999) }}" * 99)


def test_one_process_serves_many():
    def render(text):
        return ChatTemplate("{{ messages[0].content }}").render([{"role": "user", "content": text}])

    render("first")
    before = _kept.child.process.pid
    assert [render(str(n)) for n in range(50)] == [str(n) for n in range(50)]
    texts: dict[int, list[str]] = {}
    threads = [
        threading.Thread(target=lambda t=t: texts.update({t: [render(f"{t}-{n}") for n in range(20)]}))
        for t in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {t: [f"{t}-{n}" for n in range(20)] for t in range(4)}
    assert _kept.child.process.pid == before


def test_any_character_travels():
    text = "é \ud800 \0 \U0001f600 \r\n"
    assert ChatTemplate("{{ messages[0].content }}").render([{"role": "user", "content": text}]) == text


def test_a_process_that_was_ended_is_started_again():
    ChatTemplate("x").render(HELLO)
    os.kill(_kept.child.process.pid, signal.SIGKILL)
    _kept.child.process.wait()
    assert ChatTemplate("x").render(HELLO) == "x"


def test_an_interrupted_request_answers_no_other(monkeypatch):
    def interrupted(stream):
        raise KeyboardInterrupt

    ChatTemplate("x").render(HELLO)
    with monkeypatch.context() as patch:
        patch.setattr(template_process, "read_frame", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ChatTemplate("first").render(HELLO)
    assert ChatTemplate("second").render(HELLO) == "second"


@pytest.mark.skipif(sys.platform != "linux", reason="read in /proc")
def test_a_template_sees_nothing_of_the_environment(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    _kept.end()
    ChatTemplate("x").render(HELLO)
    assert b"secret" not in Path(f"/proc/{_kept.child.process.pid}/environ").read_bytes()


def test_the_process_loads_nothing_of_ours():
    """It starts in the time that Jinja takes, and there is nothing of the model in its memory."""
    code = (
        "import sys; import runpy; runpy.run_path(sys.argv[1], run_name='child'); "
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy', 'unmask', 'tokenizers')])"
    )
    assert fresh_python(code, template_process.template_child.__file__).stdout == "[]\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_one_of_its_own():
    """In a fresh interpreter: forking this one, with its threads, would be a test of other things."""
    code = """
import json, os
from unmask.checkpoints.chat_template import ChatTemplate
from unmask.checkpoints.template_process import _kept
HELLO = [{"role": "user", "content": "Hello"}]
render = lambda text: ChatTemplate(text).render(HELLO)
texts = [render("before")]
pid = _kept.child.process.pid
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps([render("child"), _kept.child.process.pid != pid]).encode())
    _kept.end()
    os._exit(0)
texts.append(render("after"))
os.wait()
print(json.dumps([texts, json.loads(os.read(read, 1000)), _kept.child.process.pid == pid]))
"""
    done = fresh_python(code)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [["before", "after"], ["child", True], True]


def test_no_process_is_left_behind():
    code = """
from unmask.checkpoints.chat_template import ChatTemplate
from unmask.checkpoints.template_process import _kept
ChatTemplate("x").render([])
print(_kept.child.process.pid)
"""
    done = fresh_python(code)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_a_python_that_does_not_start(monkeypatch):
    _kept.end()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(
            CheckpointError, match=r"does not start \(.*; allowed: a Python at /nowhere/python with jinja2"
        ):
            ChatTemplate("x").render(HELLO)
        patch.setattr(sys, "executable", "/bin/true")
        with pytest.raises(CheckpointError, match=r"does not start \(it ended at once\)"):
            render_apart("x", {}, 10)
    assert ChatTemplate("x").render(HELLO) == "x"


def test_a_process_that_does_not_answer(monkeypatch):
    ChatTemplate("x").render(HELLO)
    monkeypatch.setattr(template_process, "WALL", 0.2)
    os.kill(_kept.child.process.pid, signal.SIGSTOP)
    assert "takes more than 0.2 s" in refusal("x")
