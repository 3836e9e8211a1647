"""Converts JSON to the tuples of `manifest.py`, by their annotations. A value of a different type is an error that names the
field.

| annotation | JSON |
|---|---|
| a NamedTuple | an object with its fields and no others, or an array of their values |
| tuple[X, ...], tuple[X, Y] | an array |
| Mapping[K, X] | an object; integer keys are strings |
| UUID | a text |
| int, bool, str, None | the same |
"""

from __future__ import annotations

import types
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

Shape = TypeVar("Shape")


def shaped(shape: type[Shape], value: Any) -> Shape:
    """Return a JSON value as an instance of `shape`. Raises ValueError, which names the field with a wrong type."""
    found: Shape = _reader(cast("Any", shape))(value)
    return found


@cache
def _reader(shape: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is types.UnionType:
        (other,) = (one for one in arguments if one is not type(None))
        read = _reader(other)
        return lambda value: None if value is None else read(value)
    if origin is tuple:
        return _array(arguments)
    if origin is Mapping:
        key, read = _reader(arguments[0]) if arguments[0] is not int else int, _reader(arguments[1])
        return lambda value: {key(name): read(one) for name, one in _is(dict, value).items()}
    if isinstance(shape, type) and issubclass(shape, tuple):
        return _named(shape)
    if shape is uuid.UUID:
        return lambda value: uuid.UUID(_is(str, value))
    return lambda value: _is(shape, value)


def _is(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected a {kind.__name__}, found a {type(value).__name__}")
    return value


def _array(arguments: tuple[Any, ...]) -> Callable[[Any], Any]:
    if arguments[-1] is Ellipsis:
        read = _reader(arguments[0])
        return lambda value: tuple(map(read, _is(list, value)))
    reads = tuple(map(_reader, arguments))
    return lambda value: tuple(read(one) for read, one in zip(reads, _is(list, value), strict=True))


def _named(shape: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(shape)
    reads = [(name, _reader(hints[name])) for name in shape._fields]

    def read(value: Any) -> Any:
        if isinstance(value, list):
            value = dict(zip(shape._fields, value, strict=True))
        fields = _is(dict, value)
        if fields.keys() != hints.keys():
            odd = ", ".join(sorted(fields.keys() ^ hints.keys()))
            raise ValueError(f"a {shape.__name__} has missing or unknown fields: {odd}")
        values = []
        for name, field in reads:
            try:
                values.append(field(fields[name]))
            except (ValueError, AttributeError) as error:
                _refuse(name, error)
        return shape(*values)

    return read


def _refuse(name: str, error: Exception) -> NoReturn:
    raise ValueError(f"{name}: {error}") from None
