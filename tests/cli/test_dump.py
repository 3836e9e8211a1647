"""`tidelog dump`: every kind of file, as Kafka wrote it and damaged, for people and for scripts."""

from __future__ import annotations

import base64
import os
import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import crc32c
import pytest

from tests.cli.conftest import GOLDEN, KAFKA_2, KAFKA_3, run, run_ok, run_process

LIVE = GOLDEN / "kafka-3.9.1" / "live"
TRANSACTIONS = LIVE / "transactions-0"

Expected = Callable[[str, str], list[dict[str, Any]]]

ALL_FILES = sorted(path for path in GOLDEN.glob("kafka-*/*/*/*") if path.is_file())


def of_type(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["type"] == kind]


def test_every_golden_file_can_be_dumped() -> None:
    assert len(ALL_FILES) > 100
    for path in ALL_FILES:
        for options in ([], ["--json"]):
            ran = run_ok("dump", path, *options)
            assert ran.stdout


@pytest.mark.parametrize("topic", ["v2-lz4-ct", "v2-zstd-lat", "compacted", "transactions", "idempotent"])
def test_records_of_a_log_are_those_that_the_broker_served(topic: str, expected: Expected) -> None:
    dumped = []
    for path in sorted((KAFKA_3 / f"{topic}-0").glob("*.log")):
        dumped += of_type(run_ok("dump", path, "--records", "--json").json_lines, "record")
    types = {"NoTimestampType": 0, "CreateTime": 1, "LogAppendTime": 2}
    rows = [[r["offset"], r["timestamp"], types[r["timestamp_type"]], r["key"], r["value"], r["headers"]] for r in dumped]
    assert rows == expected("kafka-3.9.1", topic)[0]["records"]


@pytest.mark.parametrize("topic", ["v0-gzip-ct", "v0-lz4-ct", "v1-snappy-lat", "migrated-v0-v1-v2"])
def test_records_of_older_formats(topic: str, expected: Expected) -> None:
    dumped = []
    for path in sorted((KAFKA_2 / f"{topic}-0").glob("*.log")):
        dumped += of_type(run_ok("dump", path, "--records", "--json").json_lines, "record")
    rows = [[r["offset"], r["timestamp"], r["key"], r["value"]] for r in dumped]
    assert rows == [[r[0], r[1], r[3], r[4]] for r in expected("kafka-2.4.1", topic)[0]["records"]]


def test_batches_of_a_log() -> None:
    path = TRANSACTIONS / "00000000000000000001.log"
    rows = run_ok("dump", path, "--json").json_lines
    assert rows[0] == {"type": "file", "path": str(path), "kind": "log", "bytes": path.stat().st_size}
    batches = of_type(rows, "batch")
    assert sum(batch["bytes"] for batch in batches) == path.stat().st_size
    assert all(batch["crc_ok"] for batch in batches)
    assert list(batches[0]) == [
        *("type", "position", "bytes", "base_offset", "last_offset", "records", "magic", "codec", "timestamp_type"),
        *("base_timestamp", "max_timestamp", "leader_epoch", "producer_id", "producer_epoch", "base_sequence"),
        *("is_transactional", "is_control", "has_delete_horizon", "crc", "crc_ok"),
    ]
    assert batches[0]["is_control"]
    lines = run_ok("dump", path).lines
    assert lines[0].split()[:4] == ["position", "bytes", "base", "offset"]
    assert len(lines) == 1 + len(batches)
    assert lines[1].endswith("transactional, control")


def test_records_for_people() -> None:
    lines = run_ok("dump", TRANSACTIONS / "00000000000000000001.log", "--records").lines
    assert lines[0].startswith("batch at 0: offsets 1..1, 1 record, 78 bytes, v2, none, CreateTime, max 2026-")
    assert lines[1].endswith("control COMMIT coordinator epoch 0")


