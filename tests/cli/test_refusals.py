"""Bad command lines: exit code 2, one line that names the value, and nothing is left behind."""

import os
import shlex

import pytest

from tests.helpers.cases import each_case
from tests.helpers.fresh_python import environment
from tests.helpers.own_tasks import LINES
from tests.helpers.paths import STUDIES

POLICIES = [
    ("lada", "did you mean llada?"),
    ("selectiv", "unknown policy 'selectiv'"),
    ("wino:block=8", "unknown setting of wino 'block'"),
    ("wino:", "not KEY=VALUE"),
    ("wino:block_length", "'block_length' is not KEY=VALUE"),
    ("wino:block_length=eight", "block_length of wino is 'eight'; allowed: 1 to 1000000"),
    ("wino:block_length=8,block_length=4", "block_length is given twice"),
    (":x=1", "':x=1' names no policy"),
    ("mine.py", "'mine.py' is a file without a class"),
    ("nowhere.py:Mine", "'nowhere.py:Mine' cannot be read"),
    ("nowhere:Mine", "module 'nowhere' of 'nowhere:Mine' is not found"),
    ("fixed:region=blok:8", "unknown region 'blok'"),
    ("fixed:kappa=1.5", "1.5"),
    ("fixed:alpha=[1,1,0,0,0]", "sum to 1"),
    ("best-of:base=lookum", "base of best-of is 'lookum'"),
    ("klass:preset=gsm9k", "preset of klass is 'gsm9k'"),
]
"""Bad policies, which `generate` and `compare` refuse in the same words."""

