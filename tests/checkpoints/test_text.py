"""Tokenizers, chat templates and the codec made of them, on checkpoints in the published format."""

import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.checkpoints.text import MOST_RENDERED, ChatTemplate, TextCodec, read_tokenizer
from unmask.errors import CheckpointError, ConfigError

ROWS = 512
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
PAIR_FILES = ("vocab.json", "merges.txt", "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json")
MASK = {"llada": "<|mdm_mask|>", "dream": "<|mask|>"}
ENDS = {"llada": ("<|endoftext|>", "<|eot_id|>"), "dream": ("<|endoftext|>", "<|im_end|>")}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
IDS = st.lists(st.integers(-3, ROWS + 20), max_size=20)


@pytest.fixture(scope="session")
def folders(scaled: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("text")
    small = {"layers": 1, "heads": 2, "kv_heads": 2, "mlp": 8}
    return {
        "llada": scaled.llada(root / "llada"),
        "dream": scaled.dream(root / "dream"),
        "llada_real_ids": scaled.llada(root / "llada_real_ids", real_ids=True, d_model=8, **small),
        "dream_real_ids": scaled.dream(root / "dream_real_ids", real_ids=True, hidden=8, **small),
    }


def read(folder: Path, kind: str, ids: dict[str, int], **options: Any) -> TextCodec:
    vocab = (
        json.loads((folder / "config.json").read_text())["vocab_size"] if (folder / "config.json").exists() else ROWS
    )
    return TextCodec.read(folder, **{"mask_id": ids[MASK[kind]], "vocab": vocab, "ends": ENDS[kind]} | options)


@pytest.fixture(scope="session")
def codecs(scaled: ModuleType, folders: dict[str, Path]) -> dict[str, TextCodec]:
    return {name: read(folder, name.split("_")[0], scaled.special_ids(folder)) for name, folder in folders.items()}


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    path = Path(__file__).resolve().parents[1] / "golden" / "tokenizers.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


@pytest.fixture
def copy(folders: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """A checkpoint's tokenizer files, free to be spoilt."""

    def made(kind: str) -> Path:
        for name in FILES if kind == "llada" else PAIR_FILES:
            shutil.copy(folders[kind] / name, tmp_path / name)
        return tmp_path

    return made


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


KINDS = pytest.mark.parametrize("kind", ["llada", "dream"])
VARIANTS = pytest.mark.parametrize("name", ["llada", "dream", "llada_real_ids", "dream_real_ids"])


# Published behaviour.


@VARIANTS
def test_texts_as_the_authors_tokenizers_read_them(name, codecs, golden):
    codec = codecs[name]
    assert codec.tokenizer.get_vocab_size() == golden[name]["length"]
    for case in golden[name]["texts"]:
        assert codec.tokenizer.encode(case["text"], add_special_tokens=False).ids == case["ids"], case["text"]
        assert codec.canvas(case["text"]) == case["ids"], case["text"]
        assert codec.decode(case["ids"]) == case["decoded"], case["text"]
        if case["decoded"] == case["decoded_plain"] and "<|im" not in case["text"]:
            assert codec.answer(case["ids"]) == case["decoded_plain"], case["text"]


@VARIANTS
def test_conversations_as_the_authors_tokenizers_read_them(name, codecs, golden):
    codec = codecs[name]
    assert codec.template is not None
    for case in golden[name]["chats"]:
        assert codec.template.render(case["messages"], case["add_generation_prompt"]) == case["text"]
        if case["add_generation_prompt"]:
            assert codec.encode(case["messages"]) == case["ids"]


@KINDS
def test_a_text_is_one_user_turn(kind, codecs):
    assert codecs[kind].encode("Add 3 and 4.") == codecs[kind].encode([{"role": "user", "content": "Add 3 and 4."}])


def test_the_published_ids(codecs):
    llada, dream = codecs["llada_real_ids"], codecs["dream_real_ids"]
    assert (llada.mask_id, llada.mask, llada.eos_ids) == (126336, "<|mdm_mask|>", (126081, 126348))
    assert (dream.mask_id, dream.mask, dream.eos_ids) == (151666, "<|mask|>", (151643, 151645))
    assert llada.encode("Hi")[:2] == [126080, 126346]
    assert dream.encode("Hi")[0] == 151644


def test_llada_always_opens_the_answer(codecs):
    template = codecs["llada"].template
    messages = [{"role": "user", "content": "Hi"}]
    assert template.render(messages, add_generation_prompt=False) == template.render(messages)
    assert template.render(messages).endswith("<|start_header_id|>assistant<|end_header_id|>\n\n")


def test_dream_adds_its_system_line_unless_there_is_one(codecs):
    dream = codecs["dream"]
    assert dream.decode(dream.encode("Hi")).startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
    own = dream.encode([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert dream.decode(own).startswith("<|im_start|>system\nBe brief.<|im_end|>\n")
    assert "helpful" not in dream.decode(own)


# The codec.


@KINDS
def test_chat_can_be_turned_off(kind, folders, scaled):
    plain = read(folders[kind], kind, scaled.special_ids(folders[kind]), chat=False)
    assert plain.template is None
    assert plain.decode(plain.encode("Hello, world!")) == "Hello, world!"
    with pytest.raises(ConfigError, match="prompt is a list; allowed: one text, because there is no chat template"):
        plain.encode([{"role": "user", "content": "Hi"}])


@KINDS
def test_blanks_in_every_spelling(kind, codecs):
    codec = codecs[kind]
    canvas = codec.canvas(f"The[MASK] is[MASK*3]{codec.mask} red")
    assert codec.decode(canvas) == f"The{codec.mask} is{codec.mask * 4} red"
    assert canvas.count(codec.mask_id) == 5
    assert codec.canvas("[MASK][MASK]") == codec.canvas("[MASK*2]") == [codec.mask_id] * 2


@pytest.mark.parametrize("word", ["[MASK*0]", "[MASK*100001]", "[MASK*99999999999999999999]"])
def test_a_number_of_blanks_has_limits(word, codecs):
    with pytest.raises(ConfigError, match=r"the number of blanks is .*allowed: \[MASK\*1\] to"):
        codecs["llada"].canvas(f"a{word}")


@KINDS
@pytest.mark.parametrize("chat", [None, False])
def test_a_prompt_has_no_blanks(kind, chat, folders, scaled):
    codec = read(folders[kind], kind, scaled.special_ids(folders[kind]), chat=chat)
    for blank in ("[MASK]", "[MASK*2]", codec.mask):
        with pytest.raises(ConfigError, match=r"the prompt holds a blank: 'Fill .*use infill"):
            codec.encode(f"Fill {blank} in")
    if chat is None:
        with pytest.raises(ConfigError, match="use infill"):
            codec.encode([{"role": "system", "content": codec.mask}, {"role": "user", "content": "Hi"}])


def test_a_long_prompt_is_quoted_in_part(codecs):
    with pytest.raises(ConfigError) as refused:
        codecs["llada"].encode("a" * 10_000 + "[MASK]")
    assert len(str(refused.value)) < 300


@KINDS
def test_the_answer_ends_at_the_first_end(kind, codecs):
    codec = codecs[kind]
    body = codec.canvas("The answer is 72.")
    for end in codec.eos_ids:
        assert codec.answer([*body, end, *body, end]) == "The answer is 72."
    assert codec.answer([codec.eos_ids[0]]) == codec.answer([]) == ""


@KINDS
def test_the_answer_shows_masks_and_hides_control_tokens(kind, codecs, folders, scaled):
    codec, ids = codecs[kind], scaled.special_ids(folders[kind])
    control = ids["<|start_header_id|>" if kind == "llada" else "<|im_start|>"]
    tokens = [control, *codec.canvas("Hi"), codec.mask_id, codec.mask_id, *codec.canvas(" you")]
    assert codec.answer(tokens) == f"Hi{codec.mask * 2} you"


def test_tokens_that_are_added_but_not_special_belong_to_the_answer(codecs):
    dream = codecs["dream"]
    assert dream.answer(dream.canvas("<tool_call>{}</tool_call>")) == "<tool_call>{}</tool_call>"


@KINDS
def test_rows_of_the_embedding_without_a_token(kind, codecs):
    codec = codecs[kind]
    tokens = [*codec.canvas("a"), ROWS - 1, ROWS - 1, -1, 2**40, *codec.canvas("b")]
    assert codec.decode(tokens) == codec.answer(tokens) == f"a<{ROWS - 1}><{ROWS - 1}><-1><{2**40}>b"


@KINDS
def test_half_a_character_is_shown_as_such(kind, codecs):
    codec = codecs[kind]
    tokens = codec.canvas("🙂")
    assert len(tokens) > 1
    assert codec.answer(tokens) == "🙂"
    assert "\N{REPLACEMENT CHARACTER}" in codec.answer(tokens[:-1])
    assert codec.mask in codec.answer([tokens[0], codec.mask_id, *tokens[1:]])


@KINDS
def test_text_that_utf8_cannot_write(kind, codecs):
    with pytest.raises(ConfigError, match=r"the text holds '\\ud800' at character 1"):
        codecs[kind].canvas("a\ud800b")
    with pytest.raises(ConfigError, match="the prompt holds"):
        codecs[kind].encode("a\ud800b")


@given(text=TEXT)
@KINDS
def test_any_text_comes_back(kind, codecs, text):
    codec = codecs[kind]
    shown = text.replace("[MASK]", codec.mask)
    expected = unicodedata.normalize("NFC", shown) if kind == "dream" else shown
    assert codec.decode(codec.canvas(text)) == expected
    if codec.mask not in shown:
        assert expected.strip() in codec.decode(codec.encode(text))


@given(parts=st.lists(TEXT, min_size=1, max_size=4), counts=st.lists(st.integers(1, 5), min_size=3, max_size=3))
@KINDS
def test_blanks_stand_where_they_were_put(kind, codecs, parts, counts):
    codec = codecs[kind]
    text = parts[0] + "".join(f"[MASK*{n}]{part}" for n, part in zip(counts, parts[1:], strict=False))
    canvas = codec.canvas(text)
    assert canvas.count(codec.mask_id) == sum(counts[: len(parts) - 1])
    tokens = [codec.canvas(part) for part in parts]
    joined = tokens[0] + [t for n, part in zip(counts, tokens[1:], strict=False) for t in [codec.mask_id] * n + part]
    assert canvas == joined


@given(tokens=IDS)
@KINDS
def test_any_ids_can_be_shown(kind, codecs, tokens):
    codec = codecs[kind]
    shown, answer = codec.decode(tokens), codec.answer(tokens)
    assert shown.count(codec.mask) == tokens.count(codec.mask_id)
    cut = next((i for i, token in enumerate(tokens) if token in codec.eos_ids), len(tokens))
    assert answer.count(codec.mask) == tokens[:cut].count(codec.mask_id)
    assert answer == codec.answer(tokens[:cut])


# Conversations.


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], r"prompt is \[\]; allowed: a text, or messages"),
        (3, "prompt is 3; allowed: a text, or messages"),
        (["Hi"], "message 0 of the prompt is 'Hi'; allowed: role and content"),
        ([{"role": "user"}], "message 0 of the prompt is"),
        ([{"role": "user", "content": "Hi", "name": "x"}], "write these two keys and no others"),
        ([{"role": "tool", "content": "Hi"}], "role of message 0 is 'tool'; allowed: system, user, assistant"),
        ([{"role": ["user"], "content": "Hi"}], "role of message 0 is"),
        ([{"role": "user", "content": ["Hi"]}], r"content of message 0 is \['Hi'\]; allowed: a text"),
        ([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}], "last message is 'assistant'"),
        ([{"role": "system", "content": "Hi"}], "role of the last message is 'system'; allowed: user"),
    ],
)
def test_conversations_that_cannot_be_answered(prompt, message, codecs):
    with pytest.raises(ConfigError, match=message):
        codecs["dream"].encode(prompt)


