"""`tidelog index verify` and `tidelog index rebuild`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import GOLDEN, KAFKA_2, KAFKA_3, run, run_ok
from tests.storage.known_topics import register
from tidelog.storage.topics.topic import Topic

PARTITION_KEYS = [
    *("type", "topic", "partition", "segments", "bytes", "interval_bytes", "offset_entries", "time_entries"),
    *("aborted_transactions", "time_maps", "faults"),
]
FAULT_KEYS = ["type", "topic", "partition", "path", "entry", "position", "what", "found", "expected"]
FIRST = f"{0:020}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with two partitions of one topic and another topic."""
    folder = tmp_path / "data"
    for name in ("two-partitions-0", "two-partitions-1", "transactions-0"):
        shutil.copytree(KAFKA_3 / name, folder / name)
    return folder


@pytest.mark.parametrize("directory", [KAFKA_3, KAFKA_2, GOLDEN / "kafka-3.9.1" / "live", GOLDEN / "kafka-2.4.1" / "live"])
def test_what_kafka_wrote_is_right(directory: Path) -> None:
    ran = run_ok("index", "verify", directory, "--json")
    rows = [row for row in ran.json_lines if row["type"] == "partition"]
    assert len(rows) == len([path for path in directory.iterdir() if path.is_dir()])
    for row in rows:
        assert list(row) == PARTITION_KEYS
        assert row["faults"] == 0
    assert {row["type"] for row in ran.json_lines} == ({"partition", "note"} if "2.4.1" in str(directory) else {"partition"})
    assert ran.stderr == ""


def test_faults_come_first_and_are_the_exit_code(data: Path) -> None:
    path = data / "two-partitions-1" / f"{FIRST}.timeindex"
    path.write_bytes(path.read_bytes()[12:])
    ran = run("index", "verify", data, "two-partitions")
    assert ran.exit_code == 1
    assert ran.lines[0].startswith(f"{path} entry 0, byte 0: an entry is missing, expected 2020-09-20T12:26:")
    assert [line.split()[:2] for line in ran.lines[1:]] == [
        ["topic", "partition"],
        ["two-partitions", "0"],
        ["two-partitions", "1"],
    ]
    assert [line.split()[-1] for line in ran.lines[2:]] == ["0", "1"]
    fault, *partitions = run("index", "verify", data, "two-partitions", "--partition", "1", "--json").json_lines
    assert list(fault) == FAULT_KEYS
    assert (fault["type"], fault["path"], fault["entry"], fault["position"]) == ("fault", str(path), 0, 0)
    assert [row["faults"] for row in partitions] == [1]


def test_notes_are_on_stderr() -> None:
    ran = run_ok("index", "verify", KAFKA_2, "lowered-v1-v0")
    assert len(ran.lines) == 2
    assert len(ran.notes) == 2
    assert "several batches appended at once" in ran.stderr


def test_the_interval_is_given_found_or_known(data: Path) -> None:
    assert run("index", "verify", data, "two-partitions", "--interval", "4096").exit_code == 1
    assert run_ok("index", "verify", data, "two-partitions", "--interval", "512")
    for path in data.glob("two-partitions-*/*.index"):
        path.write_bytes(b"")
    # Nothing is left to find it from.
    ran = run("index", "verify", data, "two-partitions", "--json")
    assert {row["interval_bytes"] for row in ran.json_lines if row["type"] == "partition"} == {4096}
    register(data, Topic("two-partitions", uuid.uuid4(), 2, {"index.interval.bytes": "512"}))
    ran = run_ok("index", "rebuild", data, "two-partitions")
    for path in data.glob("two-partitions-*/*.index"):
        assert path.read_bytes() == (KAFKA_3 / path.parent.name / path.name).read_bytes()


