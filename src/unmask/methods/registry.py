"""The registry of methods: lookup by name, settings in and out, published presets, and a user's own classes.

`methods.toml` has one entry per method. A registered name runs no code but ours, so a file or a request may hold one. A
user's own class is run only where somebody types `path.py:Class` or `package.module:Class`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from unmask.base.errors import ConfigError, UnknownName, UnmaskError, require
from unmask.base.options import POLICY_FORMS, check_annotations, parse_spec, read_toml
from unmask.base.user_code import code_hash, describe_error, is_shipped, load_user_code
from unmask.core import Policy, Search

VERIFIED = "verified"
"""Label of a method that gives the same tokens as its authors' code on a network, except where `differs` says."""
RECONSTRUCTION = "reconstruction"
"""Label of a method that has parts of ours, or was not compared with its authors' code; `differs` says which."""
OURS = "this library"
"""Label of methods without another author."""
LABELS = (VERIFIED, RECONSTRUCTION, OURS)
TAXONOMY = ("score", "cardinality", "region", "commitment", "planning")
"""The axes of the paper's table of methods, in its order."""


@dataclass(frozen=True)
class MethodInfo:
    """An entry of `methods.toml`: where a method comes from, its row of the taxonomy, and its published settings."""

    name: str
    make: str
    """Class or function that makes the method with its default settings, as `module:name` of this package."""
    citation: str
    score: str
    cardinality: str
    region: str
    commitment: str
    label: str
    """How far it was compared with its authors' code: one of `LABELS`."""
    planning: str = "none"
    learned: bool = False
    """Whether it needs a learned part beside the denoiser."""
    version: str = "1"
    """Raised whenever the same settings give other tokens than before."""
    made_for: str = ""
    """Temperature and steps that its authors use, where they are not the defaults of a run."""
    differs: Sequence[str] = ()
    """Differences from the authors' code or from the paper's row, with reasons."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Published settings by model and task, such as `llada/gsm8k`."""

    def __post_init__(self) -> None:
        require(self.label in LABELS, f"label of {self.name}", self.label, ", ".join(LABELS), "pick one")

    @cached_property
    def default(self) -> Policy | Search:
        """The method with its default settings."""
        policy: Policy | Search = self._factory()
        return policy

    @property
    def kind(self) -> type[Policy] | type[Search]:
        """The method's class."""
        return type(self.default)

    @property
    def about(self) -> str:
        """The first line of the method's description."""
        return (self._factory.__doc__ or "").partition("\n")[0]

    @property
    def _factory(self) -> Any:
        module, _, attribute = self.make.partition(":")
        return getattr(import_module(f"unmask.methods.{module}"), attribute)


def _read_methods() -> dict[str, MethodInfo]:
    methods = {}
    for name, entry in read_toml(Path(__file__).with_name("methods.toml"), "table of methods").items():
        for settings in entry.get("presets", {}).values():
            # TOML has no word for None.
            settings.update({key: None for key, value in settings.items() if value == "none"})
        methods[name] = MethodInfo(name, **entry)
    return methods


METHODS = _read_methods()
"""All methods by name, in the order of `methods.toml`."""


def find_method(name: str) -> MethodInfo:
    """Return the entry of a method. The error for an unknown name suggests close ones."""
    if name not in METHODS:
        raise UnknownName("policy", name, METHODS)
    return METHODS[name]


def make_policy(name: str, **settings: Any) -> Policy | Search:
    """Make a method by its name. Dotted settings reach into parts: `operator.variant="cap"`, `base="llada"`."""
    policy: Policy | Search = with_settings(find_method(name).default, name, settings)
    return policy


def describe_policy(policy: Policy | Search) -> dict[str, Any]:
    """Return name and settings of a policy, parts included, as results record them.

    A user's own class has no version, so a hash of its code stands under `class`, which cannot be the name of a field.
    """
    kind = type(policy)
    own = {} if is_shipped(kind) else {"class": f"{kind.__qualname__}, code {code_hash(kind) or 'unknown'}"}
    settings = {setting: _to_record(getattr(policy, field)) for setting, field in policy.setting_fields.items()}
    return {"name": policy.name, **own, **settings}


def _to_record(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_to_record, value))
    if isinstance(value, Policy | Search):
        return describe_policy(value)
    if is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in fields(value) if field.metadata.get("recorded", True))
        return {name: _to_record(getattr(value, name)) for name in names}
    return value


def method_status(policy: Policy | Search) -> dict[str, str]:
    """Return label and version of a method, as results record them; "own" for a user's class."""
    info = METHODS.get(policy.name)
    # A user's own class may have the name of a method.
    if info is None or not isinstance(policy, type(info.default)):
        return {"label": "own"}
    return {"label": info.label, "version": info.version, **({"made_for": info.made_for} if info.made_for else {})}