# Templates.

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


@pytest.mark.parametrize(
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


def test_without_a_template(copy, scaled):
    folder = copy("llada")
    ids = scaled.special_ids(folder)
    edit(folder / "tokenizer_config.json", lambda d: d.pop("chat_template"))
    assert read(folder, "llada", ids).template is None
    with pytest.raises(ConfigError, match=r"chat is True, but .* has no chat template .*leave chat out"):
        read(folder, "llada", ids, chat=True)


def test_no_template_is_needed_without_chat(copy, scaled):
    folder = copy("llada")
    ids = scaled.special_ids(folder)
    edit(folder / "tokenizer_config.json", lambda d: d.update(chat_template=3))
    assert read(folder, "llada", ids, chat=False).template is None


# Files that are missing or broken.


def test_a_folder_without_a_tokenizer(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"has no tokenizer; allowed: a tokenizer\.json, or vocab\.json"
    ) as refused:
        read_tokenizer(tmp_path)
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "file"), [("dream", "vocab.json"), ("dream", "merges.txt"), ("dream", "tokenizer_config.json")]
)
def test_a_file_that_is_missing(kind, file, copy):
    folder = copy(kind)
    (folder / file).unlink()
    with pytest.raises(CheckpointError) as refused:
        read_tokenizer(folder)
    assert str(folder / file) in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("llada", "tokenizer.json"),
        ("llada", "tokenizer_config.json"),
        ("dream", "tokenizer_config.json"),
        ("dream", "vocab.json"),
        ("dream", "merges.txt"),
    ],
)
@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[: len(raw) // 2 + 2], lambda raw: b"\xff" + raw], ids=["cut", "bytes"]
)
def test_a_file_that_is_cut_short_or_no_text(kind, file, spoil, copy):
    folder = copy(kind)
    raw = (folder / file).read_bytes()
    # A text cut between two lines is a text: end in the middle of a merge.
    end = raw.index(b" ", len(raw) // 2) + 1
    (folder / file).write_bytes(spoil(raw[: 2 * end - 4] if file == "merges.txt" else raw))
    with pytest.raises(CheckpointError, match="download") as refused:
        read_tokenizer(folder)
    assert str(folder / file) in str(refused.value)


@pytest.mark.parametrize("name", ["LlamaTokenizer", None, 3])
def test_a_tokenizer_of_another_class(name, copy):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.update(tokenizer_class=name))
    message = (
        rf"'tokenizer_class' in .*tokenizer_config\.json is {name!r}, and there is no tokenizer\.json; .*DreamTokenizer"
    )
    with pytest.raises(CheckpointError, match=message):
        read_tokenizer(folder)


