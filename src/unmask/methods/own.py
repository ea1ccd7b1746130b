"""A policy of a user's own by the name of its class, `package.module:Class` or `path.py:Class`. Naming it runs code.

For command lines, whose user runs code anyway. `make` knows registered names alone, so that a name from elsewhere (a
file, a request) cannot run anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

from unmask.base.errors import ConfigError, UnknownName, UnmaskError
from unmask.base.options import POLICY_FORMS, check_types, parse_spec
from unmask.base.user_code import describe_error, load_user_code
from unmask.core import Policy, Search
from unmask.methods import METHODS, make_policy, with_settings
from unmask.methods.presets import preset_of

WANTED = "a frozen dataclass that inherits from unmask.core.Policy or Search and has a `name`"
TODO = "docs/extending.md has an example"


def policy_from(
    text: str,
    more: Mapping[str, Any] | None = None,
    also: Sequence[str] = (),
    *,
    family: str | None = None,
    option: str = "--policy",
    folder: Path | None = None,
) -> Policy | Search:
    """A policy as a command line or a study file has it; a class of the user's own is run.

    `more` are settings from elsewhere, `also` names that the caller knows besides; `option` is what messages call the
    text. `preset=TASK` among the settings is one of the method's presets, for models of this family.
    """
    name, settings = policy_settings(text, more, also, option=option)
    if name not in METHODS:
        return own_policy(name, settings, folder)
    preset = settings.pop("preset", None)
    published = preset_of(name, METHODS[name].card, str(preset), family)[1] if preset is not None else {}
    return make_policy(name, **{**published, **settings})


def policy_settings(
    text: str, more: Mapping[str, Any] | None = None, also: Sequence[str] = (), *, option: str = "--policy"
) -> tuple[str, dict[str, Any]]:
    """Name and settings of a policy as a text has it, `more` from elsewhere among them."""
    name, settings = parse_spec(text, option)
    for key, value in (more or {}).items():
        if key in settings:
            raise ConfigError(
                f"{key} is given twice, in {option} {text!r} and with --set or an option of its own; allowed: once; "
                "drop one"
            )
        settings[key] = value
    first, colon, rest = name.partition(":")
    if colon and (first in METHODS or not rest.strip()):
        raise ConfigError(f"{option} {text!r}: {rest!r} is not KEY=VALUE; allowed: {POLICY_FORMS}; add the value")
    if not colon and name.endswith(".py"):
        raise ConfigError(f"{option} {text!r} is a file without a class; allowed: {POLICY_FORMS}; add :Class")
    if name == "all":
        raise ConfigError(
            f"{option} 'all' is no single policy; allowed: in `unmask compare`; name one of `unmask methods`"
        )
    if not colon and name not in METHODS:
        raise UnknownName("policy", name, [*METHODS, *also, "path.py:Class", "package.module:Class"])
    return name, settings


def own_policy(name: str, options: Mapping[str, Any], folder: Path | None = None) -> Policy | Search:
    """A policy of the class that is named, with these settings; dotted ones reach into parts. Files are in `folder`."""
    kind = own_class(name, folder)
    declared = fields(kind)  # type: ignore[arg-type]
    needed = [f.name for f in declared if f.init and not _has_default(f)]
    for key in needed:
        if key not in options:
            raise ConfigError(f"{name} needs the setting {key!r}; allowed: {name}:{key}=VALUE; add it")
    rest = {key: value for key, value in options.items() if key not in needed}
    try:
        check_types(kind, {key: options[key] for key in needed}, name)
        policy: Policy | Search = with_settings(kind(**{key: options[key] for key in needed}), name, rest)
        return policy
    except UnmaskError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{name} cannot be made ({describe_error(error)}); correct it, or its settings") from error


def own_class(name: str, folder: Path | None = None) -> type[Policy] | type[Search]:
    """The class that is named; anything but a policy is refused."""
    kind = load_user_code(name, folder)
    if not (isinstance(kind, type) and issubclass(kind, Policy | Search)):
        found = f"the class {kind.__name__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise ConfigError(f"{name} is {found}; allowed: {WANTED}; {TODO}")
    # A class that inherits from a dataclass counts as one, though its own annotations would be no fields.
    own = "__dataclass_params__" in vars(kind)
    if not (is_dataclass(kind) and own and kind.__dataclass_params__.frozen):
        raise ConfigError(f"{name} is no frozen dataclass; allowed: {WANTED}; write @dataclass(frozen=True) above it")
    if not isinstance(getattr(kind, "name", None), str):
        raise ConfigError(f'{name} has no name; allowed: {WANTED}; add name: ClassVar[str] = "..."')
    return kind


def _has_default(declared: "Field[Any]") -> bool:
    return declared.default is not MISSING or declared.default_factory is not MISSING
