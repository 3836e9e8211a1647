"""Cuts: history and stream together are every committed record, once. What Spark is reported is read here without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.sources.logs import TOPIC, LogBuilder, expected
from tests.sources.test_property import NOON
from tidelog.client.client import Client
from tidelog.client.produce.batch_appender import BatchAppender
from tidelog.clock import ManualClock
from tidelog.errors import CorruptDataError, IncompleteLogWarning, InvalidArgumentError, NotFoundError, OffsetOutOfRangeError
from tidelog.model import TopicPartition
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.spark.bootstrap import Cut, take_cut
from tidelog.spark.jobs.bootstrap import cut_at
from tidelog.spark.options import parse_options
from tidelog.spark.stream.stream_options import parse_stream_options
from tidelog.spark.tasks import plan_tasks

CLOCK = ManualClock(NOON + 1_000_000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelog.Broker]:
    options: dict[str, Any] = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1, "num_partitions": 2}
    # Records of long ago would go at the broker's first look.
    options["log_retention_ms"] = -1
    with tidelog.Broker(data_dir=tmp_path_factory.mktemp("broker") / "data", **options) as running:
        yield running


@pytest.fixture
def client(broker: tidelog.Broker) -> Iterator[Client]:
    with tidelog.connect(broker.bootstrap_servers) as connected:
        yield connected


def history(cut: Cut) -> list[tuple[int, int, bytes | None]]:
    """(partition, offset, value) as the batch source reads them."""
    tasks = plan_tasks(parse_options(cut.history_options(), CLOCK), 1)
    batches = [batch for task in tasks for split in task for batch in split.read(["partition", "offset", "value"])]
    return sorted(row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))


def stream_starts(cut: Cut, **how: Any) -> dict[str, dict[str, int]]:
    """Where the stream begins, once its options were checked as a stream checks them."""
    options = cut.stream_options(**how)
    parse_stream_options(options)
    starts: dict[str, dict[str, int]] = json.loads(options["startingOffsets"])
    return starts


def batch(*records: tuple[int, str]) -> bytearray:
    return build_batch_v2([Record(i, time, 0, None, value.encode()) for i, (time, value) in enumerate(records)], base_offset=0)


def test_no_gap_and_no_repeat_around_open_transactions(broker: tidelog.Broker, client: Client, tmp_path: Path) -> None:
    """Records before `start`, late ones, transactions open at the cut that commit and abort after it."""
    topic = "live"
    client.cluster.topic(topic, create=True)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with (
        BatchAppender(client.cluster) as plain,
        BatchAppender(client.cluster, transactional_id="commits") as commits,
        BatchAppender(client.cluster, transactional_id="aborts") as aborts,
    ):
        for appender in (plain, commits, aborts):
            appender.init()
        plain.append(first, batch((NOON - 5, "old"), (NOON + 1, "a"), (NOON - 1, "late"), (NOON + 2, "b")))
        plain.append(second, batch((NOON - 9, "older")))
        plain.flush()
        commits.begin()
        commits.append(first, batch((NOON + 3, "decided")))
        commits.commit()
        commits.begin()
        commits.append(first, batch((NOON + 4, "open, commits")))
        commits.flush()
        plain.append(first, batch((NOON + 5, "after an open one")))
        plain.flush()
        aborts.begin()
        aborts.append(second, batch((NOON + 6, "open, aborts")))
        aborts.flush()

        cut = take_cut(broker.bootstrap_servers, [topic], NOON, clock=CLOCK)
        before = history(cut)
        assert [row[2] for row in before] == [b"a", b"b", b"decided"]
        assert cut.starts == {first: 1, second: 1}

        commits.commit()
        aborts.abort()
        plain.append(second, batch((NOON - 2, "late, after the cut"), (NOON + 7, "new")))
        plain.flush()
    assert history(cut) == before
    cut.save(tmp_path / "cut")
    assert Cut.load(tmp_path / "cut") == cut
    starts = stream_starts(cut)[topic]
    behind = [
        (row.partition, row.offset, row.value)
        for row in client.read(topic, isolation="read_committed")
        if row.offset >= starts[str(row.partition)]
    ]
    assert [row[2] for row in behind] == [b"open, commits", b"after an open one", b"late, after the cut", b"new"]
    everything = client.read(topic, isolation="read_committed")
    wanted = [(row.partition, row.offset, row.value) for row in everything]
    since = {value for _, _, value in before + behind}
    assert sorted(before + behind) == [row for row in wanted if row[2] in since]
    assert {row[2] for row in wanted} - since == {b"old", b"older", b"late"}
    assert cut.stream_options(since_start=True)["startTime"] == str(NOON)
    assert "startTime" not in cut.stream_options()


def test_partitions_that_are_new_and_topics_that_are_others(broker: tidelog.Broker, client: Client) -> None:
    from tidelog.copying.target_topics import TopicShape, ensure_topics

    ensure_topics(client.cluster, {"grows": TopicShape(1)})
    cut = take_cut(broker.bootstrap_servers, "grows", clock=CLOCK)
    assert stream_starts(cut) == {"grows": {"0": 0}}
    ensure_topics(client.cluster, {"grows": TopicShape(3)})
    assert stream_starts(cut) == {"grows": {"0": 0, "1": -2, "2": -2}}
    other = Cut(cut.source, None, 0, cut.starts, cut.cuts, {"grows": "11111111-0000-0000-0000-000000000000"})
    with pytest.raises(InvalidArgumentError, match="topic grows has been deleted and recreated since the cut"):
        other.stream_options()


def test_a_folders_cut(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "data", segment_bytes=400)
    for i in range(20):
        builder.append([(NOON + 10 * i + n, None, b"%d" % (10 * i + n)) for n in (0, 7, -30)])
    builder.append([(NOON + 300, None, b"open")], producer_id=4)
    builder.append([(NOON + 301, None, b"behind")])
    builder.close(high_watermark=builder.next_offset - 1)
    cut = take_cut(tmp_path / "data", [TOPIC], NOON + 95, clock=CLOCK)
    key = TopicPartition(TOPIC, 0)
    assert cut.cuts == {key: 60}
    wanted = expected(builder, NOON + 95, None, committed=True)
    assert cut.starts == {key: wanted[0].offset}
    assert history(cut) == [(0, row.offset, row.value) for row in wanted]
    assert stream_starts(cut) == {TOPIC: {"0": 60}}

    # Records that retention takes before they were read are missed.
    (tmp_path / "data" / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {wanted[0].offset + 1}\n")
    with pytest.raises(OffsetOutOfRangeError, match="startingOffsets: offset"):
        history(cut)

    with pytest.warns(IncompleteLogWarning, match="are in the files but are not read"):
        nothing = take_cut(tmp_path / "data", [TOPIC], NOON + 10_000, clock=CLOCK)
    assert history(nothing) == []


def test_a_cut_that_is_there_is_used(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "data")
    builder.append([(NOON, None, b"1")])
    builder.close()
    path = tmp_path / "cut.json"
    cut, is_new = cut_at(str(tmp_path / "data"), [TOPIC], "-3d", path, clock=CLOCK)
    assert is_new
    assert cut.start_ms == CLOCK.now_ms() - 3 * 86_400_000
    assert cut_at(str(tmp_path / "data"), [TOPIC], "-1d", path, clock=CLOCK) == (cut, False)
    with pytest.raises(InvalidArgumentError, match="the file has a different cut"):
        cut_at(str(tmp_path / "data"), ["another"], "-3d", path, clock=CLOCK)
    with pytest.raises(NotFoundError, match="no such cut"):
        Cut.load(tmp_path / "none")
    for text in ("", "{}", '{"version": 2}', path.read_text().replace('"0": 1', '"0": -1')):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(CorruptDataError):
            Cut.load(tmp_path / "bad")


def test_of_two_cuts_at_once_the_first_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one's history ends elsewhere than the stream of the file begins."""
    builder = LogBuilder(tmp_path / "data")
    builder.append([(NOON, None, b"1")])
    builder.close()
    data, path = str(tmp_path / "data"), tmp_path / "cut.json"
    first = take_cut(data, [TOPIC], "-3d", clock=CLOCK)

    def slowly(*args: Any, **rest: Any) -> Cut:
        first.save(path)
        return take_cut(data, [TOPIC], "-1d", clock=CLOCK)

    monkeypatch.setattr("tidelog.spark.jobs.bootstrap.take_cut", slowly)
    assert cut_at(data, [TOPIC], "-1d", path, clock=CLOCK) == (first, False)
    assert Cut.load(path) == first


def test_options_that_the_cut_sets_are_refused() -> None:
    cut = Cut("folder", None, 0, {}, {})
    for name in ("startingOffsets", "endingTimestamp", "subscribe", "path", "startTime", "isolationLevel"):
        with pytest.raises(InvalidArgumentError, match=f"option {name} is set by the cut"):
            cut.history(None, **{name: "1"})  # type: ignore[arg-type]
