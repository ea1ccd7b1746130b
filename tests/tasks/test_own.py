"""Tasks of a user: files and functions are read, refused, split and scored."""

import json
import sys

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, ContractError, SchemaError, UnknownName
from unmask.tasks import check_scorer, find_task, open_task, own_task, score, score_all

LINES = [{"prompt": f"say {n}", "target": f"{n}"} for n in range(6)]


@pytest.fixture
def write(tmp_path):
    def call(lines, name="mine.jsonl"):
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return call


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module into the current folder, under a name that no other test has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    made = []

    def call(code):
        name = f"own_{tmp_path.name.replace('-', '_')}_{len(made)}"
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        made.append(name)
        return name

    yield call
    for name in made:
        sys.modules.pop(name, None)


def mine(prompts, scorer="exact", **more):
    return own_task("mine", str(prompts), scorer=scorer, max_new_tokens=8, **more)


class TestFiles:
    def test_a_task_like_any_other(self, write):
        task = mine(write(LINES))
        assert (task.name, task.max_new_tokens, task.scorer.name) == ("mine", 8, "exact")
        assert dict(task.counts) == {"development": 0, "validation": 3, "evaluation": 3}
        parts = {split: task.examples(split) for split in task.counts}
        assert {e.prompt for members in parts.values() for e in members} == {line["prompt"] for line in LINES}
        assert all(e.split == split and e.task == "mine" for split, members in parts.items() for e in members)
        with pytest.raises(ConfigError, match="no training examples"):
            task.training()
        with pytest.raises(UnknownName, match="split"):
            task.examples("fresh")

    def test_splits_ignore_the_order_of_lines_and_the_name(self, write):
        one = mine(write(LINES))
        other = own_task("other", str(write(LINES[::-1], "other.jsonl")), scorer="exact", max_new_tokens=8)
        for split in ("validation", "evaluation"):
            assert [e.prompt for e in one.examples(split)] == [e.prompt for e in other.examples(split)]
        assert one.version == other.version

    def test_the_version_changes_with_whatever_utilities_depend_on(self, write):
        made = {mine(write(LINES)).version}
        made.add(mine(write(LINES), "contains").version)
        for change in ({"prompt": "say x"}, {"target": "x"}, {"id": "x"}, {"split": "validation"}):
            made.add(mine(write([LINES[0] | change, *LINES[1:]])).version)
        assert len(made) == 6

    def test_texts_are_storable_and_without_the_mark_of_their_file(self, write):
        lines = [{"prompt": f"\ufeffsay \ud800 {n}", "target": "\ud800", "id": f"\ud800{n}"} for n in range(4)]
        task = mine(write(["\ufeff" + json.dumps(lines[0]), *lines[1:]]))
        example = task.examples("validation")[0]
        assert example.prompt.startswith("say \ufffd ")
        assert (example.id[0], example.target) == ("\ufffd", "\ufffd")

    def test_rows_may_name_their_split_and_id(self, write):
        lines = [{**line, "id": n, "split": "validation"} for n, line in enumerate(LINES[:4])]
        lines += [{**LINES[4], "id": "x", "split": "development"}, LINES[5]]
        task = mine(write(lines))
        # The only prompt without a split is the first half of one.
        assert dict(task.counts) == {"development": 1, "validation": 5, "evaluation": 0}
        assert {"0", "1", "2", "3"} < {e.id for e in task.examples("validation")}
        assert task.examples("development")[0].id == "x"

    @each_case(
        ("lines", "error", "named"),
        [
            ([*LINES[:2], "{not json"], SchemaError, "line 3 "),
            ([*LINES, '{"prompt": "x", "target": "y", "target": "z"}'], SchemaError, "'target' is given twice"),
            ([*LINES, '{"prompt": "x", "target": NaN}'], SchemaError, "line 7 .*NaN"),
            ([*LINES, "[1]"], SchemaError, "line 7 .*list"),
            ([*LINES, {"prompt": " say  0 ", "target": "z"}], SchemaError, "line 7 .*line 1 "),
            ([{**LINES[0], "id": "a"}, {**LINES[1], "id": "a"}], SchemaError, "line 2 .*line 1 .*'a'"),
            ([{**LINES[0], "traget": "x"}], UnknownName, "line 1 .*did you mean target"),
            ([{"prompt": "x"}], ConfigError, "line 1 .*'target'"),
            ([{"target": "x"}], ConfigError, "line 1 .*'neither'"),
            ([{"prompt": "  ", "target": "x"}], ConfigError, "prompt of line 1 "),
            ([{"prompt": "x", "target": " "}], ConfigError, "target of line 1 "),
            ([{**LINES[0], "id": True}], ConfigError, "id of line 1 "),
            ([{**LINES[0], "split": "test"}], ConfigError, "split of line 1"),
            (LINES[:2], ConfigError, "validation prompts of mine is 1"),
            ([{**line, "split": "evaluation"} for line in LINES], ConfigError, "validation prompts of mine is 0"),
        ],
    )
    def test_bad_rows_are_refused(self, write, lines, error, named):
        with pytest.raises(error, match=named):
            mine(write(lines))

    @each_case(
        ("change", "named"),
        [
            ({"name": "carry-rtl"}, "carry-rtl"),
            ({"name": "td07-clustered-mask"}, "td07"),
            ({"name": "a/b"}, "a/b"),
            ({"max_new_tokens": 0}, "max_new_tokens of mine is 0"),
            ({"max_new_tokens": None}, "max_new_tokens of mine is None"),
            ({"scorer": None}, "scorer of mine"),
            ({"scorer": "exakt"}, "did you mean exact"),
            ({"prompts": "none.jsonl"}, "none.jsonl"),
            ({"prompts": "some/where.json"}, "some/where.json"),
        ],
    )
    def test_bad_settings_are_refused(self, write, change, named):
        given = {"name": "mine", "prompts": str(write(LINES)), "scorer": "exact", "max_new_tokens": 8} | change
        with pytest.raises(ConfigError, match=named):
            own_task(given.pop("name"), given.pop("prompts"), **given)