def test_an_offset_index_and_its_padding() -> None:
    path = TRANSACTIONS / "00000000000000000173.index"
    ran = run_ok("dump", path, "--json")
    assert ran.json_lines[0] == {
        "type": "file",
        "path": str(path),
        "kind": "offset_index",
        "base_offset": 173,
        "entries": 6,
        "bytes": 1200,
        "padding_bytes": 1152,
    }
    assert ran.json_lines[1] == {"type": "offset", "entry": 0, "offset": 182, "position": 535}
    assert len(ran.json_lines) == 7
    assert ran.notes == [f"note: {path}: 1152 bytes of zeros after the entries: preallocated, not used"]
    assert run_ok("dump", path).lines[1:3] == ["entry  offset  position", "    0     182       535"]


def test_a_time_index_of_an_odd_length(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000173.timeindex"
    path.write_bytes((TRANSACTIONS / path.name).read_bytes()[:77])
    ran = run_ok("dump", path, "--json")
    assert ran.json_lines[1] == {"type": "time", "entry": 0, "timestamp": 1795216440277, "offset": 174}
    assert len(ran.json_lines) == 7
    assert ran.json_lines[0]["padding_bytes"] == 0
    assert "the last 5 bytes were left out" in ran.notes[0]
    assert run_ok("dump", path).lines[2] == "    0  2026-11-20T23:14:00.277Z     174"


def test_the_other_kinds() -> None:
    rows = run_ok("dump", TRANSACTIONS / "00000000000000000173.txnindex", "--json").json_lines
    txn = {"type": "aborted_transaction", "producer_id": 0, "first_offset": 165, "last_offset": 173, "last_stable_offset": 169}
    assert rows[1] == txn
    rows = run_ok("dump", TRANSACTIONS / "00000000000000000173.snapshot", "--json").json_lines
    assert rows[0]["next_offset"] == 173
    assert rows[1] == {
        "type": "producer",
        "producer_id": 0,
        "producer_epoch": 0,
        "last_sequence": 32,
        "last_offset": 168,
        "offset_delta": 3,
        "timestamp": 1600604800011,
        "coordinator_epoch": 0,
        "current_txn_first_offset": 165,
    }
    rows = run_ok("dump", TRANSACTIONS / "leader-epoch-checkpoint", "--json").json_lines
    assert rows[1:] == [{"type": "leader_epoch", "epoch": 0, "start_offset": 0}]
    rows = run_ok("dump", KAFKA_3 / "replication-offset-checkpoint", "--json").json_lines
    assert {"type": "checkpoint", "topic": "two-partitions", "partition": 1, "offset": 300} in rows
    rows = run_ok("dump", KAFKA_3 / "meta.properties", "--json").json_lines
    assert {"type": "property", "key": "node.id", "value": "1"} in rows
    rows = run_ok("dump", TRANSACTIONS / "partition.metadata", "--json").json_lines
    assert rows[1:] == [
        {"type": "property", "key": "version", "value": "0"},
        {"type": "property", "key": "topic_id", "value": "2ZUGQKLESTyE6lX7pROO6A"},
    ]


@pytest.mark.parametrize("suffix", [".deleted", ".swap", ".cleaned"])
def test_temporary_suffixes(suffix: str, tmp_path: Path) -> None:
    for name in ("00000000000000000173.log", "00000000000000000173.index", "00000000000000000173.timeindex"):
        shutil.copy(TRANSACTIONS / name, tmp_path / f"{name}{suffix}")
        plain, renamed = run_ok("dump", TRANSACTIONS / name, "--json"), run_ok("dump", tmp_path / f"{name}{suffix}", "--json")
        assert plain.json_lines[1:] == renamed.json_lines[1:]
        assert plain.json_lines[0]["kind"] == renamed.json_lines[0]["kind"]


def test_an_index_without_an_offset_in_its_name(tmp_path: Path) -> None:
    shutil.copy(TRANSACTIONS / "00000000000000000173.index", tmp_path / "copy.index")
    ran = run_ok("dump", tmp_path / "copy.index", "--json")
    assert ran.json_lines[1]["offset"] == 182 - 173
    assert "has no base offset" in ran.stderr


def test_a_wrong_checksum_is_marked_and_the_walk_goes_on(tmp_path: Path) -> None:
    source = TRANSACTIONS / "00000000000000000001.log"
    data = bytearray(source.read_bytes())
    data[78 + 100] ^= 0x40
    path = tmp_path / source.name
    path.write_bytes(data)
    ran = run("dump", path, "--json", "--records")
    assert ran.exit_code == 1
    assert ran.error == f"tidelog: 1 batch does not match its checksum; the position is that of the first ({path} at byte 78)"
    batches = of_type(ran.json_lines, "batch")
    assert [batch["position"] for batch in batches if not batch["crc_ok"]] == [78]
    assert len(batches) == len(of_type(run_ok("dump", source, "--json").json_lines, "batch"))
    assert 2 not in [record["offset"] for record in of_type(ran.json_lines, "record")]
    assert "WRONG CHECKSUM" in run("dump", path).stdout
    assert "WRONG CHECKSUM" in run("dump", path, "--records").stdout


def test_a_header_without_sense_ends_the_walk_there(tmp_path: Path) -> None:
    source = TRANSACTIONS / "00000000000000000001.log"
    data = bytearray(source.read_bytes())
    data[78 + 16] = 9
    path = tmp_path / source.name
    path.write_bytes(data)
    ran = run("dump", path)
    assert ran.exit_code == 1
    assert ran.error == f"tidelog: a batch has an unknown magic: found 9, expected 0, 1 or 2 ({path} at byte 78)"
    assert len(ran.lines) == 2


def test_what_lies_behind_the_last_batch(tmp_path: Path) -> None:
    source = (TRANSACTIONS / "00000000000000000001.log").read_bytes()
    path = tmp_path / "00000000000000000001.log"
    path.write_bytes(source[:200])
    ran = run_ok("dump", path)
    assert len(ran.lines) == 2
    assert ran.notes == [
        f"note: {path}: the last 122 bytes, from byte 78, are an incomplete batch: truncated by a crash, or still being written"
    ]
    path.write_bytes(source + bytes(5000))
    assert "are zeros: preallocated" in run_ok("dump", path).notes[0]
    path.write_bytes(b"")
    assert run_ok("dump", path, "--json").json_lines == [{"type": "file", "path": str(path), "kind": "log", "bytes": 0}]


@pytest.mark.parametrize("flip", range(0, 300, 7))
def test_flipped_bytes_are_an_answer_or_one_error(flip: int, tmp_path: Path) -> None:
    for name in (
        "00000000000000000173.log",
        "00000000000000000173.txnindex",
        "00000000000000000173.snapshot",
        "partition.metadata",
    ):
        data = bytearray((TRANSACTIONS / name).read_bytes())
        data[flip % len(data)] ^= 0xFF
        path = tmp_path / name
        path.write_bytes(data)
        ran = run("dump", path, *(["--records"] if name.endswith(".log") else []))
        assert ran.exit_code in (0, 1)
        if ran.exit_code:
            assert str(path) in ran.error


def test_careless_use(tmp_path: Path) -> None:
    ran = run("dump", tmp_path / "nowhere.log")
    assert (ran.exit_code, ran.error) == (1, f"tidelog: no such file ({tmp_path / 'nowhere.log'})")
    ran = run("dump", TRANSACTIONS)
    assert ran.exit_code == 1
    folder = tmp_path / "0.log"
    folder.mkdir()
    assert run("dump", folder).error == f"tidelog: this is a folder, not a file: for folders, run `tidelog stat` ({folder})"
    (tmp_path / "letter.txt").write_text("hello")
    assert "this kind of file cannot be dumped" in run("dump", tmp_path / "letter.txt").error
    assert run("dump", TRANSACTIONS / "00000000000000000173.index", "--records").exit_code == 2
    assert run("dump").exit_code == 2
    assert run("dump", f"{tmp_path / 'x.log'}/{'y' * 5000}.log").exit_code == 1


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything
        path.unlink()
        path.symlink_to(path)  # a loop is refused to root as well
    ran = run("dump", path)
    assert ran.exit_code == 1
    assert str(path) in ran.error


def test_the_value_is_exact_in_base64_and_harmless_for_people() -> None:
    path = KAFKA_3 / "v2-none-ct-0" / "00000000000000000000.log"
    records = of_type(run_ok("dump", path, "--records", "--json").json_lines, "record")
    assert base64.b64decode(records[0]["value"]) == b"daeadaadhbcf"
    assert "daeadaadhbcf" in run_ok("dump", path, "--records").stdout


def test_it_needs_neither_arrow_nor_rich() -> None:
    ran = run_process("dump", KAFKA_3 / "v2-none-ct-0" / "00000000000000000000.log", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert ran.exit_code == 0
    imported = {line.rsplit("|", 1)[1].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert "tidelog.cli.commands.dump_log" in imported
    assert not imported & {"pyarrow", "pyspark", "numpy", "rich", "asyncio"}


def test_metadata_records_are_decoded() -> None:
    """Of KRaft's log and its snapshots, as Kafka's own tool shows them (tests/metadata compares each record)."""
    folder = GOLDEN / "metadata" / "kafka-3.9.1" / "stopped" / "__cluster_metadata-0"
    for path in (*folder.glob("*.log"), *folder.glob("*.checkpoint")):
        rows = run_ok("dump", path, "--records", "--json").json_lines
        records = [row["metadata"] for row in rows if row["type"] == "record"]
        assert {"type": "FEATURE_LEVEL_RECORD", "version": 0, "data": {"name": "metadata.version", "featureLevel": 21}} in records


METADATA = GOLDEN / "metadata" / "kafka-3.9.1" / "stopped" / "__cluster_metadata-0"
SNAPSHOT = min(METADATA.glob("*.checkpoint"))


def ends_of_batches(data: bytes) -> list[int]:
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 12 + int.from_bytes(data[ends[-1] + 8 : ends[-1] + 12], "big"))
    return ends


@pytest.mark.parametrize("options", [(), ("--records",), ("--json",)])
@pytest.mark.parametrize(
    ("cut", "text"),
    [
        (lambda data: data[: ends_of_batches(data)[-2]], "a metadata snapshot is incomplete: it has no footer"),
        (lambda data: b"", "a metadata snapshot is incomplete: it has no footer"),
        (lambda data: data[:-40], "a metadata snapshot is damaged at offset"),
        (lambda data: data[ends_of_batches(data)[1] :], "a metadata snapshot is damaged at offset 0: a gap"),
        (lambda data: data + bytes(100), "a metadata snapshot is damaged"),
        (lambda data: bytes(100), "a metadata snapshot is damaged"),
    ],
)
def test_a_snapshot_that_is_not_whole(cut: Callable[[bytes], bytes], text: str, options: tuple[str, ...], tmp_path: Path) -> None:
    """What is there is shown; a snapshot gets its name when all of it is there, so nothing in it is a torn tail."""
    path = tmp_path / SNAPSHOT.name
    path.write_bytes(cut(SNAPSHOT.read_bytes()))
    ran = run("dump", path, *options)
    assert (ran.exit_code, ran.notes) == (1, [])
    assert ran.error.startswith(f"tidelog: {text}")
    assert str(path) in ran.error


@pytest.mark.parametrize("seed", range(8))
def test_damage_in_metadata_is_one_error_or_a_torn_tail(seed: int, tmp_path: Path) -> None:
    """Bits, zeros, bytes gone and too many, and nonsense inside of batches whose checksum is right."""
    rng = random.Random(seed)
    for _ in range(6):
        source = rng.choice([*METADATA.glob("*.log"), *METADATA.glob("*.checkpoint")])
        data = bytearray(source.read_bytes())
        at, length = rng.randrange(len(data)), rng.randrange(1, 200)
        kind = rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at : at + length] = bytes(min(length, len(data) - at))
        elif kind == 3:
            del data[at : at + length]
        else:
            begin, end = rng.choice(list(pairwise(ends_of_batches(data))))
            data[rng.randrange(begin + 61, end)] = rng.randrange(256)
            data[begin + 17 : begin + 21] = crc32c.crc32c(bytes(data[begin + 21 : end])).to_bytes(4, "big")
        folder = tmp_path / "__cluster_metadata-0"
        folder.mkdir(exist_ok=True)
        path = folder / source.name
        path.write_bytes(data)
        for options in ((), ("--records",), ("--records", "--json")):
            ran = run("dump", path, *options)
            assert ran.exit_code in (0, 1)
            assert len([line for line in ran.stderr.splitlines() if line.startswith("tidelog: ")]) == ran.exit_code
            assert "Traceback" not in ran.stderr
        path.unlink()
