"""`python -m unmask`: the command line of this very package, whatever `unmask` on the path may be."""

from unmask.cli import start

if __name__ == "__main__":
    start()
