"""Plain values cross the pipe whole, and nothing else does."""

import collections
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.tasks.sandbox.jail import values

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.fractions()
    | st.decimals(allow_nan=False)
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=4)
        | st.sets(st.integers() | st.text(max_size=3), max_size=4)
        | st.frozensets(st.integers(), max_size=4)
        | st.builds(collections.deque, st.lists(inner, max_size=3))
        | st.builds(bytearray, st.binary())
    ),
    max_leaves=20,
)


def shape(value: object) -> object:
    """A value with its types, all the way down."""
    if isinstance(value, dict):
        return dict, [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, list | tuple | collections.deque):
        return type(value), [shape(item) for item in value]
    return type(value), value


@given(plain)
def test_plain_values_survive_the_pipe(value):
    again = values.loads(values.dumps(value, strict=True))
    assert shape(again) == shape(value)


@given(st.binary(max_size=60))
def test_noise_from_the_pipe_is_a_bad_value(data):
    with contextlib.suppress(values.BadValue):
        values.loads(data)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(
            st.sampled_from(
                [
                    "dict",
                    "set",
                    "range",
                    "integer",
                    "keys",
                    "decimal",
                    "fractions",
                    "complex",
                    "items",
                    "iterator",
                    "opaque",
                ]
            ),
            st.lists(inner, max_size=3) | st.text(max_size=5),
        ).map(list)
    ),
)


@given(json_like)
def test_wrong_content_from_the_pipe_is_a_bad_value(data):
    with contextlib.suppress(values.BadValue):
        values.loads(json.dumps(data).encode())


def test_deep_content_from_the_pipe_is_a_bad_value():
    for text in ("[" * 100_000, '["list",[' * 5000 + "]]" * 5000, "1" * 10_000, '["integer", "0x"]'):
        with pytest.raises(values.BadValue):
            values.loads(text.encode())
