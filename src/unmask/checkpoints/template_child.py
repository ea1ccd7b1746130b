"""Renders chat templates in a process of its own: a server on standard input and output that knows no other module.

`template_process.py` starts it as a script. Requests and replies are frames: eight bytes of length, then JSON. Each
request is a template with all it may read; the reply is its text, or what went wrong. A template that takes more memory
or processor time than allowed ends this process, and the other side says so.
"""

import json
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any, BinaryIO

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Namespace

MEMORY = 1 << 30
"""Bytes of address space; Python and Jinja take some fifty million of them."""
REASON = 500
"""Characters of an error's message that are passed on."""


def write_frame(stream: BinaryIO, value: Any) -> None:
    """Plain ASCII, so that halves of characters travel too."""
    data = json.dumps(value).encode("ascii")
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> Any:
    """The next value; EOFError where the stream ends."""
    head = stream.read(8)
    data = stream.read(int.from_bytes(head, "little")) if len(head) == 8 else b""
    if not data or len(data) < int.from_bytes(head, "little"):
        raise EOFError
    return json.loads(data)


def serve() -> None:
    """Say that all is ready, then answer requests until the other side is gone."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    limit_memory()
    write_frame(replies, ["ready"])
    while True:
        try:
            request = read_frame(requests)
        except EOFError:
            return
        limit_time(request.pop("seconds"))
        try:
            reply = render(**request)
        except MemoryError:
            reply = ["memory"]
        limit_time(0)
        write_frame(replies, reply)


def limit_memory() -> None:
    """No more address space than allowed, no files, no core dumps; Windows has none of these limits, macOS some."""
    try:
        import resource
    except ImportError:
        return
    for kind, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):
            continue


def limit_time(seconds: float) -> None:
    """The kernel ends this process after so much processor time, whatever it is doing; 0 takes the limit away."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def render(source: str, values: dict[str, Any], most: int) -> list[Any]:
    """["text", what the template writes], or a word for what went wrong and its particulars."""
    pieces: list[str] = []
    written = 0
    try:
        for piece in compiled(source).generate(**values):
            pieces.append(piece)
            written += len(piece)
            if written > most:
                return ["long", written]
    except MemoryError:
        raise
    except TemplateRefusal as error:
        return ["refused", str(error)[:REASON]]
    except SecurityError as error:
        return ["security", str(error)[:REASON]]
    except Exception as error:  # a template can fail like any program
        line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else None
        return ["fails", type(error).__name__, str(error)[:REASON], line]
    return ["text", "".join(pieces)]


class TemplateRefusal(Exception):
    """A template called raise_exception."""


class GenerationTag(Extension):
    """{% generation %} marks an answer for training; here it only shows what it encloses."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class PlainNamespace(Namespace):
    """A namespace without underscored names, which could pass for Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        given = dict(*args[1:], **kwargs)
        for name in given:
            refuse_underscore(name)
        Namespace.__init__(args[0], given)

    def __setitem__(self, name: str, value: Any) -> None:
        refuse_underscore(name)
        super().__setitem__(name, value)


def refuse_underscore(name: object) -> None:
    """Names that begin so are Python's own."""
    if str(name).startswith("_"):
        raise SecurityError(f"namespace attribute {name!r}")


@lru_cache(maxsize=8)
def compiled(source: str) -> jinja2.Template:
    """The template with all that transformers gives to published ones."""
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = to_json
    sandbox.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda format: datetime.now().strftime(format),
        "dict": lambda *args, **kwargs: dict(*args, **kwargs),
        "namespace": PlainNamespace,
    }
    return sandbox.from_string(source)


def refuse(message: object) -> None:
    """`raise_exception` of a template."""
    raise TemplateRefusal(str(message))


def to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own filter would escape HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


if __name__ == "__main__":
    serve()
