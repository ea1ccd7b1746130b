"""What a user touches in a shell: one file per command."""

from unmask.cli.app import main, start

__all__ = ["main", "start"]
