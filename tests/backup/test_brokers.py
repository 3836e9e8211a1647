"""Backups of a running Tidelog broker, and of its folder: what is read, what is reported, and what happens when brokers fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.cli.incomplete import LOST, take_away, whole_folder
from tidelog.backup.backup import open_backup
from tidelog.backup.compare import compare
from tidelog.backup.target import FolderTarget
from tidelog.capture.broker_capture import BrokerCapture
from tidelog.capture.capture import Capture, Selection
from tidelog.capture.figures import Figures
from tidelog.capture.following import follow
from tidelog.client.client import NewRecord
from tidelog.clock import ManualClock
from tidelog.errors import IllegalStateError, InvalidArgumentError, StorageError
from tidelog.model import OFFSETS_TOPIC, TopicPartition
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

NOON = 1_700_000_000_000
LONG_MS = 600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelog.Broker]:
    with tidelog.Broker(
        data_dir=tmp_path_factory.mktemp("broker") / "data",
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        log_retention_ms=-1,
    ) as running:
        yield running


@pytest.fixture
def source(broker: tidelog.Broker) -> Iterator[BrokerCapture]:
    opened = BrokerCapture(broker.bootstrap_servers, LONG_MS)
    yield opened
    opened.close()


def fill(broker: tidelog.Broker, topic: str, count: int, start: int = 0, partitions: int = 2) -> None:
    with tidelog.connect(broker.bootstrap_servers) as client:
        records = [NewRecord(b"%d" % i, b"k", NOON + i, partition=i % partitions) for i in range(start, start + count)]
        client.produce_many(topic, records, batch_bytes=500)


def delete_before(broker: tidelog.Broker, topic: str, offset: int) -> None:
    with tidelog.connect(broker.bootstrap_servers) as client:
        place = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[place])], timeout_ms=LONG_MS)
        client.cluster.ask_any(request, DeleteRecordsResponse, newest=2)


def rows(place: object, topic: str) -> list[tuple[int, int, bytes]]:
    found = tidelog.scan(place, topic, columns=["partition", "offset", "value"]).read_all().to_pylist()  # type: ignore[arg-type]
    return sorted((row["partition"], row["offset"], row["value"]) for row in found)


def test_points_have_what_the_broker_had(broker: tidelog.Broker, source: BrokerCapture, tmp_path: Path) -> None:
    """Also of a topic that is deleted and created again, of a setting, and of the folder without the broker."""
    broker.create_topic("orders", 2, **{"segment.bytes": 2000})
    fill(broker, "orders", 200)
    capture = Capture(source, FolderTarget(tmp_path / "b"), ManualClock(NOON), Selection(["ord*"]))
    first = capture.take()
    before = rows(broker.bootstrap_servers, "orders")
    fill(broker, "orders", 100, 200)
    second = capture.take()
    assert rows(f"backup:{tmp_path / 'b'}#{first.sequence}", "orders") == before
    assert rows(tmp_path / "b", "orders") == rows(broker.bootstrap_servers, "orders")
    assert [one.appended for one in compare(capture.backup, first, second)] == [50, 50]
    assert capture.backup.topics(second)["orders"].settings == {"segment.bytes": "2000"}
    broker.delete_topic("orders")
    broker.create_topic("orders", 1)
    fill(broker, "orders", 3, partitions=1)
    third = capture.take()
    assert rows(tmp_path / "b", "orders") == [(0, 0, b"0"), (0, 1, b"1"), (0, 2, b"2")]
    found = list(compare(capture.backup, second, third))
    assert found[0].what == "topic deleted and created again"
    assert rows(f"backup:{tmp_path / 'b'}#{second.sequence}", "orders")[:200] != []
    assert capture.backup.topics(third)["orders"].settings == {}
    assert (first.is_cut_consistent, second.gaps, third.incomplete) == (True, 0, ())
    run_ok("backup", "verify", tmp_path / "b")
    run_ok("verify", tmp_path / "b")
    # A second process adds a point: this one notices before it writes.
    Capture(source, FolderTarget(tmp_path / "b"), ManualClock(NOON), Selection(["ord*"])).take()
    with pytest.raises(IllegalStateError, match="another process"):
        capture.take()


def test_records_that_were_removed_before_they_were_read_are_a_gap(
    broker: tidelog.Broker, source: BrokerCapture, tmp_path: Path
) -> None:
    broker.create_topic("gone")
    fill(broker, "gone", 50, partitions=1)
    capture = Capture(source, FolderTarget(tmp_path / "b"), ManualClock(NOON), Selection(["gone"]))
    capture.take()
    fill(broker, "gone", 50, 50, partitions=1)
    delete_before(broker, "gone", 70)
    point = capture.take()
    assert point.gaps == 1
    (gap,) = capture.backup.partition(capture.backup.topics(point)["gone"], 0).gaps
    assert (gap.start_offset, gap.end_offset, gap.after_time) == (50, 70, NOON + 49)
    assert [offset for _, offset, _ in rows(tmp_path / "b", "gone")] == list(range(70, 100))
    assert run("backup", "verify", tmp_path / "b").stderr.count("offsets 50 to 70") == 1
    # Records that were read are in the older point, whatever the broker has removed since.
    assert len(rows(f"backup:{tmp_path / 'b'}#1", "gone")) == 50


def test_a_partition_that_fails_is_reported_and_stays_as_it_was(
    broker: tidelog.Broker, source: BrokerCapture, tmp_path: Path
) -> None:
    for topic in ("well", "ill"):
        broker.create_topic(topic)
        fill(broker, topic, 10, partitions=1)
    capture = Capture(source, FolderTarget(tmp_path / "b"), ManualClock(NOON), Selection(["well", "ill"]))
    capture.take()
    for topic in ("well", "ill"):
        fill(broker, topic, 10, 10, partitions=1)
    fault = broker.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", topic="ill", times=None)
    point = capture.take()
    fault.stop()
    assert len(point.incomplete) == 1
    assert point.incomplete[0].startswith("ill-0: ")
    assert not point.is_cut_consistent
    assert (len(rows(tmp_path / "b", "well")), len(rows(tmp_path / "b", "ill"))) == (20, 10)
    # A leader that moves is followed; a connection that breaks is made again.
    broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    broker.fail("ListOffsets", None, times=1)
    again = capture.take()
    assert (again.incomplete, again.is_cut_consistent) == ((), True)
    assert len(rows(tmp_path / "b", "ill")) == 20


def test_a_topic_that_is_deleted_meanwhile_fails_alone(broker: tidelog.Broker, source: BrokerCapture) -> None:
    """Whichever request finds that it is gone: the others' answers count, and nothing fails as a whole."""
    broker.create_topic("stays", 2)
    broker.create_topic("goes")
    listed = source.topics()
    keys = {TopicPartition(name, number): 0 for name in ("goes", "stays") for number in listed[name].partitions}
    broker.delete_topic("goes")
    for _ in range(2):  # With what was known of it, and without.
        found, failed = source.ends(keys)
        assert (sorted(found), list(failed)) == ([("stays", 0), ("stays", 1)], [("goes", 0)])
    assert sorted(source.epoch_ends(keys)) == [("stays", 0), ("stays", 1)]
    settings, without = source.settings(["goes", "stays"])
    assert (settings, len(without)) == ({"stays": {}}, 1)


