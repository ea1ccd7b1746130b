"""Deleting a folder in which somebody has done his worst."""

import os


def remove(folder: str) -> None:
    """Delete a folder of any depth and permissions, walking: paths have a greatest length, and stacks a depth."""
    os.chmod(folder, 0o700)
    here = os.open(folder, os.O_RDONLY)
    try:
        names: list[str] = []
        waiting = [_delete_files(here)]
        while waiting[-1] or names:
            if waiting[-1]:
                names.append(waiting[-1].pop())
                os.chmod(names[-1], 0o700, dir_fd=here)
                here = _walk(here, names[-1])
                waiting.append(_delete_files(here))
            else:
                waiting.pop()
                here = _walk(here, "..")
                os.rmdir(names.pop(), dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(folder)


def _delete_files(folder: int) -> list[str]:
    """Delete what is not a folder; returns the names of the folders."""
    with os.scandir(folder) as entries:
        is_folder = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    for name in is_folder:
        if not is_folder[name]:
            os.unlink(name, dir_fd=folder)
    return [name for name in is_folder if is_folder[name]]


def _walk(here: int, name: str) -> int:
    there = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
    os.close(here)
    return there
