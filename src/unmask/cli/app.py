"""The command line. Results go to stdout; errors are one line on stderr, and each kind has its exit code."""

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
from typer.core import TyperCommand, TyperGroup

from unmask import __version__
from unmask.base.errors import UnmaskError, explain_import
from unmask.base.files import format_path
from unmask.cli.terminal import PipeClosed, prepare_streams, print_note, print_text, silence_stream

# Some processors, often virtual ones, advertise AMX without letting programs use it; a bf16 matrix product then dies
# with an illegal instruction. oneDNN stops at plain AVX-512 if told so before torch is imported, which happens below,
# when a command is looked up.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# What typer raises for a command line that makes no sense; only its subclasses have public names.
_UsageError: Any = typer.BadParameter.__bases__[0]
_DISK_ERRORS = (ENOSPC, EDQUOT, EFBIG, EROFS)
_PATH_ERRORS = (EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM)
OK, UNEXPECTED, REFUSED, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

COMMANDS: Mapping[str, tuple[str, str]] = {
    "generate": ("generate", "Continue one or more prompts."),
    "infill": ("generate", "Fill the blanks of one or more texts."),
    "likelihood": ("generate", "Say how probable texts are: exact, or as a bound."),
    "view": ("view", "Explore in a browser; make a page of a saved run."),
    "compare": ("compare", "Compare decoding policies on tasks."),
    "calibrate": ("calibrate", "Make a gate for a task: when to deviate from a fixed action."),
    "study": ("study", "Measure what adapting is worth: plan, run, status, report."),
    "verify": ("verify", "Check a model against its authors' figures."),
    "demo": ("demo", "See methods, runs and a whole study on one page."),
    "models": ("listings", "List the models and their options."),
    "methods": ("listings", "List the unmasking methods, or show one."),
    "tasks": ("listings", "List the tasks, print prompts, score answers."),
    "train": ("train", "Train a small masked diffusion model, or a head."),
    "bench": ("bench", "Measure what decoding costs on this machine."),
    "doctor": ("doctor", "Show what this machine has, and what is missing."),
}
"""Every command by name: the module of this package with a function or group of that name, and a line of help."""


class LazyCommands(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up, so that `unmask --help` does not wait for torch."""

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __getitem__(self, name: str) -> Any:
        target = getattr(import_module(f"unmask.cli.{COMMANDS[name][0]}"), name)
        if isinstance(target, typer.Typer):
            group = typer.main.get_group(target)
            group.name = name
            return group
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name)(target)
        return typer.main.get_command(single)


class LazyGroup(TyperGroup):
    """The group of all commands. Its help needs their lines of help alone."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = LazyCommands()

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the name of a command without importing any."""
        self.commands = {name: TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()}
        return super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    name="unmask",
    cls=LazyGroup,
    help="Decode masked diffusion language models with published unmasking methods.\n\n\b\nStart with:\n"
    "  unmask generate --watch       decode something and look on\n"
    "  unmask demo                   methods, runs and a study on one page, out/demo/report.html\n"
    "  unmask doctor                 what this machine has, and what to do next\n",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    prepare_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in takewhile(lambda argument: argument.startswith("-"), arguments)
    try:
        code = app(arguments or ["--help"], prog_name="unmask", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except _UsageError as error:
        return _print_error(f"{error.format_message()} (--help shows what is allowed)", debug, REFUSED)
    except UnmaskError as error:
        return _print_error(str(error), debug, REFUSED)
    except ModuleNotFoundError as error:
        explained = explain_import(error)
        if explained is error:
            return _print_error(f"unexpected {type(error).__name__}: {error}", debug, UNEXPECTED)
        return _print_error(str(explained), debug, REFUSED)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as error:
        # How typer ends --show-completion.
        if error.code not in (None, 0):
            raise
        return OK
    except (PipeClosed, BrokenPipeError):
        silence_stream(sys.stdout)
        return PIPE_CLOSED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (*_DISK_ERRORS, *_PATH_ERRORS):
            place = f"{format_path(error.filename)}: " if error.filename else ""
            todo = "make room, and run the same command" if error.errno in _DISK_ERRORS else "check the path"
            return _print_error(f"{place}{error.strerror}; {todo}", debug, REFUSED)
        text = f"unexpected {type(error).__name__}: {error} (`unmask --debug ...` tells more)"
        return _print_error(text, debug, UNEXPECTED)


def start() -> NoReturn:
    """Run the program and end the process.

    The threads of torch and pyarrow are not taken down one by one as the interpreter would: once in some hundred runs
    that aborts a process whose work is done, and its exit code with it.
    """
    code = main()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _print_error(message: str, debug: bool, code: int) -> int:
    if debug:
        traceback.print_exc()
    print_note(f"error: {' '.join(message.split())}")
    return code


def _print_version(wanted: bool) -> None:
    if wanted:
        print_text(f"unmask {__version__}")
        raise typer.Exit


@app.callback()
def set_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with every error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Options of every command."""
