"""Which columns can be written: the rules of `row_batches`' table, for names and types in Spark's notation.

This is separate from the writer, because the driver's process of a commit, which is restarted for each micro-batch, would load
Arrow only for this.
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
    """Check columns, each a name and a type. Raises InvalidArgumentError for a missing one, a duplicate, or a wrong type."""
    types: dict[str, str] = {}
    for name, kind in columns:
        if name in types and name in _TYPES:
            raise InvalidArgumentError(f"column {name} appears more than once")
        types[name] = kind
    if options.topic is None and "topic" not in types:
        raise InvalidArgumentError("neither the option topic nor a column topic says which topic the rows go to")
    if "value" not in types:
        raise InvalidArgumentError("column value is needed", found=", ".join(types) or "no columns")
    for name, expected in _TYPES.items():
        if (name == "topic" and options.topic is not None) or (name == "headers" and not options.include_headers):
            continue
        # A collation follows the type.
        found = types.get(name, _NULL).split(" collate ")[0]
        if found != _NULL and found not in expected:
            raise InvalidArgumentError(
                f"column {name} is of a type that cannot be written", found=types[name], expected=" or ".join(expected)
            )
