"""Chat templates: what published ones use, what a sandbox keeps from them, and where they are found."""

import pytest

from tests.helpers.cases import each_case
from tests.helpers.checkpoint_texts import edit
from unmask.base.errors import CheckpointError, ConfigError
from unmask.checkpoints.chat_template import MOST_RENDERED, ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]


def test_what_published_templates_use():
    source = """{%- set ns = namespace(n=0) -%}
{%- for message in messages %}
    {%- if loop.index0 > 5 %}{% break %}{% endif %}
    {%- set ns.n = ns.n + 1 %}
    {%- generation %}{{ bos_token + message.content }}{% endgeneration %}
{%- endfor %} {{ ns.n }} {{ dict(a='<é>') | tojson }} {{ tools is none }} {{ strftime_now('%Y') | length }}"""
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(HELLO) == '<s>Hello 1 {"a": "<é>"} True 4'


def test_a_template_trims_blocks_as_transformers_does():
    source = "{% if true %}\n  {% for m in messages %}\n{{ m.content }}\n  {% endfor %}\n{% endif %}\nend\n"
    assert ChatTemplate(source).render(HELLO) == "Hello\nend"


def test_a_token_without_a_name_is_empty():
    assert ChatTemplate("{{ bos_token }}{{ messages[0].content }}").render(HELLO) == "Hello"


def test_a_template_may_refuse_a_conversation():
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", origin="the chat template in x.json")
    with pytest.raises(ConfigError, match=r"x\.json refuses the conversation: roles must alternate; .*change the"):
        template.render(HELLO)


@each_case(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ namespace(__class__=1) }}",
        "{% set ns = namespace() %}{% set ns.__html__ = 1 %}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ (messages | map(attribute='__class__') | first).mro() }}",
    ],
)
def test_a_template_stays_in_its_sandbox(source):
    with pytest.raises(CheckpointError, match=r"the chat template (reaches out of its sandbox|fails)"):
        ChatTemplate(source).render(HELLO)


def test_a_template_cannot_show_what_it_may_not_use():
    assert ChatTemplate("({{ raise_exception.__globals__ }})").render(HELLO) == "()"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for m in %}", "fails in line 1 .*TemplateSyntaxError"),
        ("{{ no.such.thing }}", "fails .*UndefinedError: 'no' is undefined"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{% include 'x' %}", "fails"),
        ("{{ unknown_function() }}", "'unknown_function' is undefined"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
    ],
)
def test_a_broken_template_is_named(source, message, tmp_path):
    (tmp_path / "chat_template.jinja").write_text(source)
    template = ChatTemplate.read(tmp_path)
    with pytest.raises(CheckpointError, match=message) as refused:
        template.render(HELLO)
    assert str(tmp_path / "chat_template.jinja") in str(refused.value)
    assert "chat=False" in str(refused.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ messages[0].content }}{% endfor %}{% endfor %}",
        "{{ 'a' * 3000000 }}",
    ],
)
def test_a_template_that_runs_away(source):
    with pytest.raises(
        CheckpointError, match=rf"characters or more; allowed: {MOST_RENDERED + 10} for this conversation"
    ):
        ChatTemplate(source).render(HELLO)


def test_a_long_conversation_is_no_runaway(codecs):
    words = "many words " * 200_000
    assert len(codecs["llada"].template.render([{"role": "user", "content": words}])) > len(words)


def test_where_a_template_is_found(copy):
    folder = copy("dream")
    (folder / "special_tokens_map.json").unlink()
    template = ChatTemplate.read(folder)
    assert template.tokens["bos_token"] == "<|beginoftext|>"
    assert "unk_token" not in template.tokens
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "named"}]
    edit(folder / "tokenizer_config.json", lambda d: d.update(chat_template=named))
    assert ChatTemplate.read(folder).source == "named"
    (folder / "chat_template.json").write_text('{"chat_template": "legacy"}')
    assert ChatTemplate.read(folder).source == "legacy"
    (folder / "chat_template.jinja").write_text("its own file")
    assert ChatTemplate.read(folder).source == "its own file"


def test_tokens_written_as_objects(copy):
    folder = copy("llada")
    edit(folder / "tokenizer_config.json", lambda d: d.update(bos_token={"content": "<s>", "lstrip": False}))
    assert ChatTemplate.read(folder).tokens["bos_token"] == "<s>"


@pytest.mark.parametrize("value", [[{"name": "rag", "template": "x"}], {"default": "x"}, 3, []])
def test_a_template_that_is_none(value, copy):
    folder = copy("llada")
    edit(folder / "tokenizer_config.json", lambda d: d.update(chat_template=value))
    with pytest.raises(CheckpointError, match=r"'chat_template' in .*tokenizer_config\.json is no template"):
        ChatTemplate.read(folder)


def test_a_template_file_that_is_no_text(tmp_path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja cannot be read"):
        ChatTemplate.read(tmp_path)
