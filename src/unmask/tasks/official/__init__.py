"""Tasks that others have published, read from their publishers' files."""

from unmask.tasks.official.data import VARIABLE, ChangedData, DataFile, MissingData

__all__ = ["VARIABLE", "ChangedData", "DataFile", "MissingData"]
