"""`tidelog cat`: exact ranges in every format, bounded memory, and what can go wrong while writing."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import KAFKA_2, KAFKA_3, ROOT, run, run_ok, run_process, start
from tests.patience import PATIENCE_S
from tidelog.cli.printing import record_writers
from tidelog.clock import ManualClock
from tidelog.reader.time_map_file import rebuild_time_map
from tidelog.sources.selection import record_files

Expected = Callable[[str, str], list[dict[str, Any]]]

T0 = 1_600_604_800_000
TYPES = {0: "NoTimestampType", 1: "CreateTime", 2: "LogAppendTime"}


def rows_of(partitions: list[dict[str, Any]], topic: str) -> list[dict[str, Any]]:
    """The brokers' records as the lines of `--format jsonl --encoding base64`."""
    return [
        {
            "topic": topic,
            "partition": partition["partition"],
            "offset": offset,
            "timestamp": None if timestamp == -1 else timestamp,
            "timestamp_type": TYPES[kind],
            "key": key,
            "value": value,
            "headers": headers,
        }
        for partition in partitions
        for offset, timestamp, kind, key, value, headers in partition["records"]
    ]


@pytest.mark.parametrize(
    ("version", "folder", "topic"),
    [
        ("kafka-3.9.1", KAFKA_3, topic)
        for topic in ("v2-lz4-ct", "v2-zstd-lat", "two-partitions", "deleted-prefix", "compacted", "transactions", "empty")
    ]
    + [("kafka-2.4.1", KAFKA_2, topic) for topic in ("v0-gzip-ct", "v1-snappy-lat", "migrated-v0-v1-v2")],
)
def test_every_record_in_order(version: str, folder: Path, topic: str, expected: Expected) -> None:
    ran = run_ok("cat", folder, topic, "--format", "jsonl", "--encoding", "base64")
    assert ran.json_lines == rows_of(expected(version, topic), topic)
    assert ran.stderr == ("" if ran.lines else f"note: no record matches (0 were read): {topic}-0 is empty\n")


def test_the_line_is_fixed() -> None:
    ran = run_ok("cat", KAFKA_3, "two-partitions", "--format", "jsonl", "--to", T0 + 5_000)
    assert ran.lines[0].startswith('{"topic":"two-partitions","partition":')
    assert list(ran.json_lines[0]) == ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]


@pytest.mark.parametrize(
    ("start_ms", "end_ms"), [(T0, T0 + 60_000), (T0 + 5_003, T0 + 5_004), (None, T0), (T0 + 100_000, None), (T0, T0)]
)
def test_a_range_is_exact_however_late_a_record_came(start_ms: int | None, end_ms: int | None, expected: Expected) -> None:
    options: list[object] = [] if start_ms is None else ["--from", start_ms]
    options += [] if end_ms is None else ["--to", end_ms]
    ran = run_ok("cat", KAFKA_3, "two-partitions", *options, "--format", "jsonl", "--encoding", "base64")
    wanted = [
        row
        for row in rows_of(expected("kafka-3.9.1", "two-partitions"), "two-partitions")
        if (start_ms is None or row["timestamp"] >= start_ms) and (end_ms is None or row["timestamp"] < end_ms)
    ]
    assert ran.json_lines == wanted
    echoed = [line for line in ran.stderr.splitlines() if " ms, " in line]
    assert len(echoed) == (start_ms is not None) + (end_ms is not None)


def test_relative_times_share_one_now(expected: Expected) -> None:
    clock = ManualClock(T0 + 3 * 86_400_000 + 60_000)
    ran = run_ok(
        "cat", KAFKA_3, "v2-lz4-ct", "--from", "-3d1m", "--to", "-3d", "--format", "jsonl", "--encoding", "base64", clock=clock
    )
    rows = rows_of(expected("kafka-3.9.1", "v2-lz4-ct"), "v2-lz4-ct")
    assert ran.json_lines == [row for row in rows if T0 <= row["timestamp"] < T0 + 60_000]
    assert f"-3d1m = {T0} ms, 2020-09-20T12:26:40.000Z" in ran.stderr


def test_partitions_and_isolation(expected: Expected) -> None:
    ran = run_ok("cat", KAFKA_3, "two-partitions", "--partition", "1", "--format", "jsonl")
    assert {row["partition"] for row in ran.json_lines} == {1}
    assert len(ran.json_lines) == 300
    ran = run_ok("cat", KAFKA_3, "transactions", "--isolation", "read_committed", "--format", "jsonl")
    assert [row["offset"] for row in ran.json_lines] == expected("kafka-3.9.1", "transactions")[0]["read_committed_offsets"]


