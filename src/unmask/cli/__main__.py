"""`python -m unmask.cli`."""

from unmask.cli.app import start

start()
