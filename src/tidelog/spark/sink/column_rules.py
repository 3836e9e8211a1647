"""Checks which columns can be written, by the table in `row_batches`. Names and types are in Spark's notation.

This module is separate from the writer, because the driver starts a process for each micro-batch's commit, which would otherwise
load Arrow only for this check.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.errors import InvalidArgumentError
from tidelog.spark.sink.sink_options import SinkOptions

HEADERS = "array<struct<key:string,value:binary>>"

_TYPES = {
    "topic": ("string",),
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": (HEADERS,),
}
_NULL = "void"


def check_columns(columns: Iterable[tuple[str, str]], options: SinkOptions) -> None:
    """Check columns, each a name and a type. Raises InvalidArgumentError for a missing column, a duplicate, or a wrong type."""
    types: dict[str, str] = {}
    for name, kind in columns:
        if name in types and name in _TYPES:
            raise InvalidArgumentError(f"column {name} appears more than once")
        types[name] = kind
    if options.topic is None and "topic" not in types:
        raise InvalidArgumentError("the rows have no target topic: set the option 'topic', or add a column 'topic'")
    if "value" not in types:
        raise InvalidArgumentError("the required column value is missing", found=", ".join(types) or "no columns")
    for name, expected in _TYPES.items():
        if (name == "topic" and options.topic is not None) or (name == "headers" and not options.include_headers):
            continue
        # The type may be followed by a collation.
        found = types.get(name, _NULL).split(" collate ")[0]
        if found != _NULL and found not in expected:
            raise InvalidArgumentError(
                f"column {name} has a type that cannot be written", found=types[name], expected=" or ".join(expected)
            )
