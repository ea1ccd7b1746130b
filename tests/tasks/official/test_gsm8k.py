"""GSM8K: word problems and their numbers."""

from itertools import islice

from unmask.tasks import SPLITS, TRAINING, examples, score, training
from unmask.tasks.official import gsm8k
from unmask.tasks.scoring.extract import squeeze
from unmask.tasks.splits import named


def test_gsm8k_reads_its_own_solutions(data):
    for numbered in (*gsm8k.read(data), *gsm8k.read_training(data)):
        example = named(numbered.draft, numbered.id, gsm8k.TASK.name, TRAINING)
        text = f"{numbered.draft.constraints['solution']}\n#### {numbered.draft.target}"
        assert score(text, example).utility == 1.0
        assert "answer>" not in numbered.draft.target


def test_gsm8k_training_is_the_other_file(data):
    taken = {squeeze(e.prompt) for split in SPLITS for e in examples("gsm8k", split, data)}
    drawn = list(training("gsm8k", data_dir=data))
    assert len(drawn) == 7473
    assert taken.isdisjoint(squeeze(e.prompt) for e in drawn)
    assert list(islice(training("gsm8k", 5, data), 2)) == drawn[5:7]