def test_text_for_people() -> None:
    part = ["v2-lz4-ct", "--from", T0 + 60_000, "--to", T0 + 65_000]
    ran = run_ok("cat", KAFKA_3, *part)
    first = ran.lines[0].split()
    assert first[:4] == ["2020-09-20T12:27:43.352Z", "0", "53", "k5"]
    assert "h0=" in ran.stdout
    assert "<null>" in ran.stdout
    # No heading: a line is a record, for grep and wc.
    assert len(ran.lines) == len(run_ok("cat", KAFKA_3, *part, "--format", "jsonl").lines)
    encoded = run_ok("cat", KAFKA_3, *part, "--encoding", "base64").stdout
    assert base64.b64encode(b"k5").decode() in encoded


def test_records_without_timestamp_are_outside_a_bound_and_counted() -> None:
    ran = run_ok("cat", KAFKA_2, "migrated-v0-v1-v2", "--from", 0, "--format", "jsonl")
    everything = run_ok("cat", KAFKA_2, "migrated-v0-v1-v2", "--format", "jsonl")
    without = sum(row["timestamp"] is None for row in everything.json_lines)
    assert without > 0
    assert everything.notes == []
    assert len(ran.json_lines) == len(everything.json_lines) - without
    assert ran.notes == [f"note: {without} records without a timestamp left out, because the scan has a time bound"]


def with_high_watermark(tmp_path: Path, high_watermark: int) -> Path:
    data = tmp_path / "data"
    shutil.copytree(KAFKA_3 / "v2-lz4-ct-0", data / "v2-lz4-ct-0")
    (data / "replication-offset-checkpoint").write_text(f"0\n1\nv2-lz4-ct 0 {high_watermark}\n")
    return data


def test_the_high_watermark(tmp_path: Path) -> None:
    data = with_high_watermark(tmp_path, 1000)
    ran = run_ok("cat", data, "v2-lz4-ct", "--format", "jsonl")
    assert len(ran.json_lines) == 1500
    assert len(ran.notes) == 1
    assert "500 records" in ran.notes[0]
    assert "high-watermark" in ran.notes[0]
    ran = run_ok("cat", data, "v2-lz4-ct", "--format", "jsonl", "--until-high-watermark")
    assert [row["offset"] for row in ran.json_lines] == list(range(1000))
    assert ran.notes == []


def table_rows(table: pa.Table) -> list[dict[str, Any]]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    rows = table.set_column(
        table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.int64())
    ).to_pylist()
    names = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
    return [
        {
            **row,
            "timestamp_type": names[row["timestamp_type"]],
            "key": text(row["key"]),
            "value": text(row["value"]),
            "headers": [[header["key"], text(header["value"])] for header in row["headers"]],
        }
        for row in rows
    ]


def test_arrow_and_parquet(tmp_path: Path, expected: Expected) -> None:
    wanted = rows_of(expected("kafka-3.9.1", "v2-zstd-ct"), "v2-zstd-ct")
    for name, reader in (
        ("out.parquet", pq.read_table),
        ("out.arrow", lambda path: pa.ipc.open_file(path).read_all()),
        ("out.arrows", lambda path: pa.ipc.open_stream(path).read_all()),
    ):
        ran = run_ok("cat", KAFKA_3, "v2-zstd-ct", "--output", tmp_path / name)
        assert ran.stdout == ""
        assert ran.stderr == f"{tmp_path / name}: 1,500 records\n"
        assert table_rows(reader(str(tmp_path / name))) == wanted
    ran = run_ok("cat", KAFKA_3, "v2-zstd-ct", "--format", "arrow")
    assert table_rows(pa.ipc.open_stream(ran.stdout_bytes).read_all()) == wanted
    ran = run_ok("cat", KAFKA_3, "v2-zstd-ct", "--format", "parquet", "-o", "-")
    assert table_rows(pq.read_table(io.BytesIO(ran.stdout_bytes))) == wanted


