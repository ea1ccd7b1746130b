"""The command line. Everything it prints on request goes to stdout; errors are one line on stderr."""

import atexit
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from errno import EACCES, EDQUOT, EFBIG, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR, EPERM, EROFS
from importlib import import_module
from itertools import takewhile
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from unmask import __version__
from unmask.base.errors import UnmaskError, explain_import
from unmask.base.files import format_path
from unmask.cli.progress import note
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

COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "compare": ("compare", "compare", "Compare decoding policies on the tasks."),
    "verify": ("verify", "verify", "Check a model against its authors' figures."),
    "calibrate": ("calibrate", "calibrate", "Make a gate for a task: when to leave the fixed action."),
    "generate": ("generate", "generate", "Continue one or more prompts."),
    "infill": ("generate", "infill", "Fill the blanks of one or more texts."),
    "show": ("show", "show", "Make a page of a saved run: every step and position."),
    "score": ("score", "score", "Say how probable texts are: exact, or as a bound."),
    "models": ("models", "models", "List the models and their options."),
    "demo": ("demo", "demo", "Look at all of it: methods, runs and a study on one page."),
    "bench": ("bench", "bench", "Measure what decoding costs here."),
    "doctor": ("doctor", "doctor", "Look at this machine: versions, devices, models."),
    "view": ("view", "view", "Explore in a browser: watch prompts being decoded."),
    "tasks": ("tasks", "tasks", "List the tasks, look at prompts, score answers."),
    "study": ("study", "study", "Measure adaptation opportunity: plan, run, report."),
    "methods": ("methods", "methods", "List the unmasking methods, or show one."),
    "train": ("train_head", "trains", "Train a small masked diffusion model."),
}
"""Every command: its module and attribute in this package, and a line of help."""


class LazyCommands(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __getitem__(self, name: str) -> Any:
        module, attribute, _ = COMMANDS[name]
        target = getattr(import_module(f"unmask.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            group = typer.main.get_group(target)
            group.name = name
            return group
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(target)
        return typer.main.get_command(alone)


class LazyGroup(TyperGroup):
    """A program whose commands are imported when they are called: `unmask --help` does not wait for torch."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = LazyCommands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


app = typer.Typer(
    name="unmask",
    cls=LazyGroup,
    help="Decode masked diffusion language models with published unmasking methods.\n\n\b\nStart with:\n"
    "  unmask generate --watch         decode something and look on\n"
    "  unmask demo --out out/demo      methods, runs and a whole study on one page, out/demo/report.html\n"
    "  unmask doctor                   what this machine has, and what to do next\n",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


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
