"""Replays: what is fixed at the first start, and what a second one makes of it. Spark only hands the tasks out (interop)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.sources.logs import TOPIC, LogBuilder
from tests.sources.test_property import NOON
from tidelog.client.client import Client
from tidelog.copying import replay
from tidelog.copying.column_rebuilding import TimeRule
from tidelog.copying.copier import copy_partition
from tidelog.copying.offset_map import OffsetMap, OffsetMapWriter
from tidelog.copying.replay import ReplayRequest, prepare, read_replay, remembered
from tidelog.errors import CorruptDataError, InvalidArgumentError, OffsetOutOfRangeError
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

LOW, HIGH = NOON + 55, NOON + 305


@pytest.fixture
def client(target: tidelog.Broker) -> Iterator[Client]:
    with tidelog.connect(target.bootstrap_servers) as connected:
        yield connected


def build(folder: Path, partitions: int = 2) -> list[LogBuilder]:
    """Records out of order, a late one at the very end, a transaction that is still open."""
    builders = [LogBuilder(folder, number, segment_bytes=1500) for number in range(partitions)]
    for builder in builders:
        for i in range(40):
            jitter = [0, 31, -17, 5][i % 4]
            builder.append([(NOON + 10 * i + jitter + n, b"k", b"%d-%d" % (i, n)) for n in range(4)])
        builder.append([(LOW, b"late", b"late")])
        builder.append([(LOW + 1, b"open", b"open")], producer_id=3)
        builder.append([(LOW + 2, b"behind", b"behind")])
        builder.close()
    return builders


def request(source: Path, target: tidelog.Broker, name: str, **asked: Any) -> ReplayRequest:
    return ReplayRequest(str(source), TOPIC, target.bootstrap_servers, name, **({"start_ms": LOW, "end_ms": HIGH} | asked))


def wanted(builder: LogBuilder, low: int = LOW, high: int = HIGH) -> list[tuple[int, Any, Any]]:
    stable = min(builder.open.values())
    return [(row.offset, row.timestamp, row.value) for row in builder.rows if low <= row.timestamp < high and row.offset < stable]


def got(client: Client, topic: str, partition: int) -> list[tuple[int, Any, Any]]:
    found = client.read(topic, partitions=[partition], isolation="read_committed")
    return [(row.offset, row.timestamp, row.value) for row in found]


def test_the_window_goes_over_with_its_map(target: tidelog.Broker, client: Client, tmp_path: Path) -> None:
    builders = build(tmp_path / "data")
    asked = request(tmp_path / "data", target, "window")
    begun, tasks = prepare(asked, tmp_path / "map")
    assert [task.source.partition for task in tasks] == [0, 1]
    for task in tasks:
        copy_partition(task)
    offsets = OffsetMap.open(tmp_path / "map")
    for builder in builders:
        expected, found = wanted(builder), got(client, "window", builder.partition)
        assert [row[1:] for row in found] == [row[1:] for row in expected]
        assert any(row[2] == b"late" for row in expected)
        by_offset = {row[0]: row[1:] for row in found}
        for row in expected:
            place = offsets.target_of(TOPIC, builder.partition, row[0])
            assert place.is_exact
            assert by_offset[place.offset] == row[1:]
    # Old records are not to go at once.
    assert client.partitions("window").keys() == {0, 1}

    again, left = prepare(asked, tmp_path / "map")
    assert (again, left) == (begun, [])


def test_a_kill_behind_the_last_commit_is_settled(
    target: tidelog.Broker, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left to be copied then, but the map does not know it yet."""
    (builder,) = build(tmp_path / "data", 1)
    asked = request(tmp_path / "data", target, "settled")
    _, (task,) = prepare(asked, tmp_path / "map")
    with monkeypatch.context() as patched:
        patched.setattr(OffsetMapWriter, "confirm", lambda writer: writer.close())
        copy_partition(task)
    last = wanted(builder)[-1]
    assert not OffsetMap.open(tmp_path / "map").target_of(TOPIC, 0, last[0]).is_exact

    _, (task,) = prepare(asked, tmp_path / "map")
    assert copy_partition(task).records == 0
    place = OffsetMap.open(tmp_path / "map").target_of(TOPIC, 0, last[0])
    assert place.is_exact
    assert (place.offset, *last[1:]) == got(client, "settled", 0)[-1]
    assert prepare(asked, tmp_path / "map")[1] == []