def test_qwen2_by_its_own_name(copy, folders):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.update(tokenizer_class="Qwen2Tokenizer"))
    assert read_tokenizer(folder).to_str() == read_tokenizer(folders["dream"]).to_str()


@pytest.mark.parametrize("document", [{}, {"model": {"type": "Unheard"}}, {"version": "9.9"}])
def test_a_file_that_is_no_tokenizer(document, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is no tokenizer"):
        read_tokenizer(tmp_path)


def test_a_vocabulary_with_a_clash(copy):
    folder = copy("dream")
    edit(folder / "vocab.json", lambda d: d.update({"!": d['"']}))
    with pytest.raises(CheckpointError, match=r"vocab\.json gives the id 1 to '!' and '\"'"):
        read_tokenizer(folder)


def test_a_vocabulary_with_a_hole(copy):
    folder = copy("dream")
    edit(folder / "vocab.json", lambda d: d.update({max(d, key=d.get): len(d)}))
    with pytest.raises(CheckpointError, match=r"vocab\.json has \d+ tokens but none with id \d+"):
        read_tokenizer(folder)


def test_a_vocabulary_without_a_byte(copy):
    folder = copy("dream")
    edit(folder / "vocab.json", lambda d: d.update({"~~~": d.pop("Ā")}))
    with pytest.raises(CheckpointError, match=r"vocab\.json has no token 'Ā', which stands for a byte"):
        read_tokenizer(folder)


@pytest.mark.parametrize("number", ["7", 1.5, None, True])
def test_a_vocabulary_with_odd_ids(number, copy):
    folder = copy("dream")
    edit(folder / "vocab.json", lambda d: d.update({"!": number}))
    with pytest.raises(CheckpointError, match=rf"the id of '!' in .*vocab\.json is {number!r}"):
        read_tokenizer(folder)


def test_merges_of_another_vocabulary(copy):
    folder = copy("dream")
    (folder / "merges.txt").write_text("#version: 0.2\nq x\n")
    with pytest.raises(CheckpointError, match=r"merges\.txt does not fit vocab\.json .*`qx` out of vocabulary"):
        read_tokenizer(folder)


def test_windows_line_ends_in_merges(copy, folders):
    folder = copy("dream")
    (folder / "merges.txt").write_bytes((folder / "merges.txt").read_bytes().replace(b"\n", b"\r\n"))
    assert read_tokenizer(folder).to_str() == read_tokenizer(folders["dream"]).to_str()


def last_moved(by: int) -> Callable[[dict[str, Any]], None]:
    """Give the last added token another id."""

    def change(document: dict[str, Any]) -> None:
        added = document["added_tokens_decoder"]
        last = max(added, key=int)
        added[str(int(last) + by)] = added.pop(last)

    return change


@KINDS
@pytest.mark.parametrize("by", [3, -200])
def test_added_tokens_with_a_hole_or_on_the_place_of_another(kind, by, copy):
    folder = copy(kind)
    edit(folder / "tokenizer_config.json", last_moved(by))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json gives the added token '<\|.*the id \d+, but"):
        read_tokenizer(folder)


def test_added_tokens_in_tokenizer_json_with_a_hole(copy):
    folder = copy("llada")
    edit(folder / "tokenizer.json", lambda d: d["added_tokens"][-1].update(id=509))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json gives the added token '<\|eot_id\|>' the id 509, but"):
        read_tokenizer(folder)


def test_a_clash_in_tokenizer_json(copy):
    folder = copy("llada")
    edit(folder / "tokenizer.json", lambda d: d["model"]["vocab"].update({"!": 5}))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json gives the id 5 to '!' and '&'"):
        read_tokenizer(folder)


@pytest.mark.parametrize("entry", [None, {}, "x", {"content": "<x>", "lstrip": "no"}, {"content": 3}])
def test_an_added_token_that_is_none(entry, copy):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d["added_tokens_decoder"].update({"504": entry}))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json lists the added token '504'"):
        read_tokenizer(folder)


