"""`tidelog import`, from the command line to the bytes on disk: rows in, all of them, in order, where Kafka would put them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Ran, run, run_ok, run_process, start
from tests.examples import examples
from tests.ingest.folders import bases, headers, records
from tests.patience import PATIENCE_S
from tidelog.clock import ManualClock, SystemClock
from tidelog.errors import CorruptDataError
from tidelog.ingest.importer import ImportOptions, import_file
from tidelog.reader.log_dir import LogDir
from tidelog.records.compression import Codec
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.log_manager import LogManager

START_MS = 1_373_414_400_000
ROWS = 2000


def table(rows: int = ROWS) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "when": pa.array([(START_MS + (i * 7919) % 100_000) * 1000 + 999 for i in numbers], pa.timestamp("us")),
            "key": pa.array([None if i % 11 == 0 else f"k{i % 37}" for i in numbers]),
            "text": [f'row "{i}"\n' for i in numbers],
            "number": pa.array([None if i % 5 == 0 else i for i in numbers]),
        }
    )


def written(path: Path, rows: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(rows, path, row_group_size=300)
    elif path.suffix == ".csv":
        pacsv.write_csv(rows, path)
    else:
        path.write_text("".join(json.dumps(row, default=lambda moment: moment.isoformat()) + "\n" for row in rows.to_pylist()))
    return path


def expected_time(i: int) -> int:
    return START_MS + (i * 7919) % 100_000


def partition_of(key: str, partitions: int) -> int:
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def command(directory: Path, file: Path, *more: object) -> tuple[object, ...]:
    return ("import", directory, "events", file, "--timestamp", "when", *more)


def test_rows_become_records(tmp_path: Path) -> None:
    """Every row once, in the file's order, under its time and key, in the partition that Kafka's producer would take."""
    for suffix in ("parquet", "csv", "jsonl"):
        directory = tmp_path / suffix
        file = written(tmp_path / f"rows.{suffix}", table())
        run_ok(*command(directory, file, "--key", "key", "--partitions", 3))
        seen = 0
        without_key: list[tuple[int, int]] = []
        for partition in range(3):
            last = -1
            for offset, record in enumerate(records(directory / f"events-{partition}")):
                value = json.loads(record.value or b"")
                i = int(value["text"].split('"')[1])
                assert (record.offset, record.timestamp) == (offset, expected_time(i))
                assert value["number"] == (None if i % 5 == 0 else i)
                assert list(value) == ["when", "key", "text", "number"]
                assert i > last
                last = i
                seen += 1
                if i % 11 == 0 and suffix != "csv":
                    assert record.key is None
                    without_key.append((i, partition))
                else:
                    # An empty CSV field of a text column is an empty text, and so a key.
                    key = f"k{i % 37}" if i % 11 else ""
                    assert record.key == key.encode()
                    assert partition_of(key, 3) == partition
        assert seen == ROWS
        # Rows without a key take the partitions in turn.
        assert [partition for _, partition in sorted(without_key)] == [n % 3 for n in range(len(without_key))]


def test_values_of_a_column_are_raw(tmp_path: Path) -> None:
    rows = pa.table({"when": [1, 2, 3], "raw": pa.array([b"\xff\x00", b"", None])})
    file = written(tmp_path / "rows.parquet", rows)
    run_ok(*command(tmp_path / "d", file, "--value", "raw", "--key", "when"))
    found = records(tmp_path / "d" / "events-0")
    assert [(record.key, record.value) for record in found] == [(b"1", b"\xff\x00"), (b"2", b""), (b"3", None)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(codec: str, tmp_path: Path) -> None:
    file = written(tmp_path / "rows.parquet", table())
    run_ok(*command(tmp_path / "d", file, "--codec", codec))
    folder = tmp_path / "d" / "events-0"
    assert {header.codec for header in headers(folder)} == {Codec[codec.upper()]}
    assert [record.timestamp for record in records(folder)] == [expected_time(i) for i in range(ROWS)]


def test_batches_are_as_full_as_they_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the chunks of the file: batches are cut by `--batch-bytes` alone, so the log's bytes do not depend on chunks."""
    file = written(tmp_path / "rows.jsonl", table())
    logs = []
    for block in (1 << 22, 5000, 700):
        monkeypatch.setattr("tidelog.ingest.json_lines_source._BLOCK_BYTES", block)
        directory = tmp_path / str(block)
        run_ok(*command(directory, file, "--key", "key", "--partitions", 3, "--batch-bytes", 1000))
        logs.append([(directory / f"events-{p}" / f"{0:020d}.log").read_bytes() for p in range(3)])
        for p in range(3):
            found = headers(directory / f"events-{p}")
            assert all(header.size <= 1000 for header in found)
            assert all(header.size > 1000 - 200 for header in found[:-1])  # the next row would not have fitted
    assert logs[0] == logs[1] == logs[2]