def test_what_comes_later_is_not_part_of_it(target: tidelog.Broker, client: Client, tmp_path: Path) -> None:
    """The end is fixed at the first start; the second one goes on where the target's transactions say."""
    (builder,) = build(tmp_path / "data", 1)
    asked = request(tmp_path / "data", target, "fixed")
    _, (task,) = prepare(asked, tmp_path / "map")
    first = copy_partition(replace(task, end_offset=80, splits=tuple(replace(s, end_offset=80) for s in task.splits)))
    assert first.next_offset == 80
    expected = wanted(builder)

    log = LogBuilder(tmp_path / "more")
    log.append([(LOW + 3, None, b"later")])
    log.close()
    stored, more = builder.logs()[-1], log.logs()[0].read_bytes()
    from tidelog.records.patch import set_base_offset_and_epoch

    batch = bytearray(more)
    set_base_offset_and_epoch(batch, builder.next_offset, 0)
    stored.write_bytes(stored.read_bytes() + batch)

    _, (task,) = prepare(asked, tmp_path / "map")
    assert copy_partition(task).resumed_offset == 80
    assert [row[1:] for row in got(client, "fixed", 0)] == [row[1:] for row in expected]


def test_moved_times_and_the_logs_own(target: tidelog.Broker, client: Client, tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "data")
    builder.append([(NOON + n, None, b"%d" % n) for n in (5, 2)], append_time=NOON + 100)
    builder.close()
    for name, rule, times in (
        ("by-producer", TimeRule.PRODUCER, [NOON + 65, NOON + 62]),
        ("by-log", TimeRule.LOG, [NOON + 160] * 2),
    ):
        asked = request(tmp_path / "data", target, name, shift_ms=60, time=rule)
        _, (task,) = prepare(asked, tmp_path / name)
        copy_partition(task)
        assert [row[1] for row in got(client, name, 0)] == times


def test_a_folder_is_one_replay(target: tidelog.Broker, tmp_path: Path) -> None:
    build(tmp_path / "data")
    asked = request(tmp_path / "data", target, "one")
    begun, _ = prepare(asked, tmp_path / "map")
    with pytest.raises(InvalidArgumentError, match="the folder has the offset map of a different replay") as raised:
        prepare(replace(asked, start_ms=LOW + 1), tmp_path / "map")
    assert "found orders [2013-" in str(raised.value)
    assert read_replay(tmp_path / "map") == begun
    # "-3d" is what it was.
    assert remembered(replace(asked, start_ms=5), tmp_path / "map", [True, False]) == asked
    assert remembered(replace(asked, start_ms=5), tmp_path / "other", [True, True]).start_ms == 5

    with (
        tidelog.Broker(data_dir=tmp_path / "another") as other,
        pytest.raises(InvalidArgumentError, match="different target cluster"),
    ):
        prepare(replace(asked, target=other.bootstrap_servers), tmp_path / "map")

    text = (tmp_path / "map" / "replay.json").read_text()
    (tmp_path / "map" / "replay.json").write_text("{}")
    with pytest.raises(CorruptDataError, match="the file of a replay has an unknown version: found none, expected 1"):
        prepare(asked, tmp_path / "map")
    (tmp_path / "map" / "replay.json").write_text(text.replace(f'"start_ms": {LOW}', '"start_ms": "noon"'))
    with pytest.raises(CorruptDataError, match="the file of a replay has unexpected content"):
        prepare(asked, tmp_path / "map")