def test_following(broker: tidelog.Broker, source: BrokerCapture, tmp_path: Path) -> None:
    """Points at their times; a target that fails costs a point, not the backup; the figures say so."""
    broker.create_topic("followed")
    fill(broker, "followed", 5, partitions=1)
    clock = ManualClock(NOON)
    target = FolderTarget(tmp_path / "b")
    capture = Capture(source, target, clock, Selection(["followed"]))
    waited: list[float] = []
    whole, failures = target.put, [StorageError("the disk is full")]

    def put(key: str, data: bytes) -> None:
        if key.startswith("points/") and failures:
            raise failures.pop()
        whole(key, data)

    target.put = put  # type: ignore[method-assign,assignment]

    def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(int(seconds * 1000))

    figures = tmp_path / "figures.prom"
    points = follow(capture, clock, 60_000, wait, Figures(figures))
    taken = [next(points), next(points), next(points)]
    assert [one.taken_ms - NOON for one in taken] == [60_000, 120_000, 180_000]
    assert waited == [60, 60, 60]
    values = dict(line.split() for line in figures.read_text().splitlines() if not line.startswith("#"))
    assert values["tidelog_backup_failures_total"] == "1"
    assert values["tidelog_backup_points_total"] == "3"
    assert values["tidelog_backup_point"] == "3"
    assert float(values["tidelog_backup_last_success_timestamp_seconds"]) == (NOON + 180_000) / 1000
    assert run("backup", "verify", tmp_path / "b").exit_code == 0


