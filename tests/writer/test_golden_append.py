"""What Apache Kafka 3.9.1 wrote, appended again batch by batch: every file must come out byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.log.partition_metadata import read_topic_id
from tidelog.log.partition_writer import PartitionWriter
from tidelog.log.producer_snapshot import read_snapshot
from tidelog.records.batch import iter_headers

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-3.9.1" / "log"
GOLDEN_CONFIG = LogConfig.from_properties({"segment.bytes": 16384, "index.interval.bytes": 512, "segment.index.bytes": 1200})
# Kafka's own topics have settings of their own.
INTERNAL_CONFIG = LogConfig.from_properties({"segment.bytes": 100 << 20})


def partitions() -> list[str]:
    return sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


def kafkas_files(folder: Path) -> dict[str, Path]:
    """Files by the names that they were written under: DeleteRecords has renamed some to `.deleted`."""
    return {path.name.removesuffix(".deleted"): path for path in folder.iterdir()}


def append_again(files: dict[str, Path], target: Path, config: LogConfig, *, close: bool = True) -> PartitionWriter:
    topic_id = read_topic_id(files["partition.metadata"])
    assert topic_id is not None
    logs = sorted(name for name in files if name.endswith(".log"))
    writer = PartitionWriter(target, config, ManualClock(0), topic_id=topic_id, start_offset=int(logs[0][:20]))
    for name in logs:
        log = memoryview(files[name].read_bytes())
        for header in iter_headers(log):
            writer.append_as_follower(log[header.position : header.end_position])
    if close:
        writer.close()
    return writer


@pytest.mark.parametrize("name", [name for name in partitions() if name != "compacted-0"])
def test_same_bytes_as_kafka(name: str, tmp_path: Path) -> None:
    kafkas = kafkas_files(GOLDEN / name)
    append_again(kafkas, tmp_path, INTERNAL_CONFIG if name.startswith("__") else GOLDEN_CONFIG)
    if name == "deleted-prefix-0":
        # DeleteRecords has moved the epoch's start to the new log start.
        (tmp_path / "leader-epoch-checkpoint").write_bytes(kafkas["leader-epoch-checkpoint"].read_bytes())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kafkas)
    for file, path in sorted(kafkas.items()):
        if file.endswith(".snapshot"):
            # The order of entries is that of Java's hash map.
            assert sorted(read_snapshot(tmp_path / file)) == sorted(read_snapshot(path)), file
            assert (tmp_path / file).stat().st_size == path.stat().st_size, file
        else:
            assert (tmp_path / file).read_bytes() == path.read_bytes(), file


@pytest.mark.parametrize(("first", "last"), [(1, 132), (353, 494), (742, 776), (815, 900)])
def test_same_rolls_by_time_as_kafka(first: int, last: int, tmp_path: Path) -> None:
    # Before the cleaner came, this topic rolled by segment.ms = 1000 of event time. The runs of segments that nobody has
    # cleaned yet are still there, as `.deleted`; offset 0 and what is between the runs is the cleaner's work.
    kafkas = kafkas_files(GOLDEN / "compacted-0")
    run = {name: path for name, path in kafkas.items() if name[:20].isdigit() and first <= int(name[:20]) <= last}
    config = LogConfig.from_properties({**GOLDEN_CONFIG.to_properties(), "segment.ms": 1000})
    append_again({**run, "partition.metadata": kafkas["partition.metadata"]}, tmp_path, config)
    for suffix in (".log", ".index", ".timeindex"):
        files = sorted(name for name in run if name.endswith(suffix))
        assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == suffix) == files
        for file in files:
            assert (tmp_path / file).read_bytes() == run[file].read_bytes(), file


@pytest.mark.parametrize("name", ["v2-lz4-ct-0", "transactions-0", "future-pinned-0"])
def test_same_entries_as_a_running_kafka(name: str, tmp_path: Path) -> None:
    """The folders were copied while the broker ran: the last segment's indexes are preallocated and lack their last entry."""
    kafkas = {path.name: path for path in (GOLDEN.parent / "live" / name).iterdir()}
    writer = append_again(kafkas, tmp_path, GOLDEN_CONFIG, close=False)
    active = writer.active_segment
    for index, suffix in ((active.offset_index, "index"), (active.time_index, "timeindex")):
        live = kafkas[f"{active.base_offset:020d}.{suffix}"].read_bytes()
        assert len(live) == 1200
        assert live == index.to_bytes().ljust(1200, b"\0")
    for path in tmp_path.iterdir():
        if path.suffix in (".log", ".index", ".timeindex"):
            assert path.read_bytes() == kafkas[path.name].read_bytes(), path.name
    writer.abandon()


def test_there_is_something_to_compare() -> None:
    assert len(partitions()) == 21
    assert sum(name.endswith(".log") for one in partitions() for name in kafkas_files(GOLDEN / one)) > 100
    assert any(name.endswith(".txnindex") for name in kafkas_files(GOLDEN / "transactions-0"))