def test_rebuilt_in_place(data: Path) -> None:
    (data / "transactions-0" / f"{1:020}.txnindex").unlink()
    changed = data / "two-partitions-0" / f"{FIRST}.index"
    changed.write_bytes(b"12345678" * 3)
    ran = run_ok("index", "rebuild", data)
    assert ran.lines[0] == f"{changed}: changed, had 24 bytes, has {(KAFKA_3 / 'two-partitions-0' / changed.name).stat().st_size}"
    assert ran.lines[1].split() == ["topic", "partition", "segments", "size", "interval", "files", "right", "changed", "new"]
    assert [line.split()[0] for line in ran.lines[2:]] == ["transactions", "two-partitions", "two-partitions"]
    rows = run_ok("index", "rebuild", data, "--json").json_lines
    assert {row["type"] for row in rows} == {"partition"}
    assert all(row["right"] == row["files"] for row in rows)
    verified = run_ok("index", "verify", data, "--json").json_lines
    assert [row["time_maps"] for row in verified] == [row["segments"] for row in verified]
    for path in (KAFKA_3 / "transactions-0").glob("*index"):
        assert (data / "transactions-0" / path.name).read_bytes() == path.read_bytes()


def test_rebuilt_elsewhere_the_folder_is_only_read(data: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    out = tmp_path / "out"
    run_ok("index", "rebuild", data, "two-partitions", "--partition", "1", "--out", out, "--no-time-map", "--jobs", "2")
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    written = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    assert written == [Path("two-partitions-1") / f"{base:020}{kind}" for base in (0, 154) for kind in (".index", ".timeindex")]
    for path in written:
        assert (out / path).read_bytes() == (data / path).read_bytes()
    run_ok("index", "rebuild", data, "two-partitions", "--out", out)
    rows = run_ok("index", "verify", data, "two-partitions", "--time-map-dir", out, "--json").json_lines
    assert [row["time_maps"] for row in rows] == [2, 2]


def test_no_time_maps_unless_wanted(data: Path) -> None:
    run_ok("index", "rebuild", data, "--no-time-map")
    assert not list(data.rglob("*.timemap"))


def test_a_folder_in_use_is_left_alone(data: Path) -> None:
    """One clear error; another process holds the lock as a broker does."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom tidelog.formats.dir_lock import DirLock\n"
        "with DirLock(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    broken = data / "two-partitions-0" / f"{FIRST}.index"
    broken.write_bytes(b"")
    command = [sys.executable, "-c", program, str(data)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        holder.stdout.readline()
        ran = run("index", "rebuild", data)
        assert ran.exit_code == 1
        assert "is using this folder" in ran.error
        assert broken.read_bytes() == b""
        assert run("index", "verify", data).exit_code == 1
        holder.stdin.close()
    assert run("index", "rebuild", data).exit_code == 0


def test_damage_in_a_log_is_told_and_the_exit_code(data: Path) -> None:
    log = data / "two-partitions-0" / f"{FIRST}.log"
    content = bytearray(log.read_bytes())
    content[5000] ^= 1
    log.write_bytes(content)
    for command in ("verify", "rebuild"):
        ran = run("index", command, data, "two-partitions")
        assert ran.exit_code == 1
        assert "no index covers the rest of the log" in (ran.stdout if command == "verify" else ran.error)
    assert log.read_bytes() == content


def test_careless_use(data: Path, tmp_path: Path) -> None:
    for command in ("verify", "rebuild"):
        assert run("index", command, tmp_path / "nowhere").error == f"tidelog: no such folder ({tmp_path / 'nowhere'})"
        assert run("index", command, data, "nope").exit_code == 1
        assert run("index", command, data, "--partition", "0").exit_code == 2
        assert run("index", command, data, "--interval", "-1").exit_code == 2
        assert run("index", command).exit_code == 2
    assert run("index", "verify", data, "--time-map-dir", tmp_path / "nowhere").exit_code == 1
    assert "inside the data folder" in run("index", "rebuild", data, "--out", data / "out").error
    assert run("index").exit_code == 2
    assert run("index", "frobnicate").exit_code == 2