def test_added_tokens_that_are_no_table(copy):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.update(added_tokens_decoder=[1]))
    with pytest.raises(CheckpointError, match=r"'added_tokens_decoder' in .*tokenizer_config\.json is a list"):
        read_tokenizer(folder)


def test_added_tokens_of_older_folders(copy, folders, golden):
    """Without flags: those with a name or in the list of special tokens are special."""
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.pop("added_tokens_decoder"))
    old, new = read_tokenizer(folder), read_tokenizer(folders["dream"])
    assert old.get_vocab() == new.get_vocab()
    special = {token.content for token in old.get_added_tokens_decoder().values() if token.special}
    assert special == {"<|endoftext|>", "<|beginoftext|>", "<|mask|>"}
    for case in golden["dream"]["texts"]:
        assert old.encode(case["text"], add_special_tokens=False).ids == case["ids"]


def test_added_tokens_of_older_folders_with_a_clash(copy):
    folder = copy("dream")
    edit(folder / "tokenizer_config.json", lambda d: d.pop("added_tokens_decoder"))
    edit(folder / "added_tokens.json", lambda d: d.update({"<|mask|>": d["<|im_end|>"]}))
    with pytest.raises(CheckpointError, match=r"added_tokens\.json gives the added token"):
        read_tokenizer(folder)


