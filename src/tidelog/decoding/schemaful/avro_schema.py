"""Checks Avro schemas (specification 1.12), prepares them for fastavro, and converts them to Arrow types.

| Avro | Arrow |
|---|---|
| null, boolean, int, long, float, double, bytes, string | null (as string), bool, int32, int64, float, double, binary, string |
| record, array, map, enum, fixed | struct, list, map, string, binary of that size |
| union of null and one other type | the other type; nulls are nulls |
| any other union, a record without fields, a type that contains itself | string: JSON |
| decimal, date, time-millis, time-micros | decimal128 or decimal256, date32, time32, time64 |
| timestamp-millis, -micros, -nanos; local-timestamp-… | timestamp with UTC; without a zone |
| uuid, and unknown logical types | the underlying type |

A schema may be hostile. So its depth is limited, and so is the number of cells that a few bytes of a value can expand to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from

MAX_DEPTH: Final = 64
MAX_CELLS: Final = 20_000
"""The most fields of a value, including nested fields, without the items of arrays and maps."""
MAX_CELLS_PER_BYTE: Final = 64
"""The most fields that an item of an array may have per byte of the item's minimum size."""
MAX_SCHEMA_CHARACTERS: Final = 4 << 20

MARK: Final = "tidelog_mark_"
VALUE: Final = "tidelog_value_"

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"timestamp-{name}s"): pa.timestamp(unit, tz="UTC")
        for name, unit in (("milli", "ms"), ("micro", "us"), ("nano", "ns"))
    },
    **{
        ("long", f"local-timestamp-{name}s"): pa.timestamp(unit)
        for name, unit in (("milli", "ms"), ("micro", "us"), ("nano", "ns"))
    },
}
_MIN_BYTES: Final = {"null": 0, "float": 4, "double": 8}


class AvroSchema:
    """A checked schema. `references` are the schemas that define types used by this schema, in order of use."""

    def __init__(self, text: str, references: Iterable[str] = (), *, path: str | None = None) -> None:
        with imported_from("decode", "fastavro"):
            from fastavro.schema import SchemaParseException, parse_schema
        self._named: dict[str, Any] = {}
        self._unsafe: str | None = None
        try:
            for one in references:
                parse_schema(_plain(_parsed(one)), named_schemas=self._named)
            self.schema = _parsed(text)
            # Let Arrow apply logical types: it is faster, and its times do not end with the year 9999.
            named = dict(self._named)
            parse_schema(_plain(self.schema), named_schemas=named)
        except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = str(error) or type(error).__name__
            raise InvalidArgumentError(f"not an Avro schema: {reason.splitlines()[0][:200]}", path=path) from None
        self._types = _Types([*map(_parsed, references)])
        self.type, self.name, self.is_recursive = self._types.of(self.schema, path)

    def named_types(self) -> dict[str, Any]:
        """The definitions of all records, enums and fixed types, by full name."""
        return self._types.names

    @property
    def is_record(self) -> bool:
        """Whether the values are records."""
        return isinstance(self.schema, dict) and self.schema.get("type") == "record"

    def rows(self, mark_bytes: int) -> Any:
        """Return fastavro's schema for an array of values, in which each value has a last field `MARK`. If values are not
        records, each is wrapped in a record, as the field `VALUE`.
        """
        from fastavro.schema import parse_schema

        mark = {"name": MARK, "type": {"type": "fixed", "name": "tidelog_mark", "namespace": "", "size": mark_bytes}}
        if self.is_record:
            plain = _plain(self.schema)
            row = {**plain, "fields": [*plain["fields"], mark]}
        else:
            row = {"type": "record", "name": "tidelog_row", "fields": [{"name": VALUE, "type": _plain(self.schema)}, mark]}
        return parse_schema({"type": "array", "items": row}, named_schemas=dict(self._named))

    def one(self) -> Any:
        """Return fastavro's schema for one value."""
        from fastavro.schema import parse_schema

        return parse_schema(_plain(self.schema), named_schemas=dict(self._named))


def _parsed(text: str) -> Any:
    if len(text) > MAX_SCHEMA_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, but at most {MAX_SCHEMA_CHARACTERS:,} are accepted")
    try:
        schema = json.loads(text)
    except ValueError:
        # A primitive type may be given without quotes.
        if text.strip().isidentifier():
            return text.strip()
        raise
    waiting = [(schema, 0)]
    while waiting:
        one, depth = waiting.pop()
        if depth > 4 * MAX_DEPTH:
            raise ValueError("nested too deeply")
        children: Iterable[Any] = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting += [(child, depth + 1) for child in children]
    return schema