def test_records_that_are_gone_are_an_error(target: tidelog.Broker, tmp_path: Path) -> None:
    """But for those that were copied before."""
    (builder,) = build(tmp_path / "data", 1)
    asked = request(tmp_path / "data", target, "gone")
    _, (task,) = prepare(asked, tmp_path / "map")
    copy_partition(replace(task, end_offset=60, splits=tuple(replace(s, end_offset=60) for s in task.splits)))
    checkpoint = tmp_path / "data" / "log-start-offset-checkpoint"
    checkpoint.write_text(f"0\n1\n{TOPIC} 0 60\n")
    _, (task,) = prepare(asked, tmp_path / "map")
    assert task.end_offset == min(builder.open.values())
    checkpoint.write_text(f"0\n1\n{TOPIC} 0 61\n")
    with pytest.raises(OffsetOutOfRangeError, match="the log of orders-0 starts at 61, but only offsets below 60 were copied"):
        prepare(asked, tmp_path / "map")


def test_of_two_that_begin_at_once_one_counts(
    target: tidelog.Broker, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a job each, both would copy everything."""
    (builder,) = build(tmp_path / "data", 1)
    asked = request(tmp_path / "data", target, "together")
    plan = replay.plan_copy
    others = []

    def while_planning(*args: Any, **rest: Any) -> Any:
        monkeypatch.setattr(replay, "plan_copy", plan)
        others.append(prepare(asked, tmp_path / "map"))
        return plan(*args, **rest)

    monkeypatch.setattr(replay, "plan_copy", while_planning)
    begun, tasks = prepare(asked, tmp_path / "map")
    ((first, first_tasks),) = others
    assert begun == first == read_replay(tmp_path / "map")
    for task in (*first_tasks, *tasks):
        copy_partition(task)
    assert [row[1:] for row in got(client, "together", 0)] == [row[1:] for row in wanted(builder)]


def test_a_brokers_own_folder_is_no_other_topic(tmp_path: Path) -> None:
    with tidelog.Broker(data_dir=tmp_path / "data", log_retention_ms=-1) as broker:
        address = broker.bootstrap_servers
        with tidelog.connect(address) as client:
            client.produce_many("orders", [tidelog.NewRecord(b"%d" % at, timestamp=NOON + at) for at in range(5)])
            asked = ReplayRequest(str(tmp_path / "data"), "orders", address, "orders")
            with pytest.raises(InvalidArgumentError, match="to the topic that it reads: found orders"):
                prepare(asked, tmp_path / "map")
            assert not (tmp_path / "map").exists()
            prepare(replace(asked, target_topic="again"), tmp_path / "again")
            shutil.copytree(tmp_path / "data", tmp_path / "backup")
            delete_topic(client, "orders")
            client.cluster.topic("orders", create=True)
            prepare(replace(asked, source=str(tmp_path / "backup")), tmp_path / "restored")


def delete_topic(client: Client, name: str) -> None:
    wish = DeleteTopicsRequest(topics=[], topic_names=[name], timeout_ms=10_000)
    answer = client.cluster.ask_any(wish, DeleteTopicsResponse, newest=5)
    assert [one.error_code for one in answer.responses] == [0]


def test_what_makes_no_sense(target: tidelog.Broker, client: Client, tmp_path: Path) -> None:
    build(tmp_path / "data")
    with pytest.raises(InvalidArgumentError, match="the target of a replay must be brokers"):
        ReplayRequest("a:1", TOPIC, "folder", TOPIC)
    with pytest.raises(InvalidArgumentError, match=r"the window ends at .* before its start"):
        ReplayRequest("a:1", TOPIC, "b:1", TOPIC, HIGH, LOW)
    client.cluster.topic("itself", create=True)
    address = target.bootstrap_servers
    with pytest.raises(InvalidArgumentError, match="to the topic that it reads"):
        prepare(ReplayRequest(address, "itself", address, "itself"), tmp_path / "map")
    client.cluster.topic("narrow", create=True)
    with pytest.raises(
        InvalidArgumentError, match="topic narrow of the target has too few partitions: found 1, expected at least 2"
    ):
        prepare(request(tmp_path / "data", target, "narrow"), tmp_path / "map")
