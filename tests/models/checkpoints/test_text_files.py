"""Tokenizer files and chat templates: every token under the id of its file, templates inside Jinja's sandbox."""

import pytest

from tests.helpers.checkpoint_texts import KINDS, edit
from unmask.base.errors import CheckpointError, ConfigError
from unmask.models.checkpoints.text_codec import ChatTemplate, read_tokenizer

HELLO = [{"role": "user", "content": "Hello"}]
SETTINGS = "tokenizer_config.json"


# Tokenizers.


@pytest.mark.parametrize(
    ("kind", "file", "content", "message"),
    [
        ("llada", "tokenizer.json", None, r"'tokenizer_class' in .* is 'PreTrainedTokenizerFast', and there is no"),
        ("llada", "tokenizer.json", "{", r"tokenizer\.json cannot be read .*download it again"),
        ("llada", "tokenizer.json", '{"model": {"type": "Unheard"}}', r"tokenizer\.json is no tokenizer"),
        ("llada", SETTINGS, "{", r"tokenizer_config\.json cannot be read"),
        ("dream", SETTINGS, None, "has no whole tokenizer.*tokenizer_config"),
        ("dream", SETTINGS, '{"tokenizer_class": "Own"}', "'tokenizer_class' in .* is 'Own'.*DreamTokenizer"),
        ("dream", "vocab.json", None, r"vocab\.json and merges\.txt in .* cannot be read"),
        ("dream", "vocab.json", '{"!": "x"}', r"vocab\.json and merges\.txt in .* cannot be read"),
        ("dream", "merges.txt", "#version: 0.2\nq x\n", r"merges\.txt in .* cannot be read .*`qx` out of vocab"),
    ],
)
def test_missing_or_broken_file_is_named(kind, file, content, message, copy):
    folder = copy(kind)
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_tokenizer(folder)


@KINDS
@pytest.mark.parametrize("by", [3, -200])
def test_added_tokens_keep_the_ids_of_their_file(kind, by, copy):
    """The tokenizers package would move a token with a hole before it, or on the place of another."""

    def move_last(document):
        added = document["added_tokens_decoder"]
        last = max(added, key=int)
        added[str(int(last) + by)] = added.pop(last)

    folder = copy(kind)
    edit(folder / SETTINGS, move_last)
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json gives the added token '<\|.*the id \d+, but"):
        read_tokenizer(folder)


@pytest.mark.parametrize("entries", [[1], {"504": None}, {"504": {}}, {"x": {"content": "a"}}, {"504": {"content": 3}}])
def test_malformed_added_tokens_are_refused(entries, copy):
    folder = copy("dream")
    edit(folder / SETTINGS, lambda d: d.update(added_tokens_decoder=entries))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json lists added tokens that cannot be read"):
        read_tokenizer(folder)


def test_tokens_of_the_settings_join_those_of_tokenizer_json(copy, scaled):
    """Where the two files differ, a token of the settings joins those of tokenizer.json, as in transformers."""
    folder = copy("llada")
    ids = scaled.special_ids(folder)
    edit(folder / "tokenizer.json", lambda d: d["added_tokens"].pop())
    assert read_tokenizer(folder).token_to_id("<|eot_id|>") == ids["<|eot_id|>"]


def test_tokenizers_never_truncate_or_pad(copy, codecs):
    folder = copy("llada")
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
    edit(folder / "tokenizer.json", lambda d: d.update(truncation=cut, padding=pad | {"pad_token": "!"}))
    text = "Natalia sold clips to 48 of her friends"
    assert read_tokenizer(folder).encode(text).ids == codecs["llada"].tokenizer.encode(text).ids


# Chat templates.


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            """{%- set ns = namespace(n=0) -%}
{%- for message in messages %}
    {%- if loop.index0 > 5 %}{% break %}{% endif %}
    {%- set ns.n = ns.n + 1 %}
    {%- generation %}{{ bos_token + message.content }}{% endgeneration %}
{%- endfor %} {{ ns.n }} {{ dict(a='<é>') | tojson }} {{ tools is none }} {{ strftime_now('%Y') | length }}""",
            '<s>Hello 1 {"a": "<é>"} True 4',
        ),
        (
            "{% if true %}\n  {% for m in messages %}\n{{ m.content }}\n  {% endfor %}\n{% endif %}\nend\n",
            "Hello\nend",
        ),
        ("{{ eos_token }}{{ messages[0].content }}", "Hello"),
        ("({{ raise_exception.__globals__ }})", "()"),
    ],
)
def test_templates_have_what_transformers_gives_them(source, text):
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(HELLO) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ dict.mro() }}",
        "{{ namespace.__init__.__globals__.keys() }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ (messages | map(attribute='__class__') | first).mro() }}",
    ],
)
def test_templates_cannot_leave_the_sandbox(source):
    with pytest.raises(CheckpointError, match=r"the chat template (reaches out of its sandbox|fails)"):
        ChatTemplate(source).render(HELLO)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for m in %}", "fails in line 1 .*TemplateSyntaxError"),
        ("{{ no.such.thing }}", "fails .*UndefinedError: 'no' is undefined"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{% include 'x' %}", "fails"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
    ],
)
def test_broken_template_is_named(source, message):
    template = ChatTemplate(source, origin="the chat template in x.jinja")
    with pytest.raises(CheckpointError, match=rf"^the chat template in x\.jinja .*{message}.*chat=False"):
        template.render(HELLO)


def test_template_may_refuse_a_conversation():
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ConfigError, match=r"refuses the conversation: roles must alternate; .*change the"):
        template.render(HELLO)


def test_template_files_are_read_in_order(copy):
    folder = copy("dream")
    (folder / "special_tokens_map.json").unlink()
    template = ChatTemplate.read(folder)
    assert template.tokens["bos_token"] == "<|beginoftext|>"
    assert "unk_token" not in template.tokens
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "named"}]
    edit(folder / SETTINGS, lambda d: d.update(chat_template=named, bos_token={"content": "<s>", "lstrip": False}))
    template = ChatTemplate.read(folder)
    assert (template.source, template.tokens["bos_token"]) == ("named", "<s>")
    (folder / "chat_template.json").write_text('{"chat_template": "legacy"}')
    assert ChatTemplate.read(folder).source == "legacy"
    (folder / "chat_template.jinja").write_text("its own file")
    assert ChatTemplate.read(folder).source == "its own file"


@pytest.mark.parametrize("value", [[{"name": "rag", "template": "x"}], {"default": "x"}, 3, []])
def test_malformed_templates_are_refused(value, copy):
    folder = copy("llada")
    edit(folder / SETTINGS, lambda d: d.update(chat_template=value))
    with pytest.raises(CheckpointError, match=r"'chat_template' in .*tokenizer_config\.json is no template"):
        ChatTemplate.read(folder)
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja cannot be read"):
        ChatTemplate.read(folder)