def test_an_empty_answer_is_still_a_file(tmp_path: Path) -> None:
    for name in ("out.parquet", "out.arrow", "out.jsonl", "out.txt"):
        ran = run_ok("cat", KAFKA_3, "empty", "-o", tmp_path / name)
        assert ran.stderr == f"{tmp_path / name}: 0 records\n"
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0
    assert pa.ipc.open_file(str(tmp_path / "out.arrow")).read_all().num_rows == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_the_format_is_that_of_the_outputs_name(tmp_path: Path) -> None:
    run_ok("cat", KAFKA_3, "two-partitions", "-o", tmp_path / "a.jsonl")
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["topic"] == "two-partitions"
    run_ok("cat", KAFKA_3, "two-partitions", "-o", tmp_path / "a.log")
    assert (tmp_path / "a.log").read_text().startswith("2020-09-20T12:")
    run_ok("cat", KAFKA_3, "two-partitions", "-o", tmp_path / "b.parquet", "--format", "jsonl")
    assert (tmp_path / "b.parquet").read_text().startswith("{")


def batch_of(keys: list[bytes | None], timestamps: list[int | None]) -> pa.RecordBatch:
    from tidelog.sources.schema import scan_schema

    count = len(keys)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["t"] * count),
            pa.array([0] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array(timestamps, pa.int64()).cast(pa.timestamp("ms", "UTC")),
            pa.array([0] * count, pa.int32()),
            pa.array(keys, pa.binary()),
            pa.array(keys, pa.binary()),
            pa.array([[{"key": "h", "value": key}] for key in keys], scan_schema().field("headers").type),
        ],
        schema=scan_schema(),
    )


def test_bytes_that_are_no_utf8_and_times_beyond_every_calendar() -> None:
    batch = batch_of([b"\xff\x00", None, "größe\n".encode()], [2**63 - 1, None, 0])
    encoding = record_files.Encoding("utf8")
    out = io.BytesIO()
    record_files.write_jsonl([batch], out, encoding)
    rows = [json.loads(line) for line in out.getvalue().decode().splitlines()]
    assert [row["key"] for row in rows] == ["\ufffd\x00", None, "größe\n"]
    assert [row["timestamp"] for row in rows] == [2**63 - 1, None, 0]
    assert rows[0]["headers"] == [["h", "\ufffd\x00"]]
    assert encoding.notices() == [
        "3 keys or values are not UTF-8; undecodable bytes became U+FFFD (encoding base64 keeps every byte)"
    ]
    encoding = record_files.Encoding("base64")
    out = io.BytesIO()
    record_files.write_jsonl([batch], out, encoding)
    assert base64.b64decode(json.loads(out.getvalue().splitlines()[0])["key"]) == b"\xff\x00"
    assert encoding.notices() == []
    out = io.BytesIO()
    record_writers.write_text([batch], out, record_files.Encoding("utf8"), with_header=True)
    lines = out.getvalue().decode().splitlines()
    assert lines[0].split() == ["time", "partition", "offset", "key", "value", "headers"]
    assert "\\xff\\x00" in lines[1]
    assert lines[1].startswith("+292278994-08-17T07:12:55.807Z")
    assert lines[2].split()[:3] == ["-", "0", "1"]
    assert "größe\\n" in lines[3]


def test_a_row_group_is_written_when_it_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "ROW_GROUP_BYTES", 1000)
    batches = [batch_of([b"k" * 400] * 2, [1, 2])] * 5
    out = io.BytesIO()
    record_files.write_parquet(batches, batches[0].schema, out)
    file = pq.ParquetFile(io.BytesIO(out.getvalue()))
    assert (file.num_row_groups, file.metadata.num_rows) == (5, 10)


def test_careless_use(tmp_path: Path) -> None:
    assert run("cat", tmp_path / "nowhere", "topic").error == f"tidelog: no such folder ({tmp_path / 'nowhere'})"
    assert run("cat", KAFKA_3, "nope").error == f"tidelog: no topic 'nope' ({KAFKA_3})"
    assert run("cat", KAFKA_3, "two-partitions", "--partition", 5).exit_code == 1
    ran = run("cat", KAFKA_3, "two-partitions", "--from", "2013-07-11", "--to", "2013-07-10")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.error.startswith("tidelog: the range ends at 2013-07-10T00:00:00.000Z, before its start 2013-07-11T00:00:00.000Z")
    assert run("cat", KAFKA_3, "two-partitions", "--format", "parquet", "--encoding", "utf8").exit_code == 2
    assert run("cat", KAFKA_3, "two-partitions", "--format", "xml").exit_code == 2
    assert run("cat", KAFKA_3, "two-partitions", "--from", "monday").exit_code == 2
    assert run("cat", KAFKA_3, "two-partitions", "--isolation", "serializable").exit_code == 2
    ran = run("cat", KAFKA_3, "two-partitions", "-o", tmp_path)
    assert ran.error == f"tidelog: the output is a folder ({tmp_path})"
    ran = run("cat", KAFKA_3, "two-partitions", "-o", tmp_path / "missing" / "x.parquet")
    assert ran.error == f"tidelog: cannot write: No such file or directory ({tmp_path / 'missing' / 'x.parquet'})"
    data = with_high_watermark(tmp_path, 5)
    ran = run("cat", data, "v2-lz4-ct", "-o", data / "v2-lz4-ct-0" / "00000000000000000000.log")
    assert ran.exit_code == 1
    assert "inside the data folder" in ran.error