def _plain(schema: Any) -> Any:
    """Return a copy of the schema without the logical types that Arrow applies."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain(one) if name in ("type", "items", "values", "fields") else one for name, one in schema.items()}
    if plain.get("logicalType") != "decimal":
        plain.pop("logicalType", None)
    return plain


class _Types:
    """Converts schemas to Arrow types. Named types may be defined in other schemas."""

    def __init__(self, references: Iterable[Any]) -> None:
        self.names: dict[str, Any] = {}
        self._open: list[str] = []
        self._is_recursive = False
        self._sizes: dict[str, tuple[int, int]] = {}
        for one in references:
            self._register(one, "")

    def of(self, schema: Any, path: str | None) -> tuple[pa.DataType, str | None, bool]:
        """Return a schema's Arrow type, its full name if it is a named type, and whether a type in it contains itself."""
        self._register(schema, "")
        try:
            _, cells = self._size(schema, "", 0)
            if cells > MAX_CELLS:
                raise ValueError(f"a value has more than {MAX_CELLS:,} fields")
            kind = self._type(schema, "", 0)
        except ValueError as error:
            raise InvalidArgumentError(f"Avro schema: {error}", path=path) from None
        named = schema if isinstance(schema, dict) else {}
        name = _full_name(named["name"], named.get("namespace", "")) if "name" in named else None
        return kind, name, self._is_recursive

    def _register(self, schema: Any, space: str) -> None:
        if isinstance(schema, list):
            for one in schema:
                self._register(one, space)
        elif isinstance(schema, dict):
            if "name" in schema and "type" in schema and schema["type"] in ("record", "error", "enum", "fixed"):
                name = _full_name(schema["name"], schema.get("namespace", space))
                self.names[name] = schema
                space = name.rpartition(".")[0]
            for field in schema.get("fields", ()):
                self._register(field.get("type"), space)
            for part in ("items", "values", "type"):
                self._register(schema.get(part), space)

    def _resolved(self, schema: Any, space: str) -> tuple[Any, str, str | None]:
        """Return the schema that a name refers to, the schema's namespace, and its full name if it has one."""
        if isinstance(schema, dict) and not isinstance(schema.get("type"), str):
            return self._resolved(schema["type"], space)
        if isinstance(schema, str) and schema not in _PRIMITIVES and schema != "null":
            for name in (_full_name(schema, space), schema):
                if name in self.names:
                    return self.names[name], name.rpartition(".")[0], name
            raise ValueError(f"unknown type {schema[:100]}")
        if isinstance(schema, dict) and schema["type"] in ("record", "error", "enum", "fixed"):
            name = _full_name(schema["name"], schema.get("namespace", space))
            return schema, name.rpartition(".")[0], name
        if isinstance(schema, dict) and schema["type"] not in (*_PRIMITIVES, "null", "array", "map"):
            return self._resolved(schema["type"], space)
        return schema, space, None

    def _type(self, schema: Any, space: str, depth: int) -> pa.DataType:
        schema, space, name = self._resolved(schema, space)
        if isinstance(schema, list):
            others = [one for one in schema if one != "null" and one != {"type": "null"}]
            return self._type(others[0], space, depth) if len(others) == 1 else pa.string()
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in ("record", "error"):
            if name in self._open:
                return pa.string()
            if not schema["fields"]:
                return pa.string()  # Parquet and other formats have no empty structs.
            self._open.append(str(name))
            fields = [pa.field(one["name"], self._type(one["type"], space, depth + 1)) for one in schema["fields"]]
            self._open.pop()
            return pa.struct(fields)
        if kind == "array":
            return pa.list_(self._type(schema["items"], space, depth + 1))
        if kind == "map":
            return pa.map_(pa.string(), self._type(schema["values"], space, depth + 1))
        if kind == "enum" or kind == "null":
            return pa.string()
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(schema)
        if kind == "fixed":
            return pa.binary(schema["size"]) if schema["size"] else pa.binary()
        return _LOGICAL.get((kind, str(logical)), _PRIMITIVES[kind])

    def _size(self, schema: Any, space: str, depth: int) -> tuple[int, int]:
        """Return a value's minimum size in bytes, and its number of cells without the items of arrays."""
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        schema, space, name = self._resolved(schema, space)
        if isinstance(schema, list):
            return 1, max((self._size(one, space, depth + 1)[1] for one in schema), default=1)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in ("record", "error"):
            assert name is not None
            if name in self._open:
                self._is_recursive = True
                return 1, 1
            if name not in self._sizes:
                self._open.append(name)
                sizes = [self._size(one["type"], space, depth + 1) for one in schema["fields"]]
                self._open.pop()
                self._sizes[name] = sum(one for one, _ in sizes), 1 + sum(one for _, one in sizes)
            return self._sizes[name]
        if kind in ("array", "map"):
            least, cells = self._size(schema["items" if kind == "array" else "values"], space, depth + 1)
            if cells > MAX_CELLS_PER_BYTE * (least + (kind == "map")):
                raise ValueError(f"{least} bytes of the type {kind} may expand to {cells:,} fields")
            return 1, 1
        if kind == "fixed":
            return schema["size"], 1
        return _MIN_BYTES.get(kind, 1), 1


def _decimal(schema: Mapping[str, Any]) -> pa.DataType:
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if not 0 < precision <= 76 or not 0 <= scale <= precision:
        return pa.string()
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _full_name(name: str, space: str | None) -> str:
    return name if "." in name or not space else f"{space}.{name}"