def test_tokens_listed_beside_tokenizer_json(copy, scaled):
    """Where the two files differ, a token of the settings joins those of tokenizer.json, as in transformers."""
    folder = copy("llada")
    ids = scaled.special_ids(folder)
    edit(folder / "tokenizer.json", lambda d: d["added_tokens"].pop())
    assert read_tokenizer(folder).token_to_id("<|eot_id|>") == ids["<|eot_id|>"]


def test_flags_of_added_tokens_are_kept(copy):
    folder = copy("dream")
    flags = {"lstrip": True, "rstrip": True, "normalized": True, "single_word": True, "special": False}
    entry = {"content": "<extra>"} | flags
    edit(folder / "tokenizer_config.json", lambda d: d["added_tokens_decoder"].update({"504": entry}))
    token = read_tokenizer(folder).get_added_tokens_decoder()[504]
    assert {flag: getattr(token, flag) for flag in flags} == flags


def test_a_tokenizer_that_would_cut_or_pad_does_not(copy, codecs):
    folder = copy("llada")
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
    edit(folder / "tokenizer.json", lambda d: d.update(truncation=cut, padding=pad | {"pad_token": "!"}))
    text = "Natalia sold clips to 48 of her friends"
    assert read_tokenizer(folder).encode(text).ids == codecs["llada"].tokenizer.encode(text).ids


