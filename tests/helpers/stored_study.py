"""A study that version 0.7.0 ran, with the CSV files that its report made of it.

The store's format may change, so tables are kept as one Parquet file each and read by this stand-in for a store.
tests/golden/README.md says how the study was made.
"""

import csv
import gzip
import io
import json
import zipfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq

from unmask.lab.store import Shard, Store

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "study-0.7.0"


class StoredStudy(Store):
    """What an analysis reads of a store."""

    def __init__(self):
        with gzip.open(FOLDER / "about.json.gz", "rt", encoding="utf-8") as file:
            self._about = json.load(file)
        self.folder = FOLDER

    @property
    def manifest(self):
        return self._about["manifest"]

    def infos(self, kind="branches"):
        part, key = {"branches": ("shards", "shard"), "decodes": ("decodes", "unit")}[kind]
        return {Shard(kind=kind, **info[key]): info for info in self._about[part]}

    @cache  # noqa: B019
    def read_arrow(self, name, columns=None, *, shards=None):
        return pq.read_table(FOLDER / f"{name}.parquet")

    def read(self, name, columns=None, *, shards=None):
        return self.read_arrow(name).to_pandas()

    def content_hash(self):
        return {}

    @property
    def failures(self):
        """Nothing failed."""
        return SimpleNamespace(set_aside=list)


def stored_csv():
    """The CSV files by name: heads, and rows of texts."""
    with zipfile.ZipFile(FOLDER / "csv.zip") as archive:
        return {name: parse_csv(archive.read(name).decode("utf-8")) for name in archive.namelist()}


def parse_csv(text):
    heads, *rows = csv.reader(io.StringIO(text))
    return heads, rows
