"""Where things lie in the checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
DOCS = ROOT / "docs"
STUDIES = ROOT / "studies"
RESULTS = ROOT / "results"
CONFIGS = ROOT / "configs"
