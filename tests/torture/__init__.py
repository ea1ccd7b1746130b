"""`make torture`: kills, full disks, flipped bits, hostile files, command lines, calls, programs and texts, at random.

docs/reliability.md says what is promised; each goal here tries to break some of it. A goal is a module of `goals` with
a `GOAL`: a name, how many cases a sample has, and `try_case`, which carries one case out and says what failed. A case
is a goal, a seed and a number, and nothing else: `python -m tests.torture --only GOAL --case N --seed S` does it again.
"""
