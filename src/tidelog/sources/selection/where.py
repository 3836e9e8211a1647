"""`--where`: an SQL expression over a record, evaluated by DuckDB on whole batches.

| name | type | |
|---|---|---|
| `key`, `value` | VARCHAR | the text; NULL if it is null or not UTF-8. JSON paths: `value->>'$.carrier'` |
| `key_bytes`, `value_bytes` | BLOB | the bytes |
| `headers` | MAP(VARCHAR, VARCHAR) | `headers['trace-id']`; the last one of several with the same name |
| `topic`, `partition`, `offset` | | |
| `timestamp` | TIMESTAMP WITH TIME ZONE | NULL if the record has none |

If an expression cannot be evaluated for a record (its value is not JSON, a cast fails), that record does not pass; other records
are not affected.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from
from tidelog.sources.selection.record_columns import HEADERS_MAP
from tidelog.sources.selection.row_bytes import kept

if TYPE_CHECKING:
    import pyarrow as pa

_RECORD = f"""
    SELECT topic, partition, "offset", timestamp, TRY(decode(key)) AS key, TRY(decode(value)) AS value,
        key AS key_bytes, value AS value_bytes,
        {HEADERS_MAP} AS headers
    FROM batch
"""

EXPECTED = "SQL over key, value, headers['name'], topic, partition, offset, timestamp; a JSON path: value->>'$.carrier' = 'UA'"

_QUOTED_OR_OFFSET = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|\boffset\b""", re.IGNORECASE)


class Where:
    """Evaluates one expression. Raises InvalidArgumentError if it is malformed, MissingPackageError without DuckDB."""

    def __init__(self, expression: str) -> None:
        with imported_from("sql", "duckdb"):
            import duckdb
        import pyarrow as pa

        from tidelog.sources.schema import scan_schema

        # The expression can access only the record, no files and no network. The batch is passed by name.
        self._connection = duckdb.connect(config={"enable_external_access": False, "threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")
        # The word is reserved in SQL but has no meaning within an expression.
        expression = _QUOTED_OR_OFFSET.sub(lambda match: match[1] or '"offset"', expression)
        self._query = f"SELECT coalesce(TRY((\n{expression}\n)::BOOLEAN), FALSE) AS passes FROM ({_RECORD})"
        try:
            self(pa.RecordBatch.from_pylist([], scan_schema()))
        except duckdb.Error as error:
            reason = str(error).split("\n", 1)[0]
            raise InvalidArgumentError(f"--where: {reason}", found=repr(expression), expected=EXPECTED) from None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records for which the expression is true."""
        import pyarrow as pa

        self._connection.register("batch", pa.Table.from_batches([batch]))
        try:
            passes = self._connection.sql(self._query).to_arrow_table().column("passes").combine_chunks()
        finally:
            self._connection.unregister("batch")
        return kept(batch, passes)
