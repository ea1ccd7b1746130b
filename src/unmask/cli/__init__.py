"""The command `unmask`: one module per group of commands."""

from unmask.cli.app import main, start