def test_damage_is_one_error_and_leaves_no_output(tmp_path: Path) -> None:
    data = with_high_watermark(tmp_path, 5)
    segment = data / "v2-lz4-ct-0" / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[5000] ^= 0xFF
    segment.write_bytes(content)
    out = tmp_path / "out.parquet"
    for options in (["-o", str(out)], ["-o", str(tmp_path / "out.jsonl")], ["--format", "jsonl"]):
        ran = run("cat", data, "v2-lz4-ct", *options)
        assert ran.exit_code == 1
        assert f"({segment} at byte " in ran.error
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


def test_a_closed_pipe_is_quiet() -> None:
    for format_name in ("jsonl", "text", "arrow", "parquet"):
        with start("cat", KAFKA_3, "v2-lz4-ct", "--format", format_name) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141


def test_head_takes_what_it_needs() -> None:
    command = f"'{sys.executable}' -m tidelog cat '{KAFKA_3}' v2-lz4-ct --format jsonl | head -n 2"
    ran = subprocess.run(
        ["sh", "-c", command], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, timeout=PATIENCE_S
    )
    assert len(ran.stdout.splitlines()) == 2
    assert ran.stderr == b""


def test_a_full_disk() -> None:
    for format_name in ("jsonl", "text", "arrow", "parquet"):
        with Path("/dev/full").open("wb") as full:
            ran = run_process("cat", KAFKA_3, "v2-lz4-ct", "--format", format_name, stdout=full)
        assert (ran.exit_code, ran.stderr) == (1, "tidelog: cannot write: No space left on device (standard output)\n")
        ran = run("cat", KAFKA_3, "v2-lz4-ct", "--format", format_name, "-o", "/dev/full")
        assert (ran.exit_code, ran.error) == (1, "tidelog: cannot write: No space left on device (/dev/full)")


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing(number: signal.Signals, exit_code: int, tmp_path: Path) -> None:
    data = with_high_watermark(tmp_path, 1500)
    # A pipe nobody reads holds the run where it writes; the file is named, so that nothing but waiting is left to it.
    reader, writer = os.pipe()
    with start("cat", data, "v2-lz4-ct", "--format", "jsonl", "-o", f"/dev/fd/{writer}", pass_fds=[writer]) as process:
        os.close(writer)
        # The first bytes say that it is at work; the rest does not fit the pipe.
        assert os.read(reader, 1)
        process.send_signal(number)
        assert process.stderr is not None
        assert process.stderr.read() == (b"tidelog: interrupted\n" if number == signal.SIGINT else b"")
    os.close(reader)
    assert process.returncode == exit_code


@pytest.mark.parametrize("has_old", [True, False])
def test_an_interrupted_run_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_old: bool) -> None:
    target = tmp_path / "out.jsonl"
    if has_old:
        target.write_text("old")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(record_files, "write_jsonl", interrupted)
    ran = run("cat", KAFKA_3, "two-partitions", "-o", target)
    assert ran.exit_code == 130
    assert ran.stderr.splitlines() == [
        f"note: {target} {'is unchanged' if has_old else 'was not written'}",
        "tidelog: interrupted",
    ]
    assert [path.read_text() for path in tmp_path.iterdir()] == (["old"] if has_old else [])


def on_terminal(command: list[str], stdout: int | None = None) -> tuple[int, str]:
    """Run a command with stderr (and stdout, unless given) on a terminal; return its exit code and what the terminal got."""
    import pty

    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "NO_COLOR": "1"}
    out = slave if stdout is None else stdout
    with subprocess.Popen(command, env=environment, stdout=out, stderr=slave, stdin=subprocess.DEVNULL) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                more = os.read(master, 65536)
            except OSError:  # Linux says EIO when the last writer has gone.
                break
            if not more:
                break
            shown += more
    os.close(master)
    return process.returncode, shown.decode()


