"""`make torture` tries to break the promises of this package at random, for an hour or as long as `MINUTES` says.

A goal is a module of `goals` with a `GOAL`: a name, how many cases a sample has, and `try_case`, which carries one case
out and says what failed. A case is a goal, a seed and a number, and nothing else: the command that does it again is
printed. Cases run in forked processes, each in a folder and a process group of its own.

kills        A command that is killed at any moment goes on when it is started again, and what was finished stays:
             `study run`, `calibrate`, `compare --out`, `train`. Results are equal to the last bit.
disks        A file or folder is there whole or not at all. On a full disk, or in a folder that may not be written to,
             the command says so, and goes on once there is room.
bits         A flipped bit in anything stored is noticed, or changes nothing. `study run` does damaged shards again.
bookkeeping  A store whose own notes are cut off, gone or edited is refused or repaired, never misread. Odd names of
             models stay apart. One store holds the results of one code and one scorer, unless another is accepted.
answers      No answer of a model and no message of a scorer ends a run; a shard that always fails is set aside.
files        A damaged, truncated or hostile file is refused in a sentence, before memory is taken for what it claims.
commands     A command line is carried out, or refused in a sentence with exit code 2. Paths are data: only what is
             named as code runs.
pages        Hostile text on a page stays text: in HTML, LaTeX, CSV and Markdown.
"""
