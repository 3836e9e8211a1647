"""The judges themselves: they run, they find nothing wrong in what Kafka wrote, and they do complain."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.interop.__main__ import FOLDERS, main
from tests.interop.gate import COLLECTED, of_each_file
from tests.kafka import Kafka241, Kafka391, dump_log_segments, producer_performance
from tests.kafka.clients import NewRow, Row, consume, offset_for_time, produce, watermarks
from tests.kafka.tools import complaints

GOLDEN = Path(__file__).parent.parent / "golden"
T = 1_600_000_000_000


def rows(count: int) -> list[NewRow]:
    return [NewRow(b"k%d" % (n % 7), b"value %d" % n, T + n * 7, [("n", b"%d" % n)]) for n in range(count)]


def served(sent: list[NewRow]) -> list[Row]:
    return [Row(offset, row.timestamp, 1, row.key, row.value, tuple(row.headers)) for offset, row in enumerate(sent)]


def test_make_interop_has_a_test_of_each_file(pytestconfig: pytest.Config) -> None:
    if any("::" in argument for argument in pytestconfig.args):
        pytest.skip("not all tests of the files were collected")
    assert [file for file, kinds in pytestconfig.stash[COLLECTED].items() if True not in kinds] == []


def test_a_mark_without_a_reason_is_refused(request: pytest.FixtureRequest) -> None:
    assert of_each_file([request.node]) == {request.node.nodeid.partition("::")[0]: {True}}
    request.node.add_marker(pytest.mark.thorough)
    with pytest.raises(pytest.UsageError, match=r"without_a_reason.*says what `make interop` has instead"):
        of_each_file([request.node])


@pytest.mark.parametrize(
    ("arguments", "marks", "files"),
    [
        ([], "interop and not thorough", list(FOLDERS)),
        (["--all"], "interop", list(FOLDERS)),
        (["--all", "a.py"], "interop", ["a.py"]),
    ],
)
def test_what_is_run(monkeypatch: pytest.MonkeyPatch, arguments: list[str], marks: str, files: list[str]) -> None:
    asked: list[str] = []

    def run(given: list[str], plugins: list[object]) -> pytest.ExitCode:
        asked.extend(given)
        return pytest.ExitCode.OK

    monkeypatch.setattr(pytest, "main", run)
    assert main(arguments) == pytest.ExitCode.OK
    assert asked[asked.index("-m") + 1] == marks and asked[-len(files) :] == files


def test_kafka_391_stops_dies_and_starts_again(broker: Kafka391) -> None:
    broker.create_topic("harness", segment_bytes=16384)
    sent = rows(1000)
    produce(broker.bootstrap, "harness", sent)
    assert consume(broker.bootstrap, "harness") == served(sent)
    broker.stop()
    assert (broker.data / ".kafka_cleanshutdown").exists()
    broker.start()
    assert not (broker.data / ".kafka_cleanshutdown").exists()
    broker.kill()
    broker.start()
    assert consume(broker.bootstrap, "harness") == served(sent)
    assert offset_for_time(broker.admin, "harness", 0, T + 700) == (100, T + 700)


@pytest.mark.thorough("judges Kafka alone; what 2.4.1 writes in v0: tests/golden, differential/test_old_formats")
def test_kafka_241_still_writes_v0(tmp_path: Path) -> None:
    with Kafka241(tmp_path) as old:
        old.create_topic("old", message_format_version="0.9.0")
        sent = [row._replace(headers=()) for row in rows(50)]
        produce(old.bootstrap, "old", sent)
        assert [row.timestamp for row in consume(old.bootstrap, "old")] == [-1] * 50
        assert offset_for_time(old.admin, "old", 0, T) == 43


def test_producer_performance_loads_a_topic(broker: Kafka391) -> None:
    broker.create_topic("loaded", 2)
    report = producer_performance(broker.bootstrap, "loaded", 20_000, 100, compression_type="lz4")
    assert "20000 records sent" in report
    ends = [watermarks(broker.bootstrap, "loaded", partition)[1] for partition in (0, 1)]
    assert sum(ends) == 20_000


@pytest.mark.parametrize("options", [(), ("--deep-iteration",), ("--verify-index-only",), ("--index-sanity-check",)])
def test_dump_finds_no_fault_in_kafkas_own_folder(options: tuple[str, ...]) -> None:
    folder = GOLDEN / "kafka-3.9.1" / "log" / "v2-lz4-ct-0"
    files = [path for path in sorted(folder.iterdir()) if path.suffix in (".log", ".index", ".timeindex")]
    assert complaints(dump_log_segments(files, *options)) == []


@pytest.mark.parametrize(("suffix", "flip_at"), [(".index", 11), (".timeindex", 2), (".timeindex", 11), (".log", 200)])
def test_dump_complains_of_a_flipped_bit(tmp_path: Path, suffix: str, flip_at: int) -> None:
    folder = tmp_path / "v2-none-ct-0"
    shutil.copytree(GOLDEN / "kafka-3.9.1" / "log" / "v2-none-ct-0", folder)
    damaged = min(folder.glob(f"*{suffix}"))
    data = bytearray(damaged.read_bytes())
    data[flip_at] ^= 1
    damaged.write_bytes(data)
    assert complaints(dump_log_segments([damaged], "--deep-iteration"))
