"""Which prompts a constructed task has, and which split each prompt belongs to.

Prompt i is drawn from a key made of the task, the version of its generator and i, so it is the same wherever and
whenever it is made. Ids are then ranked by a hash and the ranking is cut by count: development first, then validation,
then evaluation. Training prompts come from keys of another kind, without end, and never repeat a prompt of a split.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count

from unmask.base.errors import ContractError, require
from unmask.tasks.draw import Draw, digest
from unmask.tasks.extract import normalise_spaces
from unmask.tasks.task import LEVELS, SPLITS, TRAINING, DataDir, Example, Generator, Scorer, Task, split_counts

COUNTS = split_counts(100, 100, 500)
REDRAWS = 1000
"""Number of times that a prompt is drawn again because it exists already; after that its generator is refused."""


def rank_ids(name: str, ids: Iterable[str]) -> list[str]:
    """Sort example ids by a hash of the task's name and the id."""
    return sorted(ids, key=lambda id: (digest("rank", name, id), id))


def split_ids(name: str, ids: Sequence[str], counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Assign example ids to splits of the given sizes, in the order of their hashes."""
    expected = sum(counts.values())
    require(expected == len(ids), f"number of examples of {name}", len(ids), f"{expected}", "make the counts add up")
    # Ranked by a hash and not shuffled: the order of the ids that come in makes no difference.
    ranked = iter(rank_ids(name, ids))
    return {split: [next(ranked) for _ in range(counts[split])] for split in SPLITS}


def draw_examples(generator: Generator, split_name: str, prompts_version: str, n: int) -> list[Example]:
    """Draw the first n examples of a generator, no two with the same prompt."""
    taken: set[str] = set()
    examples = []
    for index in range(n):
        # The version is part of the key, so that a new version of a generator has all new prompts.
        examples.append(_draw_example(generator, ("split", split_name, prompts_version), index, taken))
        taken.add(normalise_spaces(examples[-1].prompt))
    return examples


def _draw_example(
    generator: Generator, stream: tuple[str, str, str], index: int, taken: "frozenset[str] | set[str]"
) -> Example:
    """Draw example number `index` of a stream; draw again while another example has its prompt."""
    # By the number and not by a draw: every run of four examples has every level, whatever was drawn before.
    level = LEVELS[index % len(LEVELS)]
    for attempt in range(REDRAWS):
        example = generator(Draw(digest("unmask", *stream, str(index), str(attempt))), level)
        if normalise_spaces(example.prompt) not in taken:
            return example
    raise ContractError(
        f"{stream[1]} gave {REDRAWS} prompts in a row that exist already; allowed: new prompts without end; "
        "give its generator more words or frames"
    )


def constructed_task(
    name: str,
    title: str,
    scorer: Scorer,
    generator: Generator,
    *,
    max_new_tokens: int,
    output: str,
    version: str,
    prompts_version: str = "",
    paired_with: str = "",
    counts: Mapping[str, int] = COUNTS,
) -> Task:
    """Make a task whose examples are drawn by a generator function.

    Raise `version` whenever the generator returns anything else than before. Where only the scoring changes, raise
    `version` and keep the old one as `prompts_version`: ids and prompts then stay. A task that is `paired_with` another
    shares the draws and splits of that task, number by number, so that the two can be compared in pairs.
    """
    prompts_version = prompts_version or version
    split_name = paired_with or name

    def complete_example(example: Example, id: str, split: str) -> Example:
        return replace(example, id=id, task=name, split=split, scorer=scorer)

    @lru_cache(maxsize=1)
    def make_splits() -> dict[str, tuple[Example, ...]]:
        drawn = draw_examples(generator, split_name, prompts_version, sum(counts.values()))
        by_id = {f"{split_name}-v{prompts_version}-{index:04d}": example for index, example in enumerate(drawn)}
        # Ranked under the shared name, so that pairs land in the same split; renamed afterwards.
        return {
            split: tuple(complete_example(by_id[id], id.replace(split_name, name, 1), split) for id in ids)
            for split, ids in split_ids(split_name, list(by_id), counts).items()
        }

    @lru_cache(maxsize=1)
    def split_prompts() -> frozenset[str]:
        return frozenset(normalise_spaces(example.prompt) for part in make_splits().values() for example in part)

    def make_training(start: int, data_dir: DataDir) -> Iterator[Example]:
        # Made at the first training example only, because drawing the splits takes a moment.
        taken = split_prompts()
        for index in count(start):
            example = _draw_example(generator, (TRAINING, split_name, prompts_version), index, taken)
            yield complete_example(example, f"{name}-v{prompts_version}-{TRAINING}-{index}", TRAINING)

    return Task(
        name=name,
        title=title,
        max_new_tokens=max_new_tokens,
        source="constructed",
        output=output,
        scorer=scorer,
        counts=counts,
        version=version,
        prompts_version=prompts_version,
        make_splits=lambda data_dir: make_splits(),
        make_training=make_training,
        generator=generator,
    )
