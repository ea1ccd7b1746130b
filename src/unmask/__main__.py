"""The command line as `python -m unmask`, even if another `unmask` is on the path."""

from unmask.cli import start

if __name__ == "__main__":
    start()
