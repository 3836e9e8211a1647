"""Converts the Python objects that decoding libraries return to Arrow columns.

`infer_type` infers a type from a sample. `to_column` converts objects to a column of a type. Objects that do not fit the type are
null in the column, and their rows are returned. The names of fields that the type lacks are collected, so that nothing is left
out silently. A `string` in a type accepts everything, because values that are not text become JSON. So fields whose type varies
are strings.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import pyarrow as pa

MAX_FIELDS: Final = 1000
"""An object with more different keys than this becomes JSON: it is probably a dictionary, not a record."""

MAX_DEPTH: Final = 32
"""Objects that are nested more deeply become JSON."""

MAX_EXTRA: Final = 100
"""At most this many names of fields that the type lacks are collected."""

INT64_RANGE: Final = (-(1 << 63), (1 << 63) - 1)


def json_of(value: object) -> str:
    """Return an object as JSON in one line. Raises ValueError or TypeError if JSON cannot represent the object."""
    try:
        return _encode(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def plain(value: Any) -> object:
    """Convert an object that JSON cannot represent: times to ISO 8601, bytes to text or base64, decimals to text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, tuple):
        return list(value)
    return str(value)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=plain).encode


def infer_type(objects: Sequence[object], depth: int = 0) -> pa.DataType:
    """Return the Arrow type for objects: `struct` for dictionaries, `string` for text and for objects whose type varies."""
    kinds = set(map(type, objects)) - {type(None)}
    if kinds == {dict} and depth < MAX_DEPTH:
        return _struct_type([one for one in objects if one is not None], depth)  # type: ignore[misc]
    if kinds == {list} and depth < MAX_DEPTH:
        items = list(chain.from_iterable(one for one in objects if isinstance(one, list)))
        return pa.list_(infer_type(items, depth + 1))
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        low, high = INT64_RANGE
        return pa.int64() if all(one is None or low <= one <= high for one in objects) else pa.string()  # type: ignore[operator]
    if kinds in ({float}, {int, float}):
        return pa.float64()
    if kinds == {bytes}:
        return pa.binary()
    if kinds == {datetime.datetime}:
        return pa.timestamp("us", tz="UTC")
    return pa.string()


def _struct_type(objects: Sequence[Mapping[Any, object]], depth: int) -> pa.DataType:
    names = dict.fromkeys(chain.from_iterable(objects))
    if not names or len(names) > MAX_FIELDS or not all(isinstance(name, str) for name in names):
        return pa.string()
    return pa.struct([pa.field(name, infer_type([one.get(name) for one in objects], depth + 1)) for name in names])


