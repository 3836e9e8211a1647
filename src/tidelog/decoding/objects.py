"""Python objects, as decoding libraries return them, into Arrow columns of one type.

`infer_type` learns a type from a sample. `to_column` converts by a type: objects that do not fit it fail one by one, and the
names of fields that the type lacks are collected, so that nothing is left out in silence. A `string` in a type accepts
everything: what is not text becomes JSON. So it stands for fields whose type varies, too.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa

MAX_FIELDS: Final = 1000
"""An object with more different keys than this is a dictionary rather than a record: it becomes JSON."""

MAX_DEPTH: Final = 32
"""Objects that are nested more deeply become JSON in the type."""

MAX_EXTRA: Final = 100
"""At most this many names of fields are collected that the type lacks."""

INT64_RANGE: Final = (-(1 << 63), (1 << 63) - 1)


def json_of(value: object) -> str:
    """Return an object as JSON in one line. Raises ValueError or TypeError if it contains what JSON cannot express."""
    try:
        return _encode(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def plain(value: Any) -> object:
    """Return an object that JSON lacks as one that it has: times as ISO 8601, bytes as text or base64, decimals as text."""
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
    """Return the Arrow type of objects: `struct` for dictionaries, `string` for text and whatever varies."""
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


def to_column(objects: Sequence[object], kind: pa.DataType, extra: set[str]) -> tuple[pa.Array, list[int]]:
    """Return the objects as a column, and the rows that do not fit (null in the column). Adds to `extra` the names of fields
    that the type lacks.
    """
    try:
        _check(objects, kind, extra, "")
        return pa.array(objects, kind), []
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    fitting: list[object] = []
    failed: list[int] = []
    for row, value in enumerate(objects):
        try:
            one = conform(value, kind)
            pa.array([one], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            failed.append(row)
            one = None
        fitting.append(one)
    return pa.array(fitting, kind), failed


def conform(value: Any, kind: pa.DataType) -> object:
    """Return an object that has exactly this type. Raises ValueError or TypeError if it does not fit."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json_of(value)
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise TypeError("not an object")
        return {field.name: conform(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise TypeError("not a list")
        return [conform(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return [(conform(name, kind.key_type), conform(one, kind.item_type)) for name, one in dict(value).items()]
    if pa.types.is_floating(kind) and (isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal)):
        raise TypeError("not a number")
    if pa.types.is_floating(kind):
        return float(value)
    return value


def _check(objects: Sequence[Any], kind: pa.DataType, extra: set[str], path: str) -> None:
    """Raise TypeError for what Arrow would convert in silence: text to a list, a Boolean to a number. Collect extra names."""
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
    elif pa.types.is_floating(kind) and bool in set(map(type, objects)):
        raise TypeError("not a number")


def _is_safe(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind))


def extra_notice(extra: Iterable[str]) -> list[str]:
    """Return the notice about fields that the type lacks, if there are any."""
    names = sorted(extra)
    if not names:
        return []
    listed = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return [f"fields that the columns lack were left out: {listed}"]
