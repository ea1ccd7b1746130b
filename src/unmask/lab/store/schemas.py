"""The tables of a study: columns, types, order and what of them is hashed. docs/schema.md describes them."""

from collections.abc import Collection

import pyarrow as pa

FORMAT = "unmask-study-3"
"""Of the manifest and the tables; another one is refused."""
OLD_FORMATS = ("unmask-study-1", "unmask-study-2")
"""Refused with the command that measures again: they lack first steps, diagnostics and hashes of their bytes."""

_NAME = pa.dictionary(pa.int32(), pa.string())

FIRST_STEP = ("revealed", "revealed_tokens", "remasked", "newly_committed")
"""What a branch's own action did at its state: canvas positions, and the tokens put on the revealed ones."""
_KEYS = [("model", _NAME), ("task", _NAME), ("split", _NAME), ("prompt", _NAME), ("state", pa.int32())]
STATES = pa.schema(
    [
        *_KEYS,
        ("step", pa.int32()),
        ("masked", pa.int32()),
        ("horizon", pa.int32()),
        ("taken", pa.int32()),
        ("tokens", pa.list_(pa.int32())),
        ("fixed", pa.list_(pa.bool_())),
        ("committed", pa.list_(pa.bool_())),
        ("trajectory", pa.binary()),
    ]
)
BRANCHES = pa.schema(
    [
        *_KEYS,
        ("step", pa.int32()),
        ("masked", pa.int32()),
        ("axis", _NAME),
        ("candidate", _NAME),
        ("is_reference", pa.bool_()),
        ("rollout", pa.int32()),
        ("utility", pa.float64()),
        ("reason", _NAME),
        ("answer", _NAME),
        *((name, pa.list_(pa.int32())) for name in FIRST_STEP),
    ]
)
OWN_COST = (("extra_forwards", pa.int32()), ("extra_tokens", pa.int32()))
"""Columns of `branches` in studies of the policy axis, and in no other: what a method's own step took."""
READINGS = pa.schema(
    [
        *_KEYS,
        ("axis", _NAME),
        ("diagnostic", _NAME),
        ("signal", pa.float64()),
        ("abstained", pa.bool_()),
        ("snapped", _NAME),
        ("same", pa.list_(pa.string())),
        ("utility", pa.list_(pa.float64())),
        ("reason", pa.list_(pa.string())),
        ("answer", pa.list_(pa.string())),
        *((name, pa.list_(pa.list_(pa.int32()))) for name in FIRST_STEP),
        ("ingredients", pa.string()),
    ]
)
DECODES = pa.schema(
    [
        ("model", _NAME),
        ("task", _NAME),
        ("axis", _NAME),
        ("arm", _NAME),
        ("draw", pa.int32()),
        ("split", _NAME),
        ("prompt", _NAME),
        ("utility", pa.float64()),
        ("reason", _NAME),
        ("answer", _NAME),
        ("evaluated", pa.int32()),
        ("deviated", pa.int32()),
        ("forwards", pa.int32()),
    ]
)
SCHEMAS = {"states": STATES, "branches": BRANCHES, "readings": READINGS, "decodes": DECODES}
SORT = {
    "states": ["model", "task", "split", "prompt", "state"],
    "readings": ["model", "task", "split", "prompt", "state", "axis", "diagnostic"],
    "branches": ["model", "task", "split", "prompt", "state", "axis", "candidate", "rollout"],
    "decodes": ["model", "task", "axis", "arm", "draw", "split", "prompt"],
}
DIAGNOSTIC = ("diagnostic", _NAME)
"""Column of `decodes` in studies with a diagnostic that is not called as its axis, and in no other: whose arms they
are; empty for candidates on validation prompts, which are the axis' own. There it is part of the key."""
SUMMARY = tuple(
    (f"{what}_{how}", pa.float64()) for what in ("entropy", "margin") for how in ("mean", "spread", "least", "most")
)
"""Columns of `readings` in studies with a learned detector, and in no other: how sure the prediction was."""
OPTIONAL = {"branches": OWN_COST, "readings": SUMMARY, "decodes": (DIAGNOSTIC,)}
UNHASHED = ("trajectory",)
"""Packed values whose bytes depend on a compressor; what they hold is in the other columns."""


def schema_of(name: str, columns: Collection[str] = ()) -> pa.Schema:
    """The schema of a table, with those of its optional columns that are among these."""
    optional = [column for column in OPTIONAL.get(name, ()) if column[0] in columns]
    return pa.schema([*SCHEMAS[name], *(pa.field(*column) for column in optional)])


def sort_keys(name: str, columns: Collection[str]) -> list[str]:
    """What a table with these columns is sorted by."""
    own = [DIAGNOSTIC[0]] if name == "decodes" and DIAGNOSTIC[0] in columns else []
    return [*SORT[name], *own]


def loose(name: str, columns: Collection[str] = ()) -> pa.Schema:
    """The schema with plain strings, for rows that are put together; the store turns them into dictionaries."""
    return pa.schema([(f.name, plain_type(f.type)) for f in schema_of(name, columns)])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """What a column holds, whether or not it is kept as a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