def to_column(objects: Sequence[object], kind: pa.DataType, extra: set[str] | None) -> tuple[pa.Array, list[int]]:
    """Return the objects as a column, and the rows of the objects that do not fit the type. These are null in the column. Add
    the names of fields that the type lacks to `extra`. Pass None for `extra` if the objects are known to have only fields of
    the type.
    """
    try:
        if extra is not None and objects and _is_like(objects[0], kind):
            # Arrow's inference is cheaper than the check, and usually finds the same type.
            found = pa.array(objects)
            if found.type == kind:
                return found, []
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    try:
        if extra is not None:
            _check(objects, kind, extra, "")
        return pa.array(objects, kind), []
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    fitting: list[object] = []
    failed: list[int] = []
    for row, value in enumerate(objects):
        try:
            one = conform(value, kind, extra)
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            failed.append(row)
            one = None
        fitting.append(one)
    try:
        return pa.array(fitting, kind), failed
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    for row, one in enumerate(fitting):
        try:
            pa.array([one], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            failed.append(row)
            fitting[row] = None
    return pa.array(fitting, kind), sorted(failed)


def conform(value: Any, kind: pa.DataType, extra: set[str] | None, path: str = "") -> object:
    """Convert `value` to an object that has exactly this type. Raises ValueError or TypeError if it does not fit. Adds the names
    of fields that the type lacks to `extra`, prefixed with `path`.
    """
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json_of(value)
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise TypeError("not an object")
        if extra is not None and len(extra) < MAX_EXTRA:
            extra.update(f"{path}{name}" for name in value.keys() - kind.names)
        return {field.name: conform(value.get(field.name), field.type, extra, f"{path}{field.name}.") for field in kind}
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise TypeError("not a list")
        return [conform(one, kind.value_type, extra, path) for one in value]
    if pa.types.is_map(kind):
        names = [conform(name, kind.key_type, extra, path) for name in dict(value)]
        return list(zip(names, [conform(one, kind.item_type, extra, path) for one in dict(value).values()], strict=True))
    if pa.types.is_floating(kind):
        return float(_number(value))
    if pa.types.is_decimal(kind):
        return decimal.Decimal(str(_number(value)))
    if isinstance(value, str):
        if pa.types.is_timestamp(kind):
            return datetime.datetime.fromisoformat(value)
        if pa.types.is_date(kind):
            return datetime.date.fromisoformat(value)
        if pa.types.is_binary(kind):
            return base64.b64decode(value, validate=True)
    if not _is_accepted({type(value)}, kind):
        raise TypeError(f"not {kind}")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise TypeError("not a number")
    return value


def _is_like(value: object, kind: pa.DataType) -> bool:
    """Return whether Arrow may infer this type for objects like `value`."""
    if value is None:
        return True
    if isinstance(value, dict):
        if not pa.types.is_struct(kind) or list(value) != kind.names:
            return False
        return all(_is_like(one, field.type) for one, field in zip(value.values(), kind, strict=True))
    return type(value) is _INFERRED.get(kind)


_INFERRED: Final = {pa.int64(): int, pa.float64(): float, pa.string(): str, pa.bool_(): bool}


def _is_accepted(types: set[type], kind: pa.DataType) -> bool:
    """Return whether Arrow converts objects of these Python types to the Arrow type `kind`, which is not nested, without changing
    them. Arrow would also accept a number as a time, and drop fractions.
    """
    accepted = _accepted(kind)
    return accepted is None or types <= accepted


@lru_cache(256)
def _accepted(kind: pa.DataType) -> frozenset[type] | None:
    return next((accepted for is_kind, accepted in _ACCEPTED if is_kind(kind)), None)


_ACCEPTED: Final[Sequence[tuple[Callable[[pa.DataType], bool], frozenset[type]]]] = (
    (pa.types.is_integer, frozenset({int})),
    (pa.types.is_floating, frozenset({int, float})),
    (pa.types.is_binary, frozenset({bytes})),
    (pa.types.is_timestamp, frozenset({datetime.datetime})),
    (pa.types.is_date, frozenset({datetime.date})),
    (pa.types.is_time, frozenset({datetime.time})),
    (pa.types.is_decimal, frozenset({decimal.Decimal, int})),
    (pa.types.is_duration, frozenset({datetime.timedelta})),
)
"""For each kind of Arrow type, the Python types of objects that Arrow converts to it without changing them."""


def _check(objects: Sequence[Any], kind: pa.DataType, extra: set[str], path: str) -> None:
    """Raise TypeError for an object that Arrow would change silently, such as text to a list, 1.5 to 1, or a number to a time.
    Collect the names of extra fields.
    """
    if pa.types.is_struct(kind):
        objects = [one for one in objects if one is not None]
        if not set(map(type, objects)) <= {dict}:
            raise TypeError("not an object")
        more = set().union(*objects).difference(field.name for field in kind)
        if more and len(extra) < MAX_EXTRA:
            extra.update(f"{path}{name}" for name in more)
        for field in kind:
            if not _is_safe(field.type):
                _check([one.get(field.name) for one in objects], field.type, extra, f"{path}{field.name}.")
    elif pa.types.is_list(kind):
        objects = [one for one in objects if one is not None]
        if not set(map(type, objects)) <= {list}:
            raise TypeError("not a list")
        if not _is_safe(kind.value_type):
            _check(list(chain.from_iterable(objects)), kind.value_type, extra, path)
    elif pa.types.is_map(kind):
        objects = [one for one in objects if one is not None]
        if not _is_safe(kind.item_type):
            _check(list(chain.from_iterable(one.values() for one in objects)), kind.item_type, extra, path)
    elif not _is_accepted({*map(type, objects)} - {type(None)}, kind):
        raise TypeError(f"not {kind}")


def _is_safe(kind: pa.DataType) -> bool:
    """Return whether Arrow refuses all objects of other types, so that no check is needed."""
    return bool(pa.types.is_string(kind) or pa.types.is_boolean(kind))


def extra_notice(extra: Iterable[str]) -> list[str]:
    """Return a list with a notice about fields that the type lacks; an empty list if there are none."""
    names = sorted(extra)
    if not names:
        return []
    listed = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return [f"fields that the columns lack were left out: {listed}"]
