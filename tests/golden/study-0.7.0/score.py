import zlib


def score(text, example):
    """A rule under which almost every two answers differ, so that gates have something to gain."""
    return zlib.crc32(f"{text} {example['id']}".encode()) % 9 / 8