def test_groups_come_with_their_positions_at_any_time(tmp_path: Path) -> None:
    """Also at times between two points, and of a folder that is no backup."""
    clock = ManualClock(NOON)
    properties = {"offsets_topic_num_partitions": 1, "log_retention_ms": -1}
    target = tmp_path / "b"
    with tidelog.Broker(data_dir=tmp_path / "data", clock=clock, **properties) as broker:
        broker.create_topic("read")
        fill(broker, "read", 20, partitions=1)
        capture = Capture(BrokerCapture(broker.bootstrap_servers, LONG_MS), FolderTarget(target), clock, Selection(["read"]))
        with tidelog.connect(broker.bootstrap_servers) as client:
            for offset in (7, 8, 9):
                clock.advance(60_000)
                client.reset_group("readers", tidelog.client.ToOffset(offset), partitions=[("read", 0)])
                if offset != 8:
                    capture.take()
        capture.source.close()
        refused = run("groups", "list", broker.bootstrap_servers, "--at", NOON)
        assert "brokers report only the current offsets of groups" in refused.stderr

    def position(place: Path, *options: object) -> list[int]:
        described = run_ok("groups", "describe", place, "readers", *options, "--json").stdout
        lines = map(json.loads, described.splitlines())
        return [one["committed_offset"] for one in lines if one.get("topic") == "read"]

    assert OFFSETS_TOPIC in open_backup(target).catalog(open_backup(target).point())
    assert [position(target, "--point", point) for point in (1, 2)] == [[7], [9]]
    for place in (target, tmp_path / "data"):
        assert [position(place, "--at", NOON + at) for at in (60_000, 130_000, 180_000)] == [[7], [8], [9]]
    assert json.loads(run_ok("groups", "list", target, "--at", NOON + 1, "--json").stdout or "null") is None


def test_what_a_folder_lacks_is_in_the_point(tmp_path: Path) -> None:
    """What is there is backed up; what is not is no silent hole."""
    folder = whole_folder(tmp_path / "data")
    take_away(folder)
    ran = run("backup", folder, tmp_path / "b")
    assert ran.exit_code == 3
    point = open_backup(tmp_path / "b").point()
    for lost in LOST:
        assert f"missing from the source: {lost}" in ran.stderr
        assert any(lost in text for text in point.incomplete)
    assert not point.is_cut_consistent
    for topic in ("middle", "end", "only-log"):
        assert rows(tmp_path / "b", topic) == rows(folder, topic)


def test_commands(broker: tidelog.Broker, tmp_path: Path) -> None:
    broker.create_topic("shown")
    fill(broker, "shown", 30, partitions=1)
    target, source = tmp_path / "b", broker.bootstrap_servers
    assert "point 1, " in run_ok("backup", source, target, "--topics", "shown", "--no-groups").stdout
    fill(broker, "shown", 10, 30, partitions=1)
    figures = tmp_path / "f.prom"
    taken = run_ok("backup", source, target, "--topics", "shown", "--no-groups", "--json", "--metrics-file", figures)
    assert json.loads(taken.stdout)["sequence"] == 2
    assert "tidelog_backup_point 2" in figures.read_text()
    assert [json.loads(line)["sequence"] for line in run_ok("backup", "list", target, "--json").stdout.splitlines()] == [1, 2]
    assert "consistent" in run_ok("backup", "list", target).stdout
    shown = [json.loads(line) for line in run_ok("backup", "show", target, "--point", 1, "--json").stdout.splitlines()]
    assert [one["end_offset"] for one in shown if one["type"] == "partition" and one["topic"] == "shown"] == [30]
    assert "shown" in run_ok("backup", "show", target).stdout
    diff = [json.loads(line) for line in run_ok("backup", "diff", target, 1, "--json").stdout.splitlines()]
    assert [(one["topic"], one["appended"]) for one in diff] == [("shown", 10)]
    assert "records" in run_ok("backup", "diff", target, 1, 2).stdout
    assert json.loads(run_ok("backup", "verify", target, "--json").stdout)["is_sound"] is True
    dry = run_ok("backup", "expire", target, "--keep", "0s", "--grace", "0s", "--dry-run").stdout
    assert dry.startswith("would remove 1 point, ")
    assert json.loads(run_ok("backup", "expire", target, "--keep", "0s", "--json").stdout)["points"] == [1]
    assert run_ok("cat", target, "shown", "--count").stdout.split()[-1] == "40"
    run_ok("verify", target, "--point", 2)
    # Another kind of place, and places that are none.
    assert "no backup here" in run("backup", "list", tmp_path / "nothing").stderr
    assert "the target is neither empty nor a backup" in run("backup", source, tmp_path).stderr
    assert "did you mean verify?" in run("backup", "verfy", target).stderr
    assert run_ok("backup", "diff", target, 2, 2).stdout == "no difference\n"
    for wrong in (("expire", target, "--keep", "30"), (source, target, "--follow", "--every", "5")):
        assert "has no unit" in run("backup", *wrong).stderr
    assert "did you mean s3://bucket" in run("backup", source, "s3:/bucket").stderr
    for wrong in (["--topics", "shwn"], ["--topics", "shown,shwn"]):
        assert "did you mean" in run("backup", source, target, *wrong).stderr
    assert "no topic matches 'x*'" in run("backup", source, target, "--topics", "x*").stderr
    assert "no point 9" in run("cat", target, "shown", "--point", 9).stderr
    with pytest.raises(InvalidArgumentError, match="not of a point"):
        open_backup("backup:x")