def with_settings(part: Any, path: str, settings: Mapping[str, Any]) -> Any:
    """Return a policy, or a part of one, with some settings changed; `path` is its name in messages.

    Dotted settings such as `operator.variant` reach into a part.
    """
    names = part.setting_fields if isinstance(part, Policy | Search) else {f.name: f.name for f in fields(part)}
    known = {setting: getattr(part, field) for setting, field in names.items()}
    changes: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        head, _, rest = key.partition(".")
        if head not in known:
            raise UnknownName(f"setting of {path}", key, known)
        if rest:
            if not is_dataclass(known[head]):
                raise ConfigError(f"{path}.{head} has no parts; allowed: {head}=VALUE; drop {rest!r}")
            inner.setdefault(head, {})[rest] = value
        elif isinstance(value, str) and isinstance(known[head], Policy):
            changes[head] = make_policy(value)  # a policy inside a policy may be given by its name
        elif value is None and isinstance(known[head], str):
            changes[head] = "none"  # a command line cannot tell the word "none" from no value
        else:
            changes[head] = value
    for head, below in inner.items():
        changes[head] = with_settings(changes.get(head, known[head]), f"{path}.{head}", below)
    if not isinstance(part, Policy | Search):
        check_annotations(type(part), changes, path)
    return replace(part, **{names[setting]: value for setting, value in changes.items()})


# Published settings by model and task

FAMILIES = ("llada", "dream")
ANY_FAMILY = "*"
"""Family of a model that was not read yet: any family's preset of the asked name is accepted."""


def preset_family(reference: str, options: Mapping[str, Any]) -> str:
    """Return the model family whose published settings apply: the loaded model's own, or that of its reference."""
    own = str(options.get("family", "")).lower()
    return own if own in FAMILIES else reference


def find_preset(name: str, preset: str, family: str | None) -> tuple[str, dict[str, Any]]:
    """Return key and settings of a method's preset, from its key (`llada/gsm8k`) or from its task and a family."""
    presets = METHODS[name].presets
    keys = [key for key in presets if key == preset or (key == f"{family}/{preset}" and family != ANY_FAMILY)]
    if not keys and family in (None, ANY_FAMILY):
        keys = [key for key in presets if key.partition("/")[2] == preset]
    if len(keys) == 1 or (keys and family == ANY_FAMILY):
        return keys[0], dict(presets[keys[0]])
    if keys:
        raise ConfigError(f"preset of {name} is {preset!r}; allowed: {', '.join(keys)}; say which of them")
    there = ", ".join(presets) or "none"
    on = "" if family in (None, ANY_FAMILY) else f" with a model of the family {family}"
    todo = "choose one of them, or leave it out" if presets else "leave it out"
    raise ConfigError(f"preset of {name} is {preset!r}{on}; allowed: {there}; {todo}")


# Policies as they are typed, with a user's own classes

OWN_CLASS = "a frozen dataclass that inherits from unmask.core.Policy or Search and has a `name`"
"""Text of the requirement on a user's own class, for messages."""


def parse_policy(
    text: str,
    more: Mapping[str, Any] | None = None,
    also: Sequence[str] = (),
    *,
    family: str | None = None,
    option: str = "--policy",
    folder: Path | None = None,
) -> Policy | Search:
    """Make the policy of a text such as "klass:threshold=0.8" or "path.py:Class"; a user's own class is run.

    `more` are settings given elsewhere, `also` further names for the message about an unknown one, and `option` is the
    name of the text in messages. The setting `preset=TASK` takes a preset of the method for models of this family.
    Files of own classes are looked for in `folder`.
    """
    name, settings = split_policy(text, more, also, option=option)
    # A registered name comes first, so that no file can pass for a method of the package.
    if name not in METHODS:
        return make_own_policy(name, settings, folder)
    preset = settings.pop("preset", None)
    published = find_preset(name, str(preset), family)[1] if preset is not None else {}
    return make_policy(name, **{**published, **settings})


def split_policy(
    text: str, more: Mapping[str, Any] | None = None, also: Sequence[str] = (), *, option: str = "--policy"
) -> tuple[str, dict[str, Any]]:
    """Split the text of a policy into name and settings, and add the settings `more`. Runs no code of the user."""
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


def make_own_policy(name: str, settings: Mapping[str, Any], folder: Path | None = None) -> Policy | Search:
    """Make a policy of a user's own class, `path.py:Class` or `package.module:Class`, with these settings."""
    kind = _load_class(name, folder)
    # Settings without a default go to the constructor; the others are changed after it, so that dotted ones work.
    needed = [f.name for f in fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING]
    for key in needed:
        if key not in settings:
            raise ConfigError(f"{name} needs the setting {key!r}; allowed: {name}:{key}=VALUE; add it")
    rest = {key: value for key, value in settings.items() if key not in needed}
    try:
        policy: Policy | Search = with_settings(kind(**{key: settings[key] for key in needed}), name, rest)
        return policy
    except UnmaskError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{name} cannot be made ({describe_error(error)}); correct it, or its settings") from error


def _load_class(name: str, folder: Path | None) -> Any:
    kind, todo = load_user_code(name, folder), "docs/extending.md has an example"
    if not (isinstance(kind, type) and issubclass(kind, Policy | Search)):
        found = f"the class {kind.__name__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise ConfigError(f"{name} is {found}; allowed: {OWN_CLASS}; {todo}")
    # A class that inherits from a dataclass counts as one, though its own annotations would be no fields.
    own = "__dataclass_params__" in vars(kind)
    if not (is_dataclass(kind) and own and kind.__dataclass_params__.frozen):
        raise ConfigError(
            f"{name} is no frozen dataclass; allowed: {OWN_CLASS}; write @dataclass(frozen=True) above it"
        )
    if not isinstance(getattr(kind, "name", None), str):
        raise ConfigError(f'{name} has no name; allowed: {OWN_CLASS}; add name: ClassVar[str] = "..."')
    return kind