REFUSED = [
    *((f"generate -m exact --policy {shlex.quote(text)}", words) for text, words in POLICIES),
    *((f"compare -m exact --policy {shlex.quote(text)}", words) for text, words in POLICIES),
    ("generat", "No such command 'generat'"),
    ("generate --surprise", "--surprise"),
    ("generate -m exact --prompt ''", "prompt is ''"),
    ("generate -m exact --max-new-tokens 0", "max_new_tokens is 0; allowed: 1 to 7"),
    ("generate -m exact --steps 8", "steps of row 0 is 8; allowed: 1 to 7"),
    ("generate -m exact --steps few", "--steps"),
    ("generate -m exact --samples 0", "samples is 0; allowed: 1 to 100000"),
    ("generate -m exact --temperature nan", "temperature is nan"),
    ("generate -m exact --eos-fill", "eos_fill is True"),
    ("generate -m exakt", "unknown model 'exakt'; did you mean exact?"),
    ("generate -m exact --model-option size=3", "'size'"),
    ("generate --model-option invariant=maybe", "invariant of mini is 'maybe'"),
    ("generate -m exact --device cpu --model-option device=cpu", "--device and --model-option device"),
    ("generate -m exact --prompt axe", "'x'"),
    ("generate -m exact --prompt-file none.txt", "'none.txt' cannot be read"),
    ("generate -m exact --prompt-file latin.txt", "not UTF-8"),
    ("generate -m exact --prompt-file gap.txt", "line 2 of --prompt-file 'gap.txt' is empty"),
    ("generate -m exact --prompt-file bad.jsonl", "line 1 of --prompt-file 'bad.jsonl'"),
    ("generate -m exact a --prompt-file gap.txt", "both given"),
    ("generate -m exact --save missing/run.npz", "make 'missing' first"),
    ("generate -m exact --save .", "is a folder"),
    ("generate -m exact --set block_length", "KEY=VALUE"),
    ("generate -m exact --set a=1 --set a=2", "--set a is given twice"),
    ("generate -m exact --set steps=3", "--set steps=... names no setting"),
    ("generate -m exact --policy wino --score margin", "--policy 'wino' and --score are both given"),
    ("generate -m exact --set tau1=0.5 --score margin", "--set tau1 and --score are both given"),
    ("generate -m exact --score margn", "unknown scoring rule 'margn'; did you mean margin?"),
    ("generate -m exact --policy klass:preset=math --preset gsm8k", "the preset is given twice"),
    ("generate -m mini-dream --policy remdm-llada --preset countdown", "with a model of the family dream"),
    ("generate -m exact --gate none.json", "none.json"),
    ("infill -m exact abc", "'abc'"),
    ("infill -m mini ab____d", "[MASK]"),
    ("infill -m exact", "TEXT"),
    ("likelihood -m exact", "no text is given"),
    ("likelihood -m exact ab --file gap.txt", "texts and --file are both given"),
    ("likelihood -m exact --file none.txt", "--file 'none.txt' cannot be read"),
    ("likelihood -m exact --file bad.jsonl", "line 1 of --file 'bad.jsonl'"),
    ("likelihood -m exact ab --samples 3", "samples is 3; allowed: None without estimator='monte-carlo'"),
    ("likelihood -m exact ab --estimator elbo", "estimator is 'elbo'"),
    ("likelihood -m exact ab --policy wino", "wino gives a text no exact likelihood"),
    ("view nowhere --no-open", "nothing at 'nowhere'"),
    ("view empty --no-open", "no study in"),
    ("view gap.txt --no-open", "is not a trajectory"),
    ("view --port 70000", "65535"),
    ("view --export page.html", "nothing to write"),
    ("view gap.txt --export nowhere/page.html", "cannot be written"),
    ("view gap.txt --export gap.txt", "cannot be written"),
    ("view gap.txt --top -1", "--top is -1"),
    ("compare -m exact --task carry", "unknown task 'carry'; did you mean carry-rtl"),
    ("compare -m exact --task nosuch.jsonl", "'nosuch.jsonl'"),
    ("compare -m exact --task mine.jsonl", "mine"),
    ("compare -m exact --axis regoin", "unknown axis 'regoin'"),
    ("compare -m exact --split test", "unknown split 'test'"),
    ("compare -m exact --prompts 0", "prompts is 0"),
    ("compare -m exact --policy wino --policy wino", "twice"),
    ("compare -m exact --policies-from none.json", "none.json"),
    ("compare -m exact --policy wino --compute-matched", "--compute-matched is given without a search"),
    ("compare -m exact --quiet", "allowed: with --out or --json"),
    ("compare -m exact --out gap.txt", "gap.txt"),
    ("compare -m exact --workers 2", "--workers is 2; allowed: nothing without --ray"),
    ("compare -m exact --ray nowhere", "address is 'nowhere'; allowed: auto, or HOST:PORT"),
    ("calibrate -m exact --task carry-rtl --axis regoin --out g", "did you mean region"),
    ("calibrate -m exact --task carry-rtl --axis region --scorer exact --out g", "none with a task of the suite"),
    ("calibrate -m exact --task nosuch.jsonl --axis region --out g", "'nosuch.jsonl'"),
    ("calibrate -m exact --task mine.jsonl --scorer exact --axis region --out g", "max_new_tokens of mine is None"),
    ("calibrate -m exact --task mine.jsonl --scorer exakt --max-new-tokens 4 --axis region --out g", "did you mean"),
    ("calibrate -m exact --task carry-rtl --axis region --out .", "allowed: a file"),
    ("calibrate -m exact --task carry-rtl --axis region --out no/where.json", "the folder of --out"),
    ("calibrate -m exact --task carry-rtl --axis region --out g --prompts 1", "prompts is 1; allowed: 2 or more"),
    ("calibrate -m exact --task carry-rtl --axis region --out g --margin 0.1", "add --guarantee"),
    ("calibrate -m exact --task carry-rtl --axis region --out " + "n" * 5000, "File name too long; check the path"),
    ("verify -m mini --task mbpp", "unknown task 'mbpp'"),
    ("verify -m mini --published gpt", "unknown name of figures 'gpt'"),
    ("verify -m llada-1.5 --task gsm8k-pure", "'gsm8k-pure'"),
    ("verify -m mini --prompts 0", "prompts is 0"),
    ("verify -m no/such --data-dir empty", "gsm8k"),
    ("demo --out gap.txt", "'gap.txt'"),
    ("demo --out new --seeds 1", "--seeds"),
    ("demo --out new --study none.toml", "none.toml"),
    ("methods show klas", "unknown policy 'klas'"),
    ("tasks show", "no task is given"),
    ("tasks show nonsense", "'nonsense'"),
    ("tasks show carry-rtl --split test", "'test'"),
    ("tasks show carry-rtl -n 0", "1 or more"),
    ("tasks show gsm8k --data-dir empty", "gsm8k/test.jsonl"),
    ("tasks score carry-rtl", "--predictions"),
    ("tasks score carry-rtl --predictions none.jsonl", "none.jsonl"),
    ("study plan none.toml", "none.toml"),
    ("study plan wrong.toml", "unknown model 'minni'; did you mean mini"),
    ("study run wrong.toml --out made", "unknown model 'minni'"),
    ("study plan right.toml --rate 0", "--rate is 0.0; allowed: row-forwards a second, above 0"),
    ("study plan right.toml --rate 9 --measure", "nothing beside --measure"),
    ("study run right.toml --out made --ray local --workers 0", "workers is 0; allowed: 1 or more"),
    ("study run right.toml --out " + "x" * 5000, "allowed: a folder; choose a shorter one"),
    ("study status nowhere", "no study in 'nowhere'"),
    ("study report nowhere --state a/b/c/1", "no study in 'nowhere'"),
    ("train", "--config and --out missing"),
    ("train --config none.toml --out made", "none.toml"),
    ("train head --kind soar --out made", "unknown kind of head 'soar'"),
    ("bench nothing", "unknown part of the bench 'nothing'"),
    ("bench step --batch-size 0", "--batch-size is 0"),
    ("bench step --batch-size 1,x", "--batch-size is '1,x'"),
    ("bench step --against authors=.", "has no file generate.py"),
    ("bench step --shape llada", "unknown shape 'llada'"),
    ("bench step --shape llada-8b --model mini", "--model and --shape are both given"),
    ("bench step --model exact", "the model exact has no layers to be timed"),
    ("bench step --json .", "is a folder"),
]


@each_case(("line", "words"), REFUSED)
def test_bad_input_is_one_line(line, words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.txt").write_bytes(b"\xe9\xff")
    (tmp_path / "gap.txt").write_text("a\n\nb\n", encoding="utf-8")
    (tmp_path / "bad.jsonl").write_text('{"text": 3}\n', encoding="utf-8")
    (tmp_path / "mine.jsonl").write_text("\n".join(map(str, LINES)).replace("'", '"'), encoding="utf-8")
    right = (STUDIES / "demo.toml").read_text(encoding="utf-8")
    (tmp_path / "right.toml").write_text(right, encoding="utf-8")
    (tmp_path / "wrong.toml").write_text(right.replace('model = "mini"', 'model = "minni"'), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    ended = command(*shlex.split(line))
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert words in ended.err, ended.err
    assert len(ended.err) < 1200
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("place", ["/dev/zero", "pipe"])
def test_a_gate_that_never_ends_is_not_read(command, tmp_path, place):
    os.mkfifo(tmp_path / "pipe")
    ended = command("generate", "--model", "exact", "ab", "--gate", place)
    assert ended.code == 2
    assert "cannot be read" in ended.err


def test_a_program_ends_with_the_code_of_its_command(process):
    refused = process("generate", "-m", "exact", "--samples", "0", env=environment())
    out, err = refused.communicate()
    assert (refused.returncode, out) == (2, "")
    assert err.startswith("error: samples is 0")