def test_binary_formats_do_not_go_to_a_terminal() -> None:
    for format_name in ("arrow", "parquet"):
        exit_code, shown = on_terminal(
            [sys.executable, "-m", "tidelog", "cat", str(KAFKA_3), "two-partitions", "--format", format_name]
        )
        assert exit_code == 2
        assert f"tidelog: {format_name} is binary and standard output is a terminal: add --output FILE" in shown
        assert "ARROW1" not in shown


def test_text_on_a_terminal_has_a_heading() -> None:
    exit_code, shown = on_terminal(
        [sys.executable, "-m", "tidelog", "cat", str(KAFKA_3), "two-partitions", "--to", str(T0 - 19_000)]
    )
    assert exit_code == 0
    lines = [line for line in shown.splitlines() if " ms, " not in line]
    assert lines[0].split() == ["time", "partition", "offset", "key", "value", "headers"]


def test_the_bar_is_for_a_terminal_and_for_long_work(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"

    def patient(seconds: int) -> list[str]:
        code = (
            f"import sys\nfrom tidelog.cli.printing import progress_bar\nprogress_bar.SHOWN_AFTER_SECONDS = {seconds}\n"
            "from tidelog.cli.app import cli\ncli.main(sys.argv[1:])"
        )
        return [sys.executable, "-X", "importtime", "-c", code, "cat", str(KAFKA_3), "v2-lz4-ct", "-o", str(out)]

    exit_code, shown = on_terminal(patient(0))
    assert exit_code == 0
    assert "cat v2-lz4-ct" in shown
    assert "1,500 records" in shown
    assert "rich.progress" in shown
    exit_code, shown = on_terminal(patient(1_000_000))
    assert exit_code == 0
    assert "cat v2-lz4-ct" not in shown
    assert "1,500 records" in shown
    assert "rich" not in shown
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(patient(0), env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "1,500 records" in ran.stderr
    assert "rich" not in ran.stderr


@pytest.mark.parametrize("args", [["verify"], ["index", "verify"]])
def test_checks_have_a_bar_beside_their_table(args: list[str]) -> None:
    code = (
        "import sys\nfrom tidelog.cli.printing import progress_bar\nprogress_bar.SHOWN_AFTER_SECONDS = 0\n"
        "from tidelog.cli.app import cli\ncli.main(sys.argv[1:])"
    )
    exit_code, shown = on_terminal([sys.executable, "-c", code, *args, str(KAFKA_3), "v2-lz4-ct"])
    assert exit_code == 0
    bar, _, table = shown.rpartition("topic   ")
    assert "verify" in bar
    assert "MB" in bar or "KiB" in bar or "kB" in bar
    assert "v2-lz4-ct" in table


def test_time_maps_of_a_folder_of_ones_own(tmp_path: Path, expected: Expected) -> None:
    """The same records, from less of the log; records without timestamp are counted also where they are not read."""
    for folder, topic, release in ((KAFKA_3, "v2-lz4-ct", "kafka-3.9.1"), (KAFKA_2, "migrated-v0-v1-v2", "kafka-2.4.1")):
        for log in (folder / f"{topic}-0").glob("*.log"):
            rebuild_time_map(log, tmp_path, block_bytes=2000)
        more = ("--from", str(T0 + 20_000), "--to", str(T0 + 24_000), "--format", "jsonl", "--encoding", "base64")
        plain, mapped = run_ok("cat", folder, topic, *more), run_ok("cat", folder, topic, *more, "--time-map-dir", tmp_path)
        inside = [row for row in rows_of(expected(release, topic), topic) if T0 + 20_000 <= (row["timestamp"] or 0) < T0 + 24_000]
        assert mapped.json_lines == plain.json_lines == inside
        assert mapped.stderr == plain.stderr
    missing = run("cat", KAFKA_3, "v2-lz4-ct", "--time-map-dir", tmp_path / "nowhere")
    assert missing.exit_code == 1
    assert "the time map directory does not exist" in missing.stderr


def test_the_time_of_another_day_than_the_start_is_noted() -> None:
    clock = ManualClock(T0 + 3 * 86_400_000)
    for end, is_noted in (("23:59", True), ("+15m", False), ("today 23:59", False)):
        ran = run_ok("cat", KAFKA_3, "two-partitions", "--count", "--from", T0, "--to", end, clock=clock)
        assert ("for 15 minutes after --from, use +15m" in ran.stderr) == is_noted, end
    ran = run_ok("cat", KAFKA_3, "two-partitions", "--count", "--from", "yesterday 23:58", "--to", "23:57", clock=clock)
    assert "quarter" not in ran.stderr