FILL = {"text": "The [MASK] sat on the [MASK*2] mat.", "target": ["cat", "red  wool"]}


class TestTextsWithBlanks:
    def lines(self, row=FILL, n=4):
        return [{**row, "text": f"{row['text']} {at}"} for at in range(n)]

    def test_a_task_that_asks_to_fill(self, write):
        task = own_task("mine", str(write(self.lines())), scorer="blanks")
        assert task.max_new_tokens == 3
        example = task.examples("validation")[0]
        assert example.has_blanks
        assert example.parts == ("cat", "red  wool")
        verdict = score("cat\n red wool", example)
        assert (verdict.utility, verdict.reason) == (1.0, "2 of 2 blanks right")
        assert [(part.name, part.right) for part in score("Cat\nred wool\nmore", example).parts] == [
            ("[1]", False),
            ("[2]", True),
        ]
        assert score("cat", example).utility == 0.5
        assert score("", example).utility == 0.0
        # The same words as prompts are another task.
        prompts = [{"prompt": row["text"], "target": row["target"]} for row in self.lines()]
        assert mine(write(prompts), "contains").version != task.version

    @pytest.mark.parametrize("rule", ["exact", "answer", "contains", "blanks"])
    def test_one_run_of_blanks_is_read_by_every_rule(self, write, rule):
        task = own_task(
            "mine", str(write(self.lines({"text": "Two and two is [MASK*3].", "target": "four"}))), scorer=rule
        )
        example = task.examples("validation")[0]
        assert (score("four", example).utility, score("five", example).utility) == (1.0, 0.0)

    def test_a_function_gets_the_fills(self, write, module):
        name = module(
            "def score(text, example):\n"
            "    assert set(example) == {'id', 'text', 'target', 'split', 'fills'}\n"
            "    return float(example['fills'] == example['target'])"
        )
        lines = self.lines({"text": "The [MASK] and the [MASK].", "target": ["cat", "dog"]})
        task = own_task("mine", str(write(lines)), scorer=f"{name}:score")
        check_scorer(task)
        example = task.examples("validation")[0]
        assert (score("cat\ndog", example).utility, score("cat", example).utility) == (1.0, 0.0)

    @each_case(
        ("row", "rule", "named"),
        [
            ({"text": "no blank"}, "blanks", "text of line 1 "),
            ({"text": "[MASK*0] x"}, "blanks", "text of line 1 "),
            ({"text": "[MASK] [MASK*2] x"}, "blanks", "text of line 1 .*join the runs"),
            ({"target": "cat"}, "blanks", "target of line 1 .*2 runs"),
            ({"target": ["cat", 3]}, "blanks", "target of line 1 .*2 runs"),
            ({}, "exact", "rule for line 1 .* is 'exact'"),
            ({"prompt": "x"}, "blanks", "line 1 .*'both'"),
            ({"text": 3}, "blanks", "text of line 1 .* is 3"),
        ],
    )
    def test_bad_texts_are_refused(self, write, row, rule, named):
        with pytest.raises(ConfigError, match=named):
            own_task("mine", str(write([FILL | row])), scorer=rule)

    def test_texts_bring_their_length_and_keep_to_themselves(self, write):
        mixed = [*self.lines({"text": "x [MASK]", "target": "y"}), *LINES]
        for rows, rule, length, named in (
            (self.lines(), "blanks", 8, "max_new_tokens of mine is 8"),
            (mixed, "exact", None, "'prompts and texts'"),
            (LINES, "blanks", 8, "mark the blanks"),
        ):
            with pytest.raises(ConfigError, match=named):
                own_task("mine", str(write(rows)), scorer=rule, max_new_tokens=length)