# Tokenizer and model must fit each other.


@KINDS
def test_more_tokens_than_rows(kind, folders, scaled):
    ids = scaled.special_ids(folders[kind])
    last = max(ids.values())
    assert read(folders[kind], kind, ids, vocab=last + 1).mask == MASK[kind]
    file = r"tokenizer\.json" if kind == "llada" else r"tokenizer_config\.json"
    with pytest.raises(CheckpointError, match=rf"{file} has the token '.*' with id {last}; allowed: ids below {last},"):
        read(folders[kind], kind, ids, vocab=last)


@KINDS
@pytest.mark.parametrize(("mask_id", "what"), [(511, "no token"), (-1, "no token"), (5, "the ordinary token '&'")])
def test_a_mask_that_is_none(kind, mask_id, what, folders, scaled):
    with pytest.raises(CheckpointError, match=rf"json has {what} under the mask id {mask_id};"):
        read(folders[kind], kind, scaled.special_ids(folders[kind]), mask_id=mask_id)


@pytest.mark.parametrize("end", ["<|none|>", 511, -1])
def test_an_end_that_is_none(end, folders, scaled):
    ids = scaled.special_ids(folders["llada"])
    with pytest.raises(
        CheckpointError, match=r"tokenizer\.json has no token .*, which should end an answer"
    ) as refused:
        read(folders["llada"], "llada", ids, ends=["<|eot_id|>", end])
    assert repr(end) in str(refused.value)


def test_ends_by_text_and_by_id_are_named_once(folders, scaled):
    ids = scaled.special_ids(folders["llada"])
    codec = read(folders["llada"], "llada", ids, ends=[ids["<|eot_id|>"], "<|eot_id|>", "<|endoftext|>"])
    assert codec.eos_ids == (ids["<|eot_id|>"], ids["<|endoftext|>"])


def test_a_tokenizer_that_adds_tokens_of_its_own(copy, scaled):
    """Plain prompts get them, as from the authors' programs; templates write theirs, and blanks stand in bare text."""
    folder = copy("llada")
    ids = scaled.special_ids(folder)
    bos = {"id": "<|startoftext|>", "ids": [ids["<|startoftext|>"]], "tokens": ["<|startoftext|>"]}
    single = [{"SpecialToken": {"id": "<|startoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    adds = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {"<|startoftext|>": bos}}
    edit(folder / "tokenizer.json", lambda d: d.update(post_processor=adds))
    plain, chat = read(folder, "llada", ids, chat=False), read(folder, "llada", ids)
    assert plain.encode("Hi") == [ids["<|startoftext|>"], *plain.canvas("Hi")]
    assert chat.encode("Hi").count(ids["<|startoftext|>"]) == 1
