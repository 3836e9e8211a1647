"""Random small logs of several topics and partitions, and the same records as tables of DuckDB's own."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa

import tidelog
from tests.sources.logs import LogBuilder
from tidelog.queries.topic_scan import for_duckdb, table_schema
from tidelog.records.compression import Codec
from tidelog.sources.schema import ALL_COLUMNS, scan_schema

HEADERS = """map_from_entries(list_transform(
    list_distinct(list_transform(headers, lambda h: h.key)),
    lambda k: {'key': k, 'value': TRY(decode(list_filter(headers, lambda h: h.key = k)[-1].value))}
))"""
"""The headers of a record as MAP(VARCHAR, VARCHAR), by DuckDB."""

NOON = 1_373_457_600_000  # 2013-07-10T12:00:00Z
MINUTE = 60_000
TOPICS = {"orders": 3, "pay.ments-1": 2}
BEYOND = 2**63 - 1
"""A timestamp in milliseconds that is beyond DuckDB's range."""


def write_topics(data_dir: Path, seed: int) -> None:
    """Write `TOPICS`: records that come late, without a time, at the same time, beyond DuckDB's times, without key or value."""
    random_ = random.Random(seed)
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            builder = LogBuilder(data_dir, partition, topic=topic, segment_bytes=700, start_offset=random_.choice([0, 5]))
            for batch in range(12):
                builder.append(
                    [_record(random_, batch) for _ in range(random_.randint(1, 6))],
                    magic=random_.choice([0, 1, 2, 2, 2, 2]),
                    codec=random_.choice([Codec.NONE, Codec.NONE, Codec.GZIP]),
                    headers=random_.choice([(), (("trace", b"a"),), (("trace", b"a"), ("trace", b"\xff"))]),
                )
            builder.close()


def _record(random_: random.Random, batch: int) -> tuple[int, bytes | None, bytes | None]:
    at = NOON + batch * 10 * MINUTE + random_.choice([0, 0, 1, MINUTE, -30 * MINUTE, 500])
    time = random_.choice([at] * 12 + [-1, 0, BEYOND, NOON + 2**50])
    key = random_.choice([None, b"a", b"b", b"c", b"\xff\x00", b""])
    value = random_.choice([None, b'{"n": 1, "s": "x"}', b'{"n": 2}', b"plain", b"\xfe"])
    return time, key, value


def in_duckdb(data_dir: Path, zone: str) -> duckdb.DuckDBPyConnection:
    """Return a connection in which the topics are DuckDB's own tables, made of full scans: what queries are compared with."""
    connection = duckdb.connect()
    connection.execute(f"SET TimeZone = '{zone}'")
    connection.execute("CREATE SCHEMA raw; CREATE SCHEMA tidelog")
    schema = table_schema(scan_schema(ALL_COLUMNS), is_raw=True)
    texts = ", ".join(f"coalesce(TRY(decode({name})), {name}::VARCHAR) AS {name}" for name in ("key", "value"))
    columns = f'topic, "partition", "offset", "timestamp", {texts}, {HEADERS} AS headers'
    for topic in TOPICS:
        batches = tidelog.scan(data_dir, topic, columns=ALL_COLUMNS).read_all().to_batches()
        connection.register("scanned", pa.Table.from_batches([for_duckdb(batch, schema) for batch in batches], schema))
        connection.execute(f'CREATE TABLE raw."{topic}" AS FROM scanned')
        connection.execute(f'CREATE VIEW "{topic}" AS SELECT {columns} FROM raw."{topic}"')
    union = " UNION ALL ".join(f'SELECT * FROM "{topic}"' for topic in TOPICS)
    connection.execute(f"CREATE VIEW tidelog.records AS {union}")
    return connection