class TestRules:
    @each_case(
        ("rule", "target", "text", "worth"),
        [
            ("exact", "a b", "thinking\n a b ", 1),
            ("exact", "a b", "<answer> a b </answer> done", 1),
            ("exact", "a b", "a  b", 0),
            ("exact", "a b", "A b", 0),
            ("answer", "a b", "so: <answer>a  b</answer>", 1),
            ("answer", "a b", "a\nb", 1),
            ("answer", "a b", "so:\na b", 0),
            ("contains", "a b", "well, a  b it is", 1),
            ("contains", "a b", "a, b", 0),
            ("number", "1,200", "it is 5 and then $1200.00", 1),
            ("number", 1200, "it is 1200 and then 5", 0),
            ("json", {"a": 1, "b": [2]}, '{"b": [2], "a": 1.0}', 1),
            ("json", '{"a": 1, "b": 2}', 'sure: {"a": 1, "b": 3}', 0.5),
            ("json", {"a": 1}, '{"a": 1, "b": 3}', 0.5),
            ("json", {"a": 1}, "none", 0),
            ("parts", "a b c d", "<answer>a x c d</answer>", 0.75),
            ("parts", "a b", "a b c d", 0.5),
            ("parts", "a b", "", 0),
        ],
    )
    def test_rules_give_the_documented_utility(self, write, rule, target, text, worth):
        task = mine(write([{"prompt": f"p{n}", "target": target} for n in range(3)]), rule)
        assert score(text, task.examples("validation")[0]).utility == worth

    @each_case(("rule", "target"), [("number", "none"), ("json", "[1]"), ("json", 3)])
    def test_a_target_that_nothing_matches_is_refused(self, write, rule, target):
        with pytest.raises(ConfigError, match=f"target of line 1 .*{rule}"):
            mine(write([{"prompt": "p", "target": target}]), rule)


SCORER = """
def score(text, example):
    assert set(example) == {"id", "prompt", "target", "split"}
    if text == "raise":
        raise KeyError("no such thing")
    return {"bad": 1.7, "nan": float("nan"), "text": "0.5", "none": None, "true": True}.get(text, len(text) / 10)

class Counter:
    def prompts(self):
        yield from ({"prompt": f"count to {n}", "target": [n]} for n in range(5))
    def score(self, text, example):
        return float(text == str(example["target"][0]))

counter = Counter()

def rows():
    return list(Counter().prompts())

def none():
    return 3

def broken():
    raise RuntimeError("no disk")

class inner:
    made = staticmethod(rows)
"""


