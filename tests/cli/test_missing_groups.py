"""Groups, retention and Spark's jobs on a folder that lacks something: they answer, say what is missing, and end with 3."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.broker.conftest import RunningBroker
from tests.cli.conftest import KAFKA_3, Ran, run, run_ok
from tidelog import NewRecord
from tidelog.cli.printing.missing import end_with_missing
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.clock import ManualClock
from tidelog.groups.offsets_topic import partition_of
from tidelog.model import OFFSETS_TOPIC, TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.spark.jobs.lookups import _missing
from tidelog.spark.jobs.result import logged_missing

NOW = 1_373_414_400_000  # 2013-07-10
PARTITIONS = 3
GROUP, OTHER = "early", "late"
COMMITS = "note: records are missing from "


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a topic of several segments, and two groups in different partitions of ``__consumer_offsets``."""
    folder = tmp_path_factory.mktemp("groups") / "data"
    running = RunningBroker(folder, ManualClock(NOW), offsets_topic_num_partitions=PARTITIONS)
    running.create_topic("orders", 2, segment_bytes=4096)
    with tidelog.connect(running.bootstrap_servers, clock=running.clock) as client:
        for at in range(40):
            for partition in (0, 1):
                client.produce_many("orders", [NewRecord(b"v" * 500, timestamp=NOW - 40 + at, partition=partition)])
        for group, offset in ((GROUP, 5), (OTHER, 39)):
            places = {TopicPartition("orders", 0): offset, TopicPartition("orders", 1): 40}
            commit_offsets(client.cluster, group, places)
    running.stop()
    assert partition_of(GROUP, PARTITIONS) != partition_of(OTHER, PARTITIONS)
    yield folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "data"))


def groups(*args: object) -> Ran:
    return run("groups", *args, clock=ManualClock(NOW))


def cut_out(folder: Path, partition: int = 0) -> tuple[int, int]:
    """Remove a segment in the middle; return its offsets."""
    logs = sorted((folder / f"orders-{partition}").glob("*.log"))
    gone, behind = int(logs[2].stem), int(logs[3].stem)
    for path in (folder / f"orders-{partition}").glob(f"{logs[2].stem}.*"):
        path.unlink()
    return gone, behind


def missing(ran: Ran) -> list[tuple[str, int, int, int]]:
    """Return what the JSON lines say; the exit code and the notes must agree with it."""
    found = [line for line in ran.json_lines if line.get("type") == "missing"]
    assert ran.exit_code == (3 if found else 0)
    for one in found:
        place = f"note: {one['topic']}-{one['partition']}: offsets [{one['first_offset']}, {one['end_offset']})"
        assert sum(note.startswith(place) for note in ran.notes) == 1
    return [(one["topic"], one["partition"], one["first_offset"], one["end_offset"]) for one in found]


def test_a_whole_folder(folder: Path) -> None:
    for ran in (
        groups("list", folder, "--json"),
        groups("describe", folder, GROUP, "--json"),
        groups("lag", folder, "--json"),
        run("retention", folder, "--json"),
    ):
        assert missing(ran) == []
        assert not any(note.startswith(COMMITS) for note in ran.notes)


def test_a_hole_before_or_behind_a_groups_position(folder: Path) -> None:
    gap = ("orders", 0, *cut_out(folder))
    assert missing(groups("describe", folder, GROUP, "--json")) == [gap]
    assert missing(groups("describe", folder, OTHER, "--json")) == []  # It has read what was there.
    assert missing(groups("describe", folder, GROUP, "--topic", "orders:1", "--json")) == []
    assert missing(groups("lag", folder, "--json")) == [gap]
    assert missing(groups("lag", folder, "--group", OTHER, "--json")) == []
    assert missing(groups("list", folder, "--json")) == []
    assert groups("lag", folder, "--max-lag", "1ms").exit_code == 1  # An alarm goes before.


def test_a_partition_that_a_group_reads(folder: Path) -> None:
    shutil.rmtree(folder / "orders-1")
    assert [one[:2] for one in missing(groups("describe", folder, GROUP, "--json"))] == [("orders", 1)]
    assert [one[:2] for one in missing(groups("lag", folder, "--json"))] == [("orders", 1)]


@pytest.mark.parametrize("is_whole_partition", [False, True])
def test_commits_are_missing(is_whole_partition: bool, folder: Path) -> None:
    number = partition_of(GROUP, PARTITIONS)
    place = folder / f"{OFFSETS_TOPIC}-{number}"
    if is_whole_partition:
        shutil.rmtree(place)
    else:
        (place / "00000000000000000000.log").unlink()
        (place / "00000000000000000000.index").write_bytes(b"")
    said = f"{COMMITS}{OFFSETS_TOPIC}-{number}: "
    for ran in (groups("list", folder, "--json"), groups("lag", folder, "--json")):
        assert [one[:2] for one in missing(ran)] == [(OFFSETS_TOPIC, number)]
        assert any(note.startswith(said) for note in ran.notes)
        assert [line["group"] for line in ran.json_lines if "group" in line] == [OTHER]
    for ran in (groups("describe", folder, GROUP), groups("lag", folder, "--group", GROUP)):
        assert ran.exit_code == 1 and "there is no group" in ran.error
        assert any(note.startswith(said) for note in ran.notes)
    assert missing(groups("describe", folder, OTHER, "--json")) == []


def test_retention(folder: Path) -> None:
    gap = ("orders", 0, *cut_out(folder))
    shutil.rmtree(folder / "orders-1")
    ran = run("retention", folder, "orders", "--json")
    assert missing(ran)[1:] == [gap]
    assert missing(ran)[0][:2] == ("orders", 1)
    assert missing(run("retention", folder, "orders", "-p", 0, "--json")) == [gap]
    assert run("retention", folder, "orders").exit_code == 3


def test_jobs(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What they call; a job from end to end is tested in tests/spark."""
    gone, behind = cut_out(folder)
    log_dir = LogDir(folder)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        found = logged_missing(log_dir.missing("orders"))
    assert [(one.first_offset, one.end_offset) for one in found] == [(gone, behind)]
    assert caplog.messages == [f"records are missing from the folder: {found[0]}"]
    assert log_dir.missing("orders", [1]) == []
    assert not list(_missing(folder, {("orders", 0): gone}))
    assert list(_missing(folder, {("orders", 0): None, ("orders", 1): None})) == list(found)
    end_with_missing(())


def test_kafkas_own_folder_is_whole() -> None:
    run_ok("groups", "list", KAFKA_3)
    run_ok("retention", KAFKA_3)
