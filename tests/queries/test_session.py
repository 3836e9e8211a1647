"""Sessions and `tidelog.sql`: tables, what is refused, errors, decoded values, brokers."""

from __future__ import annotations

import gc
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest

import tidelog
from tests.queries.logs import TOPICS, write_topics
from tests.sources.logs import LogBuilder
from tidelog.clock import ManualClock
from tidelog.errors import (
    CorruptDataError,
    DataDirNotFoundError,
    InvalidArgumentError,
    UnknownTopicOrPartitionError,
)
from tidelog.metadata.frame import encode_record
from tidelog.metadata.records import TopicRecord
from tidelog.model import METADATA_TOPIC, OFFSETS_TOPIC
from tidelog.queries.explained import explained
from tidelog.queries.results import Results
from tidelog.queries.session import Session
from tidelog.queries.statements import is_complete, replaced
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import encode_versioned

NOON = 1_373_457_600_000


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    write_topics(folder, 1)
    return folder


@pytest.fixture
def session(data_dir: Path) -> Iterator[Session]:
    with Session(data_dir) as opened:
        yield opened


def rows(session: Session, text: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    with Results(session) as results:
        for statement in session.statements(text):
            result = results.execute(statement)
            found = [] if result is None else [tuple(row.values()) for batch in result.batches for row in batch.to_pylist()]
    return found


def count(folder: Path, topic: str) -> int:
    return int(tidelog.scan(folder, topic, columns=["offset"]).read_all().num_rows)


def test_a_relation_keeps_what_it_needs_and_reads_again(data_dir: Path) -> None:
    relation = tidelog.sql('SELECT count(*) FROM "pay.ments-1" WHERE "partition" = $p', data_dir, {"p": 1})
    assert relation.fetchall()[0][0] > 10
    relation = tidelog.sql("SELECT key FROM orders", data_dir)
    gc.collect()
    assert len(relation.fetchall()) == count(data_dir, "orders")
    assert relation.aggregate("count(*)").fetchall() == [(count(data_dir, "orders"),)]


def test_the_tables(session: Session, data_dir: Path) -> None:
    assert rows(session, "FROM topics ORDER BY topic") == [("orders", 3, False), ("pay.ments-1", 2, False)]
    of_orders = rows(
        session, "SELECT sum(log_end_offset - log_start_offset), count(*) FROM tidelog.partitions WHERE topic = 'orders'"
    )
    assert of_orders == [(count(data_dir, "orders"), 3)]
    files = sorted(data_dir.glob("orders-1/*.log"))
    assert rows(session, "SELECT path, bytes FROM segments WHERE topic = 'orders' AND partition = 1 ORDER BY base_offset") == [
        (str(path), path.stat().st_size) for path in files
    ]
    assert rows(session, "SELECT count(*) FROM records") == [(sum(count(data_dir, topic) for topic in TOPICS),)]
    assert rows(session, "SELECT count(*) FROM topic('orders')") == [(count(data_dir, "orders"),)]
    assert {("orders",), ("pay.ments-1",)} <= set(rows(session, "SELECT table_name FROM information_schema.tables"))
    (described,) = {tuple(name for name, *_ in rows(session, f"DESCRIBE {table}")) for table in ("orders", "tidelog.records")}
    assert described == ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def test_show_tables_lists_what_a_query_can_name(session: Session) -> None:
    shown = [name for (name,) in rows(session, "CREATE TABLE mine AS SELECT 1; CREATE TEMP VIEW our AS FROM mine; show  TABLES;")]
    assert shown == [
        "mine", "orders", "our", "pay.ments-1", "raw.orders", "raw.pay.ments-1", "tidelog.partitions", "tidelog.raw_records",
        "tidelog.records", "tidelog.segments", "tidelog.topics",
    ]  # fmt: skip


def test_internal_topics_are_json(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, topic=OFFSETS_TOPIC)
    key = encode_versioned(OffsetCommitKey("readers", "flights", 2), 1)
    builder.append([(NOON, key, encode_versioned(OffsetCommitValue(348, -1, "", 9), 3)), (NOON, key, b"?")])
    builder.close()
    builder = LogBuilder(tmp_path, topic=METADATA_TOPIC)
    builder.append([(NOON, None, encode_record(TopicRecord("flights", UUID(int=7)), 0))])
    builder.close()
    query = f"SELECT key->>'$.data.topic', value->>'$.data.offset', value_undecoded FROM {OFFSETS_TOPIC}"
    for decode in (None, "orders=json"):
        found = tidelog.sql(query, tmp_path, decode=decode).fetchall()
        assert found == [("flights", "348", None), ("flights", None, b"?")]
    assert tidelog.sql(f"SELECT key FROM raw.{OFFSETS_TOPIC} LIMIT 1", tmp_path).fetchall() == [(key,)]
    assert tidelog.sql(f"SELECT value->>'$.data.name' FROM {METADATA_TOPIC}", tmp_path).fetchall() == [("flights",)]
    assert tidelog.sql(f"SELECT value FROM {OFFSETS_TOPIC} OFFSET 1", tmp_path, decode="raw").fetchall() == [("?",)]


def test_texts_and_bytes(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.append([(NOON, b"k\xff", b"\x00a"), (NOON, None, b"")], headers=(("h", b"1"), ("h", b"2"), ("bad", b"\xff")))
    builder.close()
    with Session(tmp_path) as session:
        found = rows(session, "SELECT key, value, headers['h'], headers['bad'], cardinality(headers) FROM orders")
        assert found == [("k\\xFF", "\x00a", "2", None, 2), (None, "", "2", None, 2)]
        assert rows(session, "SELECT key, value, len(headers) FROM raw.orders") == [(b"k\xff", b"\x00a", 3), (None, b"", 3)]


def test_what_is_not_utf_8_is_shown_as_duckdb_shows_it(tmp_path: Path) -> None:
    values = [bytes(range(256)), "ä\xf6".encode() + b"\xc3", b"\xed\xa0\x80", "\U0010ffff".encode(), b"\xf4\x90\x80\x80"]
    builder = LogBuilder(tmp_path)
    builder.append([(NOON, None, value) for value in values])
    builder.close()
    with Session(tmp_path) as session:
        shown = rows(session, "SELECT coalesce(TRY(decode(value)), value::VARCHAR) FROM raw.orders")
        assert rows(session, "SELECT value FROM orders") == shown


def test_topics_that_differ_only_in_case_are_not_mistaken(tmp_path: Path) -> None:
    for topic, value in (("Orders", b"upper"), ("orders", b"lower")):
        builder = LogBuilder(tmp_path, topic=topic)
        builder.append([(NOON, None, value)])
        builder.close()
    with Session(tmp_path) as session:
        with pytest.raises(InvalidArgumentError, match=r"differ only in case: Orders, orders: expected from topic\('Orders'\)"):
            rows(session, "SELECT value FROM orders")
        assert rows(session, "SELECT value FROM topic('Orders')") == [("upper",)]


def test_topics_come_and_go(tmp_path: Path) -> None:
    write_topics(tmp_path, 1)
    with Session(tmp_path) as session:
        rows(session, "SELECT count(*) FROM orders")
        builder = LogBuilder(tmp_path, topic="new")
        builder.append([(NOON, None, b"x")])
        builder.close()
        assert rows(session, "SELECT count(*) FROM new") == [(1,)]
        for partition in tmp_path.glob("orders-*"):
            shutil.rmtree(partition)
        with pytest.raises(UnknownTopicOrPartitionError, match="no topic or table orders"):
            rows(session, "SELECT count(*) FROM orders")


REFUSED = (
    "COPY (SELECT 1) TO 'out.csv'",
    "COPY orders TO 'out.parquet'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'out.csv'",
    "EXPLAIN /* x */ (ANALYZE, FORMAT json) COPY (SELECT 1) TO 'out.csv'",
    "EXPORT DATABASE 'out'",
    "ATTACH 'out.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PREPARE p AS COPY (SELECT 1) TO 'out.csv'",
    "CALL enable_logging(storage = 'file', storage_path = 'out')",
    "FROM enable_logging(storage = 'file', storage_path = 'out')",
    "FROM enable_profiling('json', 'out')",
    "PRAGMA profiling_output = 'out'",
    "SET profiling_output = 'out'",
    "SET log_query_path = 'out'",
    "SET temp_directory = 'out'",
    "SET autoinstall_known_extensions = true",
    "CREATE PERSISTENT SECRET s (TYPE http, BEARER_TOKEN 'x')",
    "INSERT INTO orders VALUES (1)",
    "CHECKPOINT",
)


@pytest.mark.parametrize("text", REFUSED)
def test_what_could_write_is_refused(session: Session, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidArgumentError):
        rows(session, f"{text}; SELECT 1")
    assert list(tmp_path.iterdir()) == []


def test_own_files_views_tables_and_variables(session: Session, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("key,name\na,Ada\n")
    joined = f"SELECT DISTINCT name FROM orders JOIN '{tmp_path / 'names.csv'}' USING (key)"
    assert rows(session, joined) == [("Ada",)]
    made = "CREATE VIEW v AS SELECT key FROM orders; CREATE TABLE t AS FROM v; CREATE MACRO twice(x) AS 2 * x; SET VARIABLE x = 3"
    assert rows(session, f"{made}; SELECT twice(getvariable('x')), (SELECT count(*) FROM t) - (SELECT count(*) FROM v)") == [
        (6, 0)
    ]
    with pytest.raises(InvalidArgumentError, match="httpfs"):
        rows(session, "FROM read_csv('https://localhost/x.csv')")


@pytest.mark.parametrize(
    ("query", "error", "text"),
    [
        ("SELECT * FROM ordrs", UnknownTopicOrPartitionError, r"no topic or table ordrs \(did you mean orders\?\)"),
        ("SELECT * FROM pay_ments", UnknownTopicOrPartitionError, r"did you mean pay.ments-1\?"),
        ("SELECT valu FROM orders", InvalidArgumentError, r'Referenced column "valu" not found .*value'),
        ("SELEC 1", InvalidArgumentError, "syntax error"),
        ("SELECT moment('yesterdy')", InvalidArgumentError, "not a time"),
        ("SELECT moment(key) FROM orders", InvalidArgumentError, "moment expects one text in quotes"),
        ("SELECT 1; SELECT 2", InvalidArgumentError, "one statement"),
        ("CREATE VIEW x AS SELECT 1", InvalidArgumentError, "no result"),
    ],
)
def test_errors_are_one_line(data_dir: Path, query: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        tidelog.sql(query, data_dir)
    assert "\n" not in str(raised.value)


def test_a_time_as_people_write_it_needs_moment(session: Session) -> None:
    with pytest.raises(InvalidArgumentError, match=r"; for such a time, write moment\('last monday'\)$"):
        rows(session, "FROM orders WHERE timestamp > 'last monday'")
    with pytest.raises(InvalidArgumentError, match=r"expected format is [^;]*$"):
        rows(session, "FROM orders WHERE timestamp > '10/07/2013'")


def test_other_errors(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(DataDirNotFoundError):
        tidelog.sql("SELECT 1", tmp_path / "nowhere")
    with pytest.raises(InvalidArgumentError, match="no such time zone"):
        tidelog.sql("SELECT 1", data_dir, tz="Europe/Berln")


def test_damage_is_the_error_that_a_scan_raises(tmp_path: Path) -> None:
    write_topics(tmp_path, 1)
    file = sorted(tmp_path.glob("orders-0/*.log"))[1]
    file.write_bytes(file.read_bytes()[:60] + b"\xff" * 20 + file.read_bytes()[80:])
    with Session(tmp_path) as session, pytest.raises(CorruptDataError):
        rows(session, "SELECT max(value) FROM orders")
    with pytest.raises(duckdb.Error, match=file.name):
        tidelog.sql("SELECT max(value) FROM orders", tmp_path).fetchall()
    with Session(tmp_path, skip_damaged=True) as session:
        assert rows(session, "SELECT count(*) > 10 FROM orders") == [(True,)]
        assert session.report.left_out and not session.report.is_complete


def test_missing_records_are_reported_where_they_could_matter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_topics(tmp_path, 1)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\norders 0 1\norders 3 17\n")
    with Session(tmp_path) as session, caplog.at_level(logging.WARNING, "tidelog"):
        for where, is_complete_ in (("partition = 3", False), ("partition < 3", True), ("TRUE", False), ("partition = 2", True)):
            caplog.clear()
            rows(session, f"SELECT count(*) FROM orders WHERE {where}")
            assert session.report.is_complete == is_complete_, where
            assert ("orders-3" in caplog.text) != is_complete_, where
        rows(session, "SELECT key FROM orders LIMIT 1")
        assert not session.report.is_complete


def test_offset_is_a_column_and_a_clause() -> None:
    def never(text: str) -> int:
        raise AssertionError(text)

    for text, wanted in (
        ("select offset from t where offset > 5 limit 3 offset 2", 'select "offset" from t where "offset" > 5 limit 3 offset 2'),
        (
            "select max(offset), t.offset::int, 'offset', \"offset\" -- offset",
            'select max("offset"), t."offset"::int, \'offset\', "offset" -- offset',
        ),
        ("limit 1 offset $1", "limit 1 offset $1"),
        ("select 'é' x, OFFSET order by offset", 'select \'é\' x, "OFFSET" order by "offset"'),
        ("select offset_of, an_offset", "select offset_of, an_offset"),
    ):
        assert replaced(text, never) == wanted


def test_moments_are_in_the_zone_and_relative_to_the_clock(data_dir: Path) -> None:
    clock = ManualClock(NOON)
    query = (
        "SELECT epoch_ms(moment('today')), epoch_ms(moment('-1h')), epoch_ms(moment('9:00 UTC')), moment('9223372036854775807')"
    )
    (found,) = tidelog.sql(
        query.replace(", moment('9223372036854775807')", ""), data_dir, tz="Europe/Berlin", clock=clock
    ).fetchall()
    assert found == (NOON - 14 * 3_600_000, NOON - 3_600_000, NOON - 3 * 3_600_000)
    assert tidelog.sql("SELECT moment('9223372036854775807') = 'infinity'::TIMESTAMPTZ", data_dir).fetchall() == [(True,)]


def test_when_a_statement_is_complete() -> None:
    assert is_complete("select 1;") and is_complete("select ';' ;  ")
    assert not is_complete("select 1") and not is_complete("select ';") and not is_complete("select 1 -- ;")


def test_decoded_values_are_columns(tmp_path: Path) -> None:
    pytest.importorskip("orjson")
    builder = LogBuilder(tmp_path)
    values = [json.dumps({"customer": f"c{n % 3}", "amount": n, "lines": [{"sku": "x"}]}).encode() for n in range(30)]
    builder.append([(NOON + n, b"k", value) for n, value in enumerate([*values, b"no json", None])])
    builder.close()
    with Session(tmp_path, decode="json") as session:
        assert rows(
            session,
            "SELECT value.customer, sum(value.amount)::INT FROM orders WHERE value.customer <> 'c1' GROUP BY 1 ORDER BY 1",
        ) == [
            ("c0", 135),
            ("c2", 155),
        ]
        assert rows(session, "SELECT value_undecoded FROM orders WHERE value_undecoded IS NOT NULL") == [(b"no json",)]
        assert rows(session, "SELECT value FROM raw.orders WHERE value = 'no json'::BLOB") == [(b"no json",)]
        assert session.report.undecoded == 0
        rows(session, "SELECT max(value) FROM orders")
        assert session.report.undecoded == 1


def test_over_brokers() -> None:
    with tidelog.Broker() as broker:
        broker.create_topic("orders", 2)
        for partition in range(2):
            broker.produce("orders", [b"a", b"b"], partition=partition, timestamp_ms=NOON + partition)
        with Session(broker.bootstrap_servers) as session:
            where = "WHERE timestamp >= moment('2013-07-10T12:00:00.001Z')"
            assert rows(session, f"SELECT value, partition FROM orders {where} ORDER BY 1") == [("a", 1), ("b", 1)]
            joined = "SELECT count(*) FROM orders a JOIN orders b USING (value) JOIN partitions p ON p.partition = a.partition"
            assert rows(session, joined) == [(8,)]
            with pytest.raises(InvalidArgumentError, match="needs a folder"):
                rows(session, "FROM segments")


def test_explain_says_what_is_read_and_why(session: Session) -> None:
    text = "\n".join(
        line
        for (line,) in rows(session, "EXPLAIN SELECT count(*) FROM orders WHERE timestamp < '2013-07-10 12:30' AND partition = 1")
    )
    assert "reads orders: topic" in text and "partitions: 1" in text
    assert "timestamps: [..., 2013-07-10T12:30:00.000Z)" in text and "late records may be anywhere" in text
    assert session.report.records == 0
    text = "\n".join(line for (line,) in rows(session, "EXPLAIN ANALYZE SELECT max(key) FROM orders WHERE offset % 2 = 1"))
    assert "reads orders: offset, key" in text and "timestamps: all" in text
    assert f"{session.report.records:,} records" in text and session.report.records > 20


def test_every_use_of_brokers_has_the_client_configuration(data_dir: Path) -> None:
    with tidelog.Broker(users={"alice": "secret"}) as broker:
        broker.produce("orders", [b"1", b"2"])
        config = broker.client_config("tidelog")
        address = str(config.pop("bootstrap.servers", broker.bootstrap_servers))
        assert tidelog.sql("SELECT count(*) FROM orders", address, config=config).fetchall() == [(2,)]
        with Session(address, config=config) as session:
            (statement,) = session.statements("EXPLAIN SELECT value FROM orders")
            assert "reads orders: value" in explained(session, statement)
    with pytest.raises(InvalidArgumentError, match="config applies only to brokers and object storage: found a data folder"):
        tidelog.sql("SELECT 1", data_dir, config=config)
