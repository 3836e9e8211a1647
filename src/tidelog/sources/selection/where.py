"""`--where`: an SQL expression over a record, evaluated by DuckDB on whole batches.

| name | type | |
|---|---|---|
| `key`, `value` | VARCHAR | the text; NULL if it is null or not UTF-8. JSON paths: `value->>'$.carrier'` |
| | the type | of the decoded column (`decoded_filter`): `value.amount > 3`; NULL if it cannot be decoded |
| `key_bytes`, `value_bytes` | BLOB | the bytes |
| `headers` | MAP(VARCHAR, VARCHAR) | `headers['trace-id']`; the last one of several with the same name |
| `topic`, `partition`, `offset` | | |
| `timestamp` | TIMESTAMP WITH TIME ZONE | NULL if the record has none |

If an expression cannot be evaluated for a record (its value is not JSON, a cast fails), that record does not pass; other records
are not affected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tidelog.decoding.topic_decoding import UNDECODED
from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from
from tidelog.sources.selection.record_columns import HEADERS_MAP
from tidelog.sources.selection.row_bytes import kept

if TYPE_CHECKING:
    import pyarrow as pa

BYTES = "_bytes"
"""The suffix of the columns with the bytes of decoded keys and values."""

EXPECTED = (
    "SQL over key, value, headers['name'], topic, partition, offset, timestamp; a JSON path: value->>'$.carrier' = 'UA', "
    "(value->>'$.delay')::int > 60"
)

_QUOTED_OR_OFFSET = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|\boffset\b""", re.IGNORECASE)


class Where:
    """Evaluates one expression. Raises InvalidArgumentError if it is malformed, MissingPackageError without DuckDB.

    With `of_decoded`, batches have typed keys and values. Names are then checked with the first batch.
    """

    def __init__(self, expression: str, *, of_decoded: bool = False) -> None:
        with imported_from("sql", "duckdb"):
            import duckdb
        import pyarrow as pa

        from tidelog.sources.schema import scan_schema

        # The expression can access only the record, no files and no network. The batch is passed by name.
        self._connection = duckdb.connect(config={"enable_external_access": False, "threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._error = duckdb.Error
        # The word is reserved in SQL but has no meaning within an expression.
        self._expression = _QUOTED_OR_OFFSET.sub(lambda match: match[1] or '"offset"', expression)
        if of_decoded:
            self._query("SELECT NULL", self._connection.extract_statements)
        else:
            self(pa.RecordBatch.from_pylist([], scan_schema()))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records for which the expression is true."""
        import pyarrow as pa

        table = pa.Table.from_batches([batch])
        columns = ", ".join(column for side in ("key", "value") for column in _columns(table.schema, side))
        record = f'SELECT topic, partition, "offset", timestamp, {columns}, {HEADERS_MAP} AS headers FROM batch'
        self._connection.register("batch", table)
        try:
            passes = self._query(record, lambda query: self._connection.sql(query).to_arrow_table())
        finally:
            self._connection.unregister("batch")
        return kept(batch, passes.column("passes").combine_chunks())

    def _query(self, record: str, ask: Callable[[str], Any]) -> Any:
        try:
            return ask(f"SELECT coalesce(TRY((\n{self._expression}\n)::BOOLEAN), FALSE) AS passes FROM ({record})")
        except self._error as error:
            reason = str(error).split("\n", 1)[0]
            raise InvalidArgumentError(f"--where: {reason}", found=repr(self._expression), expected=EXPECTED) from None


def _columns(schema: pa.Schema, side: str) -> Iterator[str]:
    import pyarrow as pa

    yield f"TRY(decode({side})) AS {side}" if schema.field(side).type == pa.binary() else side
    yield side + BYTES if side + BYTES in schema.names else f"{side} AS {side}{BYTES}"
    if side + UNDECODED in schema.names:
        yield side + UNDECODED