class TestPython:
    @pytest.mark.parametrize("suffix", ["", ".py"])
    def test_a_function_scores(self, write, module, suffix):
        name = f"{module(SCORER)}{suffix}:score"
        task = mine(write(LINES), name)
        example = task.examples("validation")[0]
        assert score("abc", example).utility == 0.3
        assert score("true", example).utility == 1
        assert name in score("abc", example).reason
        assert task.scorer.name == name

    def test_an_exception_of_the_function_gives_no_utility(self, write, module):
        task = mine(write(LINES), f"{module(SCORER)}:score")
        example = task.examples("validation")[0]
        missing, known = score_all([("raise", example), ("abc", example)])
        assert missing.utility is None
        assert "KeyError" in missing.reason
        assert example.id in missing.reason
        assert known.utility == 0.3

    @pytest.mark.parametrize("thing", ["Counter", "counter"])
    def test_prompts_with_their_own_scoring(self, module, thing):
        name = f"{module(SCORER)}:{thing}"
        task = own_task("mine", name, max_new_tokens=8)
        example = task.examples("validation")[0]
        assert example.target == f"[{example.prompt.split()[-1]}]"
        assert score(example.prompt.split()[-1], example).utility == 1
        with pytest.raises(ConfigError, match="has its own"):
            own_task("mine", name, scorer="exact", max_new_tokens=8)

    @pytest.mark.parametrize("thing", ["rows", "inner.made"])
    def test_prompts_of_a_function(self, module, thing):
        task = own_task("mine", f"{module(SCORER)}:{thing}", scorer="contains", max_new_tokens=8)
        assert dict(task.counts) == {"development": 0, "validation": 3, "evaluation": 2}

    def test_code_that_gives_no_prompts_is_refused(self, module):
        made = module(SCORER)
        for name, named in (
            ("no_such.module:rows", "no_such.module"),
            ("no_such/file.py:rows", "no_such/file.py"),
            (f"{made}.rows", "neither a file of prompts nor code"),
            (f"{made}:rosw", "did you mean rows"),
            (f"{made}:broken", "RuntimeError: no disk"),
            (f"{made}:none", "TypeError"),
            (f"{made}:", "neither a file of prompts nor code"),
        ):
            with pytest.raises(ConfigError, match=named):
                own_task("mine", name, scorer="exact", max_new_tokens=8)

    def test_records_of_a_function_are_checked_alike(self, module):
        name = module("def rows(): return [{'prompt': 'a', 'target': 'b'}, 'a line']")
        with pytest.raises(ConfigError, match=f"prompt 2 of {name}:rows is 'a line'"):
            own_task("mine", f"{name}:rows", scorer="exact", max_new_tokens=8)

    def test_another_function_of_the_same_name_is_another_version(self, write, module):
        path = str(write(LINES))
        before, name = own_task("mine", path, scorer="exact", max_new_tokens=8).version, module(SCORER)
        made = own_task("mine", path, scorer=f"{name}:score", max_new_tokens=8).version
        assert made == own_task("mine", path, scorer=f"{name}:score", max_new_tokens=8).version
        source = sys.modules[name].__file__
        with open(source, "a", encoding="utf-8") as file:
            file.write("\n# changed\n")
        assert len({before, made, own_task("mine", path, scorer=f"{name}:score", max_new_tokens=8).version}) == 3

    @pytest.mark.parametrize(
        "name", ["setup.cfg", "setup.py", "./setup.cfg", "setup/", "a/setup.json", "setup.", "a\0b"]
    )
    def test_only_what_names_code_runs(self, module, write, tmp_path, name):
        """`setup.cfg` is no name in the module `setup`."""
        (tmp_path / "setup.py").write_text("raise RuntimeError('this ran')", encoding="utf-8")
        for wrong in ({"given": name, "scorer": "exact"}, {"given": str(write(LINES)), "scorer": name}):
            with pytest.raises(ConfigError, match=r"neither a file of prompts nor code.*runs that code"):
                open_task(**wrong, max_new_tokens=8)
        assert "setup" not in sys.modules

    def test_an_interrupt_is_the_users(self, write, module):
        name = module("def score(text, example): raise KeyboardInterrupt")
        task = mine(write(LINES), f"{name}:score")
        with pytest.raises(KeyboardInterrupt):
            score("x", task.examples("validation")[0])

    @each_case(
        ("value", "worth"),
        [
            ("np.float32(0.5)", 0.5),
            ("np.int64(1)", 1),
            ("np.bool_(True)", 1),
            ("Fraction(1, 4)", 0.25),
            ("np.array([0.1, 0.2])", None),
            ("2.0", None),
            ("10**400", None),
            ("-1e-9", None),
            ("'\\ud800'", None),
            ("Odd()", None),
        ],
    )
    def test_only_numbers_from_0_to_1_are_utilities(self, write, module, value, worth):
        code = (
            "import numpy as np\nfrom fractions import Fraction\nclass Odd:\n    def __repr__(self): raise ValueError\n"
            f"def score(text, example):\n    print('said')\n    return {value}\n"
        )
        task = mine(write(LINES), f"{module(code)}:score")
        example = task.examples("validation")[0]
        if worth is not None:
            assert score("x", example).utility == worth
            return
        with pytest.raises(ContractError, match="allowed: a number from 0 to 1") as caught:
            score("x", example)
        str(caught.value).encode("utf-8")


class TestNames:
    def test_tasks_of_the_suite_open_by_name_and_take_no_rule(self):
        assert open_task("carry-rtl") is find_task("carry-rtl")
        for name, more, named in (
            ("cary-rtl", {}, "did you mean carry-rtl"),
            ("carry-rtl", {"scorer": "exact"}, "scorer of carry-rtl is 'exact'"),
            ("carry-rtl", {"max_new_tokens": 3}, "max_new_tokens of carry-rtl is 3"),
        ):
            with pytest.raises(ConfigError, match=named):
                open_task(name, **more)

    def test_tasks_are_named_after_their_file_or_function(self, write, module):
        path = str(write(LINES, "my prompts.v2.jsonl"))
        assert open_task(path, scorer="exact", max_new_tokens=8).name == "my-prompts-v2"
        assert open_task(f"{module(SCORER)}:rows", scorer="contains", max_new_tokens=8).name == "rows"
        with pytest.raises(ConfigError, match="gsm8k"):
            open_task(str(write(LINES, "gsm8k.jsonl")), scorer="exact", max_new_tokens=8)
