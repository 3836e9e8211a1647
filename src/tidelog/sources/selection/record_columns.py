r"""The columns of a topic's table, as SQL expressions over the columns of a scan.

| column | type | |
|---|---|---|
| topic, partition, offset | VARCHAR, INTEGER, BIGINT | |
| timestamp | TIMESTAMP WITH TIME ZONE | NULL if the record has none |
| key, value | VARCHAR | text; bytes that are not UTF-8 are shown as `\xFF`; NULL only if the key or value is null |
| headers | MAP(VARCHAR, VARCHAR) | `headers['trace-id']`; of several headers with the same name, the last one |

With `decode`, a key or value has the decoder's type, and `key_undecoded` or `value_undecoded` has the bytes if decoding failed.
`raw.TOPIC` has the columns of the scan: keys, values and headers as bytes, `timestamp_type` and `create_time`.
"""

from __future__ import annotations

import pyarrow as pa

HEADERS_MAP = """map_from_entries(list_transform(
    list_distinct(list_transform(headers, lambda h: h.key)),
    lambda k: {'key': k, 'value': TRY(decode(list_filter(headers, lambda h: h.key = k)[-1].value))}
))"""
"""An SQL expression for the headers as MAP(VARCHAR, VARCHAR)."""

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of a topic's table."""


def record_columns(schema: pa.Schema) -> str:
    """Return the SQL select list that makes a topic's table from a scan with this schema."""
    undecoded = [quoted(name) for name in schema.names if name.endswith("_undecoded")]
    return ", ".join([*map(quoted, COLUMNS[:-1]), f"{HEADERS_MAP} AS headers", *undecoded])


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
