"""`python -m tests.cluster --times 20 --seed N`: a study under random kills, so often; counts and seeds are printed.

With `--s3` the tables go to an S3-compatible server (moto's) instead of a folder.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.chaos import alone, study_in, trial
from tests.cluster.nodes import three_nodes
from tests.helpers.object_store import served


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if the hashes were those of one process every time."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="runs; default: 20")
    parser.add_argument("--seed", type=int, help="of the first run; default: a random one")
    parser.add_argument("--s3", action="store_true", help="into buckets of an S3-compatible server")
    asked = parser.parse_args(arguments)
    first = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    failed = []
    with tempfile.TemporaryDirectory(prefix="unmask-cluster-") as folder, three_nodes() as nodes, served() as server:
        file = study_in(Path(folder))
        expected = alone(file)
        for seed in range(first, first + asked.times):
            tried = trial(nodes, file, seed, expected, server.bucket() if asked.s3 else None)
            verdict = "equal" if tried.equal else f"NOT EQUAL ({tried.said})"
            print(f"seed {seed}: {verdict}, {tried.seconds:.0f} s; {'; '.join(tried.events)}", flush=True)
            failed += [] if tried.equal else [seed]
    print(f"seeds {first} to {first + asked.times - 1}: {asked.times - len(failed)} of {asked.times} equal", flush=True)
    if failed:
        print(f"not equal: {', '.join(map(str, failed))}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