def test_a_row_larger_than_a_batch_has_one_to_itself(tmp_path: Path) -> None:
    rows = pa.table({"when": [1, 2, 3], "text": ["a", "b" * 50_000, "c"]})
    run_ok(*command(tmp_path / "d", written(tmp_path / "rows.parquet", rows)))
    assert [header.record_count for header in headers(tmp_path / "d" / "events-0")] == [1, 1, 1]


def test_segments_and_what_lies_beside_them(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.parquet", table())
    ran = run_ok(
        *command(tmp_path / "d", file, "--segment-bytes", 20_000, "--index-interval-bytes", 1000, "--batch-bytes", 500, "--json")
    )
    folder = tmp_path / "d" / "events-0"
    found = bases(folder)
    assert len(found) > 5
    assert all((folder / f"{base:020d}.log").stat().st_size <= 20_000 for base in found)
    assert sorted(int(path.stem) for path in folder.glob("*.snapshot")) == [*found[1:], ROWS]
    with LogDir(tmp_path / "d").log("events", 0) as log:
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (ROWS, ROWS, ROWS)
    (summary,) = ran.json_lines
    times = [expected_time(i) for i in range(ROWS)]
    assert summary == {
        "topic": "events",
        "partitions": 1,
        "records": ROWS,
        "segments": len(found),
        "bytes": sum(path.stat().st_size for path in folder.glob("*.log")),
        "min_timestamp": min(times),
        "max_timestamp": max(times),
    }


def properties_of(directory: Path) -> dict[str, str]:
    return read_topics(directory)["events"].properties


def test_the_topic_is_registered_with_its_configuration(tmp_path: Path) -> None:
    """Old rows must not be deleted by the first look of a log manager: nothing is, unless retention.ms says so."""
    file = written(tmp_path / "rows.parquet", table(10))
    run_ok(*command(tmp_path / "plain", file, "--partitions", 2))
    assert properties_of(tmp_path / "plain") == {"retention.ms": "-1"}
    assert read_topics(tmp_path / "plain")["events"].partitions == 2
    with LogManager(tmp_path / "plain", SystemClock()) as manager:
        assert manager.delete_old_segments() == 0
        assert sum(manager.log("events", p).log_end_offset for p in (0, 1)) == 10
    more = ("--segment-bytes", 500, "--segment-ms", 60_000, "--index-interval-bytes", 0, "--batch-bytes", 1)
    run_ok(*command(tmp_path / "told", file, *more, "--config", "retention.ms=604800000", "--config", "flush.ms = 1000"))
    assert properties_of(tmp_path / "told") == {
        "retention.ms": "604800000",
        "flush.ms": "1000",
        "segment.bytes": "500",
        "segment.ms": "60000",
        "index.interval.bytes": "0",
    }
    segments = len(bases(tmp_path / "told" / "events-0"))
    assert segments > 2
    with LogManager(tmp_path / "told", SystemClock()) as manager:
        assert manager.delete_old_segments() == segments


def test_any_topic_property(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.config._warned", set())  # Another test of this process may have been reported.
    file = written(tmp_path / "rows.parquet", table(50))
    aliased = run_ok(*command(tmp_path / "alias", file, "--config", "log.roll.hours=1"))
    assert "log.roll.hours is used as segment.ms" in aliased.stderr
    assert properties_of(tmp_path / "alias") == {"retention.ms": "-1", "segment.ms": "3600000"}
    run_ok(*command(tmp_path / "codec", file, "--config", "compression.type=gzip"))
    assert {header.codec for header in headers(tmp_path / "codec" / "events-0")} == {Codec.GZIP}
    run_ok(*command(tmp_path / "format", file, "--config", "message.format.version=0.10.2"))
    assert {header.magic for header in headers(tmp_path / "format" / "events-0")} == {1}
    ran = run_ok(*command(tmp_path / "type", file, "--config", "message.timestamp.type=LogAppendTime"))
    assert [record.timestamp for record in records(tmp_path / "type" / "events-0")] == [expected_time(i) for i in range(50)]
    assert ran.lines[0].startswith("events: 50 records")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--config", "cleanup.policy=compact", "--key", "key"), ("row 11", "key")),
        (("--config", "message.timestamp.before.max.ms=1000"), ("row 1", "timestamp")),
        (("--config", "max.message.bytes=90"), ("row 1", "max.message.bytes", "at most 90")),
    ],
)
def test_what_the_topic_refuses_is_told_by_its_row(more: tuple[str, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    file = written(tmp_path / "rows.parquet", table(500).slice(1))
    failed(run(*command(tmp_path / "d", file, "--partitions", 3, "--batch-bytes", 300, *more)), *words)
    assert not (tmp_path / "d").exists()


def test_the_row_of_a_refused_record_is_right_whatever_the_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows wait for their batch to fill; their numbers wait with them."""
    numbers = [i for i in range(400) if i != 301]
    rows = pa.table({"when": numbers, "key": [None if i == 300 else f"k{i % 7}" for i in numbers]})
    file = written(tmp_path / "rows.parquet", rows)
    for chunk_rows in (1, 13, 1000):
        monkeypatch.setattr("tidelog.ingest.source.CHUNK_ROWS", chunk_rows)
        ran = run(*command(tmp_path / "d", file, "--key", "key", "--partitions", 4, "--config", "cleanup.policy=compact"))
        failed(ran, "row 301:")


def test_what_people_read(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.parquet", table(10))
    ran = run_ok(*command(tmp_path / "d", file))
    span = "2013-07-10T00:00:00.000Z to 2013-07-10T00:01:11.271Z"
    assert ran.lines == [f"events: 10 records in 1 partition, 1 segment, 974 B, {span}"]
    ran = run_ok("import", tmp_path / "d", "more", file, "--timestamp", "when", "--partitions", 2)
    assert ran.lines[0].split() == ["partition", "records", "segments", "size"]
    assert [line.split()[:3] for line in ran.lines[1:3]] == [["0", "5", "1"], ["1", "5", "1"]]


def test_no_rows_make_an_empty_topic(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("when,x\n")
    ran = run_ok(*command(tmp_path / "d", file, "--partitions", 2))
    assert ran.lines[-1] == "events: 0 records in 2 partitions, 2 segments, 0 B"
    assert [log.log_end_offset for log in (LogDir(tmp_path / "d").log("events", p) for p in range(2))] == [0, 0]


def failed(ran: Ran, *words: str, exit_code: int = 1) -> None:
    assert ran.exit_code == exit_code, ran.stderr
    for word in words:
        assert word in ran.error, ran.error
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        ("when,x\n1,a\n,b\n", (), ("row 2", "'when'", "null")),
        ("when,x\n1,a\n-5,b\n", (), ("row 2", "'when'", "before 1970")),
        ("when,x\n1.5,a\n", (), ("'when'", "double")),
        ("time,x\n1,a\n", (), ("no column 'when'", "time, x")),
        ("when,x\n1,a\n", ("--key", "y"), ("no column 'y'",)),
        ("when,x\n1,a\n", ("--value", "y"), ("no column 'y'",)),
        ("when,x\n1,a\n2\n", (), ("Expected 2 columns",)),
        ("when,x\n1,a\n2,bbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n", ("--segment-bytes", "100"), ("row 2", "segment", "at most 100")),
        ("when,x\n1,a\n", ("--segment-bytes", "14"), ("row 1", "segment")),
        ("when,x\n1,a\n", ("--delimiter", "ab"), ("delimiter",)),
        ("when,x\n1,a\n", ("--format", "parquet"), ("cannot be read as Parquet",)),
    ],
)
def test_errors_leave_nothing(content: str, more: tuple[str, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(content)
    ran = run(*command(tmp_path / "new" / "folder", file, *more))
    failed(ran, *words, exit_code=2 if more == ("--delimiter", "ab") else 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv"]


NOT_MILLIS = {"s": 1_373_414_400, "us": 1_373_414_400_000_000, "ns": 1_373_414_400_000_000_000}


@pytest.mark.parametrize("unit", list(NOT_MILLIS))
@pytest.mark.parametrize("form", ["csv", "text.csv", "jsonl", "text.jsonl", "parquet", "text.parquet", "uint.parquet"])
def test_numbers_that_count_no_milliseconds_are_refused_until_their_unit_is_named(unit: str, form: str, tmp_path: Path) -> None:
    numbers = [NOT_MILLIS[unit] + i for i in range(3)]
    cells: list[object] = [str(number) for number in numbers] if "text" in form else [*numbers]
    file = tmp_path / f"rows.{form}"
    if form.endswith("parquet"):
        pq.write_table(pa.table({"when": pa.array(numbers, pa.uint64()) if "uint" in form else pa.array(cells)}), file)
    elif form.endswith("csv"):
        file.write_text("when\n" + "".join(f"{cell}\n" for cell in cells))
    else:
        file.write_text("".join(json.dumps({"when": cell}) + "\n" for cell in cells))
    more = ("--as-text",) if form == "text.csv" else ()
    failed(run(*command(tmp_path / "d", file, *more)), "row 1", str(numbers[0]), f"--timestamp-unit {unit}", "2013-07-10")
    assert not (tmp_path / "d").exists()
    run_ok(*command(tmp_path / "d", file, "--timestamp-unit", unit, *more))
    scale = {"s": 1000, "us": 1 / 1000, "ns": 1 / 1_000_000}[unit]
    assert [record.timestamp for record in records(tmp_path / "d" / "events-0")] == [int(n * scale) for n in numbers]


def test_what_was_taken_for_granted_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    for number, (content, words) in enumerate(
        [
            ("when\n5\n7\n", "the smallest is 5 (1970-01-01T00:00:00.005Z)"),
            ("when\n2013-07-10T10:00:00\n", "times without a time zone are interpreted as UTC"),
            ("when\n2013-07-10T10:00:00Z\n2013-07-10T10:00\n", "times without a time zone are interpreted as UTC"),
        ]
    ):
        file.write_text(content)
        assert words in run_ok(*command(tmp_path / f"noted{number}", file)).stderr
    for number, content in enumerate(["when\n1373414400000\n", "when\n2013-07-10T10:00:00Z\n", "when\n2013-07-10\n"]):
        file.write_text(content)
        assert "note" not in run_ok(*command(tmp_path / f"plain{number}", file)).stderr


def test_fractions_need_a_unit_and_are_exact_to_the_millisecond(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"when": 1373414400.123}\n{"when": 1373414400.9999}\n{"when": 1373414401}\n')
    failed(run(*command(tmp_path / "d", file)), "'when'", "--timestamp-unit")
    run_ok(*command(tmp_path / "d", file, "--timestamp-unit", "s"))
    assert [record.timestamp - START_MS for record in records(tmp_path / "d" / "events-0")] == [123, 999, 1000]


def test_an_error_late_in_the_file_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f'{{"when":{i},"x":"{"y" * 100}"}}\n' for i in range(100_000)) + '{"when":null}\n')
    run_ok("import", tmp_path / "d", "first", written(tmp_path / "ok.csv", table(5)), "--timestamp", "when")
    before = sorted(path.name for path in (tmp_path / "d").iterdir())
    failed(run(*command(tmp_path / "d", file, "--partitions", 2)), "row 100001", "null")
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == before


def truncate(path: Path) -> None:
    """Leave whole lines, so that what is left can be read without an error."""
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\n", 0, len(data) * 3 // 4) + 1])


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def write_again(path: Path) -> None:
    """The same size, at a later time."""
    modified_ns = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(modified_ns + 1, modified_ns + 1))


CHANGES = {
    "truncated": (truncate, "size changed"),
    "grown": (lambda path: path.write_bytes(path.read_bytes() + b"\n"), "size changed"),
    "replaced": (replace, "replaced"),
    "written": (write_again, "written to"),
    "gone": (Path.unlink, "deleted"),
}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_read_is_an_error(
    suffix: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never fewer rows, or rows of two files: whatever the reader itself makes of it."""
    monkeypatch.setattr("tidelog.ingest.json_lines_source._BLOCK_BYTES", 4096)
    monkeypatch.setattr("tidelog.ingest.csv_source._BLOCK_BYTES", 4096)
    file = written(tmp_path / f"rows.{suffix}", table())
    happen, words = CHANGES[change]
    happened: list[Path] = []

    class Bar:
        def __init__(self, what: str, total_bytes: int) -> None:
            self.imports = what.startswith("importing")

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def advance(self, done_bytes: int) -> None:
            if self.imports and not happened:
                happened.append(file)
                happen(file)

    with pytest.raises(CorruptDataError) as error:
        import_file(tmp_path / "data", "events", file, ImportOptions(timestamp_column="when"), ManualClock(0), Bar)
    assert happened
    if (suffix, change) != ("parquet", "truncated"):  # Arrow has its own words for that.
        assert words in str(error.value)
    assert error.value.path == str(file)
    assert not list((tmp_path / "data").glob("events*"))


def test_command_lines_that_make_no_sense(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.csv", table(5))
    for more in (
        ("--partitions", 0),
        ("--segment-bytes", 13),
        ("--segment-bytes", 2**31),
        ("--batch-bytes", 0),
        ("--codec", "brotli"),
        ("--segment-ms", 0),
        ("--index-interval-bytes", -1),
        ("--format", "xml"),
        ("--config", "retention.ms"),
        ("--config", "retention.ms=soon"),
        ("--config", "retention.msec=1"),
        ("--config", "retention.ms=1", "--config", "retention.ms=2"),
        ("--config", "log.segment.bytes=1000", "--segment-bytes", 1000),
    ):
        failed(run(*command(tmp_path / "d", file, *more)), exit_code=2)
    failed(run("import", tmp_path / "d", "events", file), exit_code=2)
    failed(run("import", tmp_path / "d", "no/topic", file, "--timestamp", "when"), "illegal topic name")
    failed(run("import", tmp_path / "d", "events", tmp_path / "none.csv", "--timestamp", "when"), "no such file")
    failed(run("import", tmp_path / "d", "events", tmp_path, "--timestamp", "when"), "folder")
    failed(run("import", file, "events", file, "--timestamp", "when"), "cannot create the data folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv"]


def test_a_topic_that_is_there_stays(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.csv", table(5))
    run_ok(*command(tmp_path / "d", file))
    before = {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()}
    failed(run(*command(tmp_path / "d", file)), "already exists")
    assert {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()} == before


def big_file(directory: Path) -> Path:
    file = directory / "big.jsonl"
    line = '{{"when":{},"key":"k{}","x":"' + "y" * 150 + '"}}\n'
    with file.open("w") as out:
        for i in range(300_000):
            out.write(line.format(START_MS + i, i % 50))
    return file


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """kill -9 leaves staging folders at most; readers see nothing of them, and the next import is whole and sweeps them."""
    file = big_file(tmp_path)
    directory = tmp_path / "d"
    kills = 0
    for delay_s in (0.5, 0.9, 1.3):
        with start(*command(directory, file, "--key", "key", "--partitions", 4, "--segment-bytes", 1 << 20)) as process:
            try:
                process.wait(delay_s)
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
        visible = sorted(path.name for path in directory.glob("events-*") if not path.name.endswith("-delete"))
        if visible:
            break
    assert kills > 0
    if not (directory / "events-3").exists():
        run_ok("import", directory, "other", written(tmp_path / "rows.csv", table(5)), "--timestamp", "when")
        assert not list(directory.glob("*-delete"))
    if not (directory / "events-0").exists():
        run_ok(*command(directory, file, "--key", "key", "--partitions", 4))
    assert sum(LogDir(directory).log("events", p).log_end_offset for p in range(4)) == 300_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    file = big_file(tmp_path)
    directory = tmp_path / "d"
    with start(*command(directory, file, "--codec", "gzip", "--segment-bytes", 1 << 20)) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not list(directory.glob("*-delete/*.log")) and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number
    assert b"Traceback" not in stderr
    assert not directory.exists()


def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    """The system refuses to let a file grow beyond a limit, as a full disk would: the error is reported, staging is removed."""
    file = written(tmp_path / "rows.parquet", table(20_000))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    ran = run_process(*command(tmp_path / "d", file, "--config", "segment.index.bytes=10000"), preexec_fn=limit)
    failed(ran, "cannot write a file: File too large", "-delete/00000000000000000000.log")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet"]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A row group of 60 MB is imported within the memory that one of 6 MB takes, and a little more."""
    peaks = []
    for rows in (30_000, 300_000):
        file = tmp_path / f"{rows}.parquet"
        text = pa.array([os.urandom(100).hex() for _ in range(30_000)])
        texts = pa.chunked_array([text] * (rows // 30_000))
        pq.write_table(pa.table({"when": pa.array(range(rows)), "text": texts}), file, row_group_size=rows, use_dictionary=False)
        code = (
            "import resource, sys; from tidelog.cli.app import cli\n"
            "try: cli.main(sys.argv[1:])\n"
            "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
        )
        arguments = [str(argument) for argument in command(tmp_path / f"d{rows}", file)]
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=True, text=True)
        peaks.append(int(done.stderr.split()[-1]))
    assert peaks[1] < peaks[0] + 50_000  # KiB


KEYS = st.one_of(st.none(), st.binary(max_size=6))


@examples(30)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2**40), st.one_of(st.none(), st.binary(max_size=6)), st.binary(max_size=60)), max_size=60
    ),
    partitions=st.integers(1, 5),
    batch_bytes=st.integers(1, 400),
    segment_bytes=st.integers(300, 2000),
    codec=st.sampled_from(list(Codec)),
    chunk_rows=st.integers(1, 30),
)
def test_any_rows_arrive(
    rows: list[tuple[int, bytes | None, bytes]],
    partitions: int,
    batch_bytes: int,
    segment_bytes: int,
    codec: Codec,
    chunk_rows: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("import")
    columns: dict[str, Any] = {
        "when": pa.array([row[0] for row in rows], pa.int64()),
        "key": pa.array([row[1] for row in rows], pa.binary()),
        "value": pa.array([row[2] for row in rows], pa.binary()),
    }
    pq.write_table(pa.table(columns), directory / "rows.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog.ingest.source.CHUNK_ROWS", chunk_rows)
        summary = import_file(
            directory / "d",
            "events",
            directory / "rows.parquet",
            ImportOptions(
                timestamp_column="when",
                timestamp_unit="ms",
                key_column="key",
                value_column="value",
                partitions=partitions,
                codec=codec,
                batch_bytes=batch_bytes,
                properties={"segment.bytes": str(segment_bytes)},
            ),
            ManualClock(0),
        )
    expected: dict[int, list[tuple[int, bytes | None, bytes]]] = defaultdict(list)
    turn = 0
    for row in rows:
        if row[1] is None:
            expected[turn % partitions].append(row)
            turn += 1
        else:
            expected[(murmur2(row[1]) & 0x7FFFFFFF) % partitions].append(row)
    for partition in range(partitions):
        found = records(directory / "d" / f"events-{partition}")
        assert [(r.timestamp, r.key, r.value) for r in found] == expected[partition]
        assert [r.offset for r in found] == list(range(len(found)))
    assert summary.records == len(rows)
    assert summary.min_timestamp == min((row[0] for row in rows), default=None)
