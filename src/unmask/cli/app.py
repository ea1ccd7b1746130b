"""The command line. Everything it prints on request goes to stdout; errors are one line on stderr."""

import atexit
import os
import sys
import traceback
from contextlib import suppress
from errno import EACCES, EDQUOT, EFBIG, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR, EPERM, EROFS
from itertools import takewhile
from typing import Annotated, Any, NoReturn

import typer

from unmask import __version__
from unmask.base.errors import UnmaskError, explain_import
from unmask.base.files import format_path
from unmask.cli.bench import bench
from unmask.cli.calibrate import calibrate
from unmask.cli.compare import compare
from unmask.cli.demo import demo
from unmask.cli.doctor import doctor
from unmask.cli.generate import generate, infill
from unmask.cli.methods import methods
from unmask.cli.models import models
from unmask.cli.progress import note
from unmask.cli.score import score
from unmask.cli.show import show
from unmask.cli.study import study
from unmask.cli.tasks import tasks
from unmask.cli.train_head import trains
from unmask.cli.verify import verify
from unmask.cli.view import view
from unmask.report.console import PipeClosed, prepare, say, silence

# Some CPUs, often virtual ones, advertise AMX without letting programs use it; a bf16 matrix product then dies with
# an illegal instruction. oneDNN stops at plain AVX-512 if told so before torch is imported, which happens below,
# inside the commands: `unmask --help` should not wait for torch.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# What typer raises for a command line that makes no sense; only its subclasses have public names.
_UsageError: Any = typer.BadParameter.__bases__[0]

_OF_THE_DISK = (ENOSPC, EDQUOT, EFBIG, EROFS)
_OF_PATHS = (EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM)

OK, UNEXPECTED, REFUSED, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

app = typer.Typer(
    name="unmask",
    help="Decode masked diffusion language models with published unmasking methods.\n\n\b\nStart with:\n"
    "  unmask generate --watch         decode something and look on\n"
    "  unmask demo --out out/demo      methods, runs and a whole study on one page, out/demo/report.html\n"
    "  unmask doctor                   what this machine has, and what to do next\n",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(tasks, name="tasks")
app.add_typer(study, name="study")
app.add_typer(methods, name="methods")
app.add_typer(trains, name="train")
for command in (compare, verify, calibrate, generate, infill, show, score, models, demo, bench, doctor, view):
    app.command()(command)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    prepare()
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in takewhile(lambda argument: argument.startswith("-"), arguments)
    try:
        code = app(arguments or ["--help"], prog_name="unmask", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except _UsageError as error:
        return _complain(f"{error.format_message()} (--help shows what is allowed)", debug, REFUSED)
    except UnmaskError as error:
        return _complain(str(error), debug, REFUSED)
    except ModuleNotFoundError as error:
        explained = explain_import(error)
        if explained is error:
            return _complain(f"unexpected {type(error).__name__}: {error}", debug, UNEXPECTED)
        return _complain(str(explained), debug, REFUSED)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as error:
        # How typer ends --show-completion.
        if error.code not in (None, 0):
            raise
        return OK
    except (PipeClosed, BrokenPipeError):
        silence(sys.stdout)
        return PIPE_CLOSED
    except Exception as error:
        if isinstance(error, OSError) and (error.errno in _OF_THE_DISK or error.errno in _OF_PATHS):
            place = f"{format_path(error.filename)}: " if error.filename else ""
            todo = "make room, and run the same command" if error.errno in _OF_THE_DISK else "check the path"
            return _complain(f"{place}{error.strerror}; {todo}", debug, REFUSED)
        return _complain(
            f"unexpected {type(error).__name__}: {error} (`unmask --debug ...` tells more)", debug, UNEXPECTED
        )


def start() -> NoReturn:
    """The program: run the command line, clear up, and end here.

    The threads of torch and pyarrow are not taken down one by one as the interpreter would: once in some hundred runs
    that aborts a process whose work is done, and its exit code with it.
    """
    code = main()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _complain(message: str, debug: bool, code: int) -> int:
    if debug:
        traceback.print_exc()
    note(f"error: {' '.join(message.split())}")
    return code


def _version(wanted: bool) -> None:
    if wanted:
        say(f"unmask {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with every error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Options of every command."""
