"""Converts typed Arrow columns to JSON for people: times in ISO 8601, decimals as text, bytes as text or base64."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.decoding.objects import json_of


def json_texts(column: pa.Array) -> pa.Array:
    """Return each value as JSON in one line. Nulls stay null."""
    kind = _shown(column.type)
    values = (column if kind == column.type else column.cast(kind)).to_pylist()
    if _has_map(kind):
        values = [_with_dictionaries(value, kind) for value in values]
    return pa.array([None if value is None else json_of(value) for value in values], pa.string())


def _shown(kind: pa.DataType) -> pa.DataType:
    """Return the type with times and decimals replaced by text, because `datetime` ends with the year 9999."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_shown(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_shown(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _shown(kind.item_type))
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) else kind


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return pa.types.is_nested(kind) and any(_has_map(kind.field(index).type) for index in range(kind.num_fields))


def _with_dictionaries(value: Any, kind: pa.DataType) -> Any:
    """Return a Python value whose maps are dictionaries instead of lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {name: _with_dictionaries(one, kind.item_type) for name, one in value}
    if pa.types.is_struct(kind):
        return {field.name: _with_dictionaries(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_with_dictionaries(one, kind.value_type) for one in value]
    return value
