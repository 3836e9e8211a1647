r"""The columns of a topic's table in SQL, and of a record in `--where`.

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

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of a topic's table."""


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
