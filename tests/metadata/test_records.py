"""Metadata records that Kafka wrote: read as its own tool reads them, and written again byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.reader.golden import GOLDEN
from tidelog.errors import ProtocolError
from tidelog.formats.batch_walk import walk
from tidelog.formats.files import ReadOnlyFile
from tidelog.metadata.batches import ValueReader
from tidelog.metadata.control_records import CONTROL_RECORDS
from tidelog.metadata.frame import UnknownRecord, decode_record, encode_record, read_frame
from tidelog.metadata.json_form import show_value, try_show_value
from tidelog.metadata.records import NoOpRecord, PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord
from tidelog.metadata.versions import KNOWN_LEVELS, record_version

FOLDERS = sorted((GOLDEN / "metadata").glob("*/stopped"))


def values_in(path: Path) -> list[tuple[int, bytes]]:
    found = []
    with ReadOnlyFile(path) as file:
        for header in walk(file, 0, file.size_bytes(), crc=True):
            if not header.is_control:
                values = ValueReader().values(header, file.read(header.position, header.size))
                found += [(header.base_offset + i, bytes(value)) for i, value in enumerate(values)]
    return found


def dumped(folder: Path) -> dict[str, list[tuple[int, object]]]:
    """What DumpLogSegments said of each file."""
    found: dict[str, list[tuple[int, object]]] = {}
    name = ""
    for line in (folder / "dump.txt").read_text().splitlines():
        if line.startswith("Dumping "):
            name = line.removeprefix("Dumping ")
            found[name] = []
        elif match := re.fullmatch(r"\| offset: (\d+) .* payload: (\{.*\})", line):
            found[name].append((int(match[1]), json.loads(match[2])))
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_records_are_read_as_kafkas_tool_reads_them(folder: Path) -> None:
    files = dumped(folder)
    assert sum(map(len, files.values())) > 100
    for name, theirs in files.items():
        ours = [(offset, show_value(value)) for offset, value in values_in(folder / "__cluster_metadata-0" / name)]
        assert ours == theirs


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_records_are_written_as_kafka_wrote_them(folder: Path) -> None:
    for name in dumped(folder):
        for _, value in values_in(folder / "__cluster_metadata-0" / name):
            record = decode_record(value)
            assert not isinstance(record, UnknownRecord)
            assert encode_record(record, read_frame(value).version) == value


def test_a_newer_record_is_kept_whole() -> None:
    newer = bytes([1, 120, 0, 7, 7])
    assert decode_record(newer) == UnknownRecord(120, 0, newer)
    newer_version = bytes([1, 3, 9, 1])
    assert decode_record(memoryview(newer_version)) == UnknownRecord(3, 9, newer_version)
    assert decode_record(newer_version).name == "PartitionRecord"  # type: ignore[union-attr]
    long_key = bytes([1, 0x80, 0x01, 0])
    assert decode_record(long_key) == UnknownRecord(128, 0, long_key)


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x01\x02", b"\x00\x02\x00", b"\x02\x02\x00", b"\x01\x02\x00\x05ab", b"\xff" * 9]
)
def test_bytes_that_are_no_record(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(value)
    assert try_show_value(value)["type"] == "UNREADABLE"


def test_bytes_behind_a_record_are_skipped() -> None:
    assert decode_record(encode_record(NoOpRecord(), 0) + b"more") == NoOpRecord()


def test_versions_follow_the_level() -> None:
    def at(level: int) -> list[int]:
        return [record_version(cls, level) for cls in (RegisterBrokerRecord, PartitionRecord, PartitionChangeRecord, NoOpRecord)]

    assert at(1) == [0, 0, 0, 0]
    assert at(8) == [2, 0, 0, 0]
    assert at(21) == [3, 1, 1, 0]
    assert at(29) == [3, 2, 2, 0]
    assert at(KNOWN_LEVELS[-1]) == [4, 2, 2, 0]


def test_control_records_are_all_of_the_raft_layers() -> None:
    assert {kind.value: cls.__name__ for kind, cls in CONTROL_RECORDS.items()} == {
        2: "LeaderChangeMessage",
        3: "SnapshotHeaderRecord",
        4: "SnapshotFooterRecord",
        5: "KRaftVersionRecord",
        6: "VotersRecord",
    }
