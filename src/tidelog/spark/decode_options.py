"""The options that decode keys and values into typed columns.

| option | value |
|---|---|
| decode, keyDecode | the format of values, of keys: `json`, `avro`, `protobuf`, ... (`tidelog.decoding`); default: binary |
| schema, keySchema | the type as DDL, `id BIGINT, carrier STRING`, or a schema file; default: the registry's newest schema |
| schema.registry.… | the schema registry, by the names of Confluent's clients |
| mode | `PERMISSIVE`: undecodable values are null, with their bytes in `valueUndecoded`; `FAILFAST`: they are an error |

This module neither imports PySpark nor accesses files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.decoding.decodings import FORMATS
from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean
from tidelog.spark.option_values import choice

DECODE_OPTIONS: dict[str, str] = {
    "decode": f"the format of the values, which become a typed column: {', '.join(FORMATS)}",
    "keyDecode": "the same for the keys",
    "schema": "the type of the column value, as DDL: id BIGINT, carrier STRING; or a schema file (.avsc, .proto)",
    "keySchema": "the same for the keys",
    "mode": "PERMISSIVE: what cannot be decoded is null, and its bytes are in valueUndecoded or keyUndecoded; FAILFAST: an error",
}
REGISTRY = "schema.registry."
"""Prefix of options for the schema registry."""

UNDECODED = ("keyUndecoded", "valueUndecoded")
"""The columns of bytes that could not be decoded."""

OPTIONS_OF_SIDES = {"key": ("keyDecode", "keySchema", UNDECODED[0]), "value": ("decode", "schema", UNDECODED[1])}
"""For `key` and `value`: the options for the format and the schema, and the column of bytes that could not be decoded."""

_FILE = re.compile(r"\S+\.(avsc|proto|desc|pb|json)(#[\w.]+)?", re.ASCII | re.IGNORECASE)
_ONE_TYPE = re.compile(r"\s*\w+\s*(<.*|\(.*|)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How to decode keys and values. `formats`, `ddl` and `files` have the entries `key` and `value`."""

    formats: Mapping[str, str]
    ddl: Mapping[str, str]
    """Types, as Spark DDL."""
    files: Mapping[str, str]
    """Absolute paths of schema files, possibly followed by `#Message`."""
    registry: Mapping[str, str] = field(repr=False)
    """The registry's properties, including credentials."""
    fails_fast: bool

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The columns of bytes that could not be decoded."""
        return tuple(
            undecoded for side, (_, _, undecoded) in OPTIONS_OF_SIDES.items() if side in self.formats and not self.fails_fast
        )


def parse_decode_options(given: Mapping[str, str]) -> DecodeOptions | None:
    """Parse the options, whose names must be in lower case. Return None if no format is given. Raises an InvalidArgumentError
    that names the option.
    """
    formats: dict[str, str] = {}
    ddl: dict[str, str] = {}
    files: dict[str, str] = {}
    for side, (format_option, schema_option, _) in OPTIONS_OF_SIDES.items():
        name = given.get(format_option.lower(), "raw").strip().lower()
        if name not in FORMATS:
            raise InvalidArgumentError(
                f"option {format_option}: unknown format: {name}{did_you_mean(name, FORMATS)}", expected=", ".join(FORMATS)
            )
        schema = given.get(schema_option.lower(), "").strip()
        if schema and name == "raw":
            raise InvalidArgumentError(f"option {schema_option} needs the option {format_option}")
        if name != "raw":
            formats[side] = name
        if schema:
            if _FILE.fullmatch(schema):
                # Relative paths refer to the driver's working directory; workers have different ones.
                files[side] = str(Path(schema).absolute())
            elif name in ("avro", "protobuf"):
                raise InvalidArgumentError(
                    f"option {schema_option} cannot be DDL, because the {name} schema determines the type",
                    found=schema,
                    expected="a schema file",
                )
            else:
                ddl[side] = schema
    registry = {name.removeprefix(REGISTRY): value for name, value in given.items() if name.startswith(REGISTRY)}
    for name in ["mode"] if "mode" in given else [f"{REGISTRY}{one}" for one in registry]:
        if not formats:
            raise InvalidArgumentError(f"option {name} needs the option decode or keyDecode")
    if not formats:
        return None
    mode = choice(given, "mode", ("permissive", "failfast"))
    return DecodeOptions(formats, ddl, files, registry, mode == "failfast")


def column_ddl(text: str) -> str:
    """Return the DDL of a column's type. If `text` lists columns, the type is a struct."""
    return text if _ONE_TYPE.fullmatch(text) else f"STRUCT<{text}>"
