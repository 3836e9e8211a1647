"""What a query reads: the times, partitions, offsets and columns that its conditions leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.queries.logs import write_topics
from tidelog.model import TopicPartition
from tidelog.queries.pruning import Filter
from tidelog.queries.session import Session
from tidelog.queries.topic_scan import TopicScan, table_schema
from tidelog.sources.bounds import TimeRange
from tidelog.sources.schema import ALL_COLUMNS, scan_schema

NOON = 1_373_457_600_000


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    data_dir: Path = tmp_path_factory.mktemp("log")
    write_topics(data_dir, 1)
    with Session(data_dir, tz="Europe/Berlin") as opened:
        yield opened


def scans(session: Session, query: str) -> list[TopicScan]:
    (statement,) = session.statements(query)
    relation = session.relation(statement)
    assert relation is not None
    relation.fetchall()
    return session.scans


@pytest.mark.parametrize(
    ("where", "start", "end", "exact"),
    [
        ("timestamp BETWEEN '2013-07-10 14:00' AND '2013-07-10 14:01'", NOON, NOON + 60_001, True),
        ("timestamp >= '2013-07-10 14:00' AND timestamp < '2013-07-10 14:01'", NOON, NOON + 60_000, True),
        ("timestamp > TIMESTAMPTZ '2013-07-10 12:00:00+00'", NOON + 1, None, True),
        ("timestamp < moment('2013-07-10 14:00')", None, NOON, True),
        ("date_trunc('hour', timestamp) = TIMESTAMPTZ '2013-07-10 14:00:00'", NOON, NOON + 3_600_000, True),
        ("NOT (timestamp < '2013-07-10 14:00' OR timestamp > '2013-07-10 14:00')", NOON, NOON + 1, True),
        ("timestamp = '2013-07-10 14:00' OR timestamp = '2013-07-10 14:01'", NOON, NOON + 60_001, False),
        ("timestamp > '2013-07-10 14:00' AND key = 'a'", NOON + 1, None, False),
        ("timestamp > '2013-07-10 14:00' AND timestamp <> '2013-07-10 15:00'", NOON + 1, None, False),
        ("timestamp IS NULL OR timestamp > '2013-07-10 14:00'", None, None, False),
        ("timestamp IS NOT NULL", None, None, False),
        ("timestamp > '1969-01-01'", None, None, False),
        ("timestamp::DATE = '2013-07-10'", None, None, True),
        ("timestamp > '2013-07-10 14:00' OR key = 'a'", None, None, False),
    ],
)
def test_times(session: Session, where: str, start: int | None, end: int | None, exact: bool) -> None:
    (one,) = scans(session, f"SELECT count(*) FROM orders WHERE {where}")
    assert (one.bounds.time, one.bounds.is_exact) == (TimeRange(start, end), exact)


@pytest.mark.parametrize(
    ("where", "partitions"),
    [
        ("partition = 1", (1,)),
        ("partition IN (0, 2, 9)", (0, 2)),
        ("partition > 0 AND partition <> 2", (1,)),
        ("partition + 1 = 3", (2,)),
        ("partition = 1 OR offset > 3", (0, 1, 2)),
        ("(partition = 1 AND timestamp < '2013-07-10') OR (partition = 2 AND timestamp > '2013-07-10')", (1, 2)),
        ("partition % 2 = 0", (0, 1, 2)),
    ],
)
def test_partitions(session: Session, where: str, partitions: tuple[int, ...]) -> None:
    (one,) = scans(session, f"SELECT count(*) FROM orders WHERE {where}")
    assert one.bounds.partitions == partitions


def test_offsets_of_each_partition(session: Session) -> None:
    (one,) = scans(
        session, "SELECT key FROM orders WHERE (partition = 1 AND offset BETWEEN 6 AND 9) OR (partition = 2 AND offset >= 20)"
    )
    end = session.reader.open().ends([TopicPartition("orders", 2)])[TopicPartition("orders", 2)].end_offset
    assert one.bounds.offsets == {1: (6, 10), 2: (20, end)}
    assert one.bounds.is_exact


def test_what_cannot_be_is_not_read(session: Session) -> None:
    for where in (
        "FALSE",
        "timestamp > '2013-07-11' AND timestamp < '2013-07-10'",
        "topic = 'other'",
        "partition = 7",
        "offset < 0",
    ):
        assert scans(session, f"SELECT count(*) FROM orders WHERE {where}") == [], where


def test_only_the_columns_that_are_used_are_read(session: Session) -> None:
    (one,) = scans(session, "SELECT count(*) FROM orders")
    assert one.columns == ("topic",)
    (one,) = scans(session, "SELECT max(timestamp) FROM orders WHERE partition = 1")
    assert one.columns == ("timestamp",)
    (one,) = scans(session, "SELECT key FROM orders WHERE timestamp <> '2013-07-10 14:00'")
    assert set(one.columns) == {"key", "timestamp"}


def test_conditions_reach_both_sides_of_a_join_and_each_topic_of_a_union(session: Session) -> None:
    found = scans(
        session,
        'SELECT count(*) FROM orders a JOIN "pay.ments-1" b USING (timestamp) '
        "WHERE a.timestamp >= '2013-07-10 14:00' AND b.partition = 1",
    )
    assert {one.topic: (one.bounds.time.start_ms, one.bounds.partitions) for one in found} == {
        "orders": (NOON, (0, 1, 2)),
        "pay.ments-1": (NOON, (1,)),
    }
    found = scans(session, "SELECT count(*) FROM records WHERE topic = 'orders' AND timestamp < '2013-07-10 14:00'")
    assert [(one.topic, one.bounds.time.end_ms) for one in found] == [("orders", NOON)]


def test_what_arrow_cannot_simplify_leaves_out_nothing() -> None:
    schema = table_schema(scan_schema(ALL_COLUMNS), is_raw=True)
    for expression in (
        pc.starts_with(pc.field("key").cast(pa.string()), "a"),
        pc.field("nowhere") == 1,
        pc.field("timestamp").cast(pa.int64()) > 5,
        pc.if_else(pc.field("key").is_valid(), pc.field("offset") > 1, pc.field("timestamp").is_null()),
    ):
        bounds = Filter(expression, schema).bounds("orders", [0, 1])
        assert bounds is not None
        assert (bounds.time, bounds.partitions, bounds.offsets, bounds.is_exact) == (TimeRange(), (0, 1), None, False)
