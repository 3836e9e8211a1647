"""`--where`, and `where` of a scan: an SQL expression over a record, evaluated by DuckDB on whole batches.

| name | type | |
|---|---|---|
| `key`, `value` | VARCHAR | the text; NULL if the key or value is null or not UTF-8. JSON paths: `value->>'$.carrier'` |
| | decoded: the column's type | typed (`decoded_filter`): `value.amount > 3`; NULL if decoding failed |
| `key_bytes`, `value_bytes` | BLOB | the bytes |
| `headers` | MAP(VARCHAR, VARCHAR) | `headers['trace-id']`; the last one of several with the same name |
| `topic`, `partition`, `offset` | | |
| `timestamp` | TIMESTAMP WITH TIME ZONE | NULL if the record has none |

If an expression cannot be evaluated for a record (its value is not JSON, a cast fails), that record does not pass; other records
are not affected. A notice has the number of these records and DuckDB's first error. An expression that is itself wrong, such as
`offset = 'a'`, fails for all records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tidelog.decoding.topic_decoding import UNDECODED
from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from
from tidelog.model import SIDES
from tidelog.sources.selection.row_bytes import kept

if TYPE_CHECKING:
    import pyarrow as pa

BYTES = "_bytes"
"""The suffix of the columns with the bytes of decoded keys and values."""

EXPECTED = (
    "SQL over key, value, headers['name'], topic, partition, offset, timestamp; a JSON path: value->>'$.carrier' = 'UA', "
    "(value->>'$.delay')::int > 60; with decoded values: value.amount > 3"
)

MAX_REASON = 200
"""The most characters of DuckDB's messages that are shown."""

_HEADERS = re.compile(r"headers|columns|\*", re.IGNORECASE)
"""Matches every expression that reads the headers. For other expressions, the headers are not converted to a MAP."""

_QUOTED_OR_OFFSET = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|\boffset\b""", re.IGNORECASE)


class Where:
    """Evaluates one expression. Raises InvalidArgumentError if it is malformed, MissingPackageError without DuckDB.

    With `of_decoded`, batches have typed keys and values, and the names in the expression are checked against the first batch.
    Error messages call the expression `name`.
    """

    def __init__(self, expression: str, *, of_decoded: bool = False, name: str = "where") -> None:
        with imported_from("sql", "duckdb"):
            import duckdb
        import pyarrow as pa

        from tidelog.sources.schema import scan_schema

        # The expression can access only the record, no files and no network. The batch is passed by name.
        if not isinstance(expression, str):
            raise InvalidArgumentError(f"{name}: the expression is not a text", found=repr(expression), expected=EXPECTED)
        if not expression.strip():
            raise InvalidArgumentError(f"{name}: the expression is empty", found=repr(expression), expected=EXPECTED)
        self._reads_headers = _HEADERS.search(expression) is not None
        self._failed = 0
        self._first_error = ""
        self._connection = duckdb.connect(config={"enable_external_access": False, "threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._error = duckdb.Error
        self.name = name
        # The word is reserved in SQL but has no meaning within an expression.
        self._expression = _QUOTED_OR_OFFSET.sub(lambda match: match[1] or '"offset"', expression)
        if of_decoded:
            self._query("SELECT NULL", self._connection.extract_statements)
        else:
            self(pa.RecordBatch.from_pylist([], scan_schema()))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records for which the expression is true."""
        import pyarrow as pa

        from tidelog.sources.selection.headers_map import headers_map

        table = pa.Table.from_batches([batch])
        if self._reads_headers:
            table = table.set_column(table.schema.get_field_index("headers"), "headers", headers_map(batch.column("headers")))
        columns = ", ".join(column for side in SIDES for column in _columns(table.schema, side))
        record = f'SELECT topic, partition, "offset", timestamp, {columns}, headers FROM batch'
        self._connection.register("batch", table)
        try:
            passes = (
                self._query(record, lambda query: self._connection.sql(query).to_arrow_table()).column("passes").combine_chunks()
            )
            if passes.null_count:
                self._failed += passes.null_count
                self._first_error = self._first_error or self._error_of(record)
                passes = passes.fill_null(False)
        finally:
            self._connection.unregister("batch")
        return kept(batch, passes)

    def notices(self) -> list[str]:
        """Return a notice about records for which the expression failed, if there are any."""
        if not self._failed:
            return []
        number = "1 record was" if self._failed == 1 else f"{self._failed:,} records were"
        return [f"{number} left out because {self.name} cannot be evaluated: {self._first_error}"]

    def _query(self, record: str, ask: Callable[[str], Any]) -> Any:
        try:
            return ask(f"SELECT TRY(coalesce((\n{self._expression}\n)::BOOLEAN, FALSE)) AS passes FROM ({record})")
        except self._error as error:
            raise InvalidArgumentError(
                f"{self.name}: {_first_line(error)}", found=repr(self._expression), expected=EXPECTED
            ) from None

    def _error_of(self, record: str) -> str:
        try:
            self._connection.sql(f"SELECT (\n{self._expression}\n)::BOOLEAN FROM ({record})").fetchall()
        except self._error as error:
            return _first_line(error)
        return "DuckDB gives no reason"


def _first_line(error: Exception) -> str:
    """Return the beginning of DuckDB's message. It may contain a whole value, with any characters."""
    line = str(error)[:MAX_REASON].split("\n", 1)[0]
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)


def with_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with a second copy of the key and value columns, named `key_bytes` and `value_bytes`. These keep the bytes
    when `key` and `value` are decoded.
    """
    for side in SIDES:
        batch = batch.append_column(side + BYTES, batch.column(side))
    return batch


def _columns(schema: pa.Schema, side: str) -> Iterator[str]:
    import pyarrow as pa

    yield f"TRY(decode({side})) AS {side}" if schema.field(side).type == pa.binary() else side
    yield side + BYTES if side + BYTES in schema.names else f"{side} AS {side}{BYTES}"
    if side + UNDECODED in schema.names:
        yield side + UNDECODED
