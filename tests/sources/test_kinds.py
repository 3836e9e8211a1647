"""A third kind of source fits in by one module and one row: a tar file goes all the ways that a folder and brokers go.

And nothing outside of `sources/` asks of which kind a source is: it asks what it needs.
"""

from __future__ import annotations

import ast
import pickle
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.sources import tar_source
from tests.sources.logs import TOPIC, LogBuilder
from tests.spark.stream_query import Query
from tidelog.clock import SystemClock
from tidelog.copying.copy_plan import plan_copy
from tidelog.copying.source_batches import CopyRules, copied_or_skipped
from tidelog.errors import InvalidArgumentError, UnknownTopicOrPartitionError, UnsupportedVersionError
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP, READ_COMMITTED, TopicPartition
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.records import Record
from tidelog.sources import opening
from tidelog.sources.bounds import HIGH_WATERMARK, LOG_END
from tidelog.sources.opening import open_source
from tidelog.sources.plan import plan
from tidelog.spark.options import parse_options
from tidelog.spark.tasks import plan_tasks

PACKAGE = Path(tidelog.__file__).parent
RECORDS = 3_000
COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions whose times go back and forth."""
    path = tmp_path_factory.mktemp("data")
    for partition in range(2):
        builder = LogBuilder(path, partition, segment_bytes=40_000)
        for first in range(0, RECORDS, 50):
            records = [(1_000 + at // 7 * 5 - 40 * (at % 3), b"key", b"value %d" % at) for at in range(first, first + 50)]
            builder.append(records)
        builder.close()
    return path


@pytest.fixture
def tar(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder as a tar file, and its kind in the table."""
    with tarfile.open(tmp_path / "data.tar", "w") as archive:
        for path in sorted(folder.rglob("*.log")):
            archive.add(path, path.relative_to(folder).as_posix())
    monkeypatch.setattr(opening, "KINDS", [tar_source.TAR, *opening.KINDS])
    return f"tar:{tmp_path / 'data.tar'}"


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"start": 1_500, "end": 1_900},
        {"start": 2_900, "partitions": [1]},
        {"offsets": {0: (10, 700), 1: (None, 5)}},
        {"start": 10**9},
        {"views": True, "batch_rows": 100},
    ],
)
def test_a_scan(folder: Path, tar: str, asked: dict[str, object]) -> None:
    report = tidelog.ScanReport()
    found = tidelog.scan(tar, TOPIC, columns=COLUMNS, report=report, **asked).read_all()  # type: ignore[arg-type]
    assert found.equals(tidelog.scan(folder, TOPIC, columns=COLUMNS, **asked).read_all())  # type: ignore[arg-type]
    assert report.records == found.num_rows


def test_splits_are_cut_and_travel(folder: Path, tar: str) -> None:
    splits = plan(tar, TOPIC, min_splits=4).splits
    assert [(split.partition, split.start_offset) for split in splits] == [(0, 0), (0, 1_500), (1, 0), (1, 1_500)]
    again = pickle.loads(pickle.dumps(splits))
    rows = [row for split in again for batch in split.read(["partition", "offset"]) for row in batch.to_pylist()]
    assert rows == tidelog.scan(folder, TOPIC, columns=["partition", "offset"]).read_all().to_pylist()


def test_what_it_cannot_do_is_refused(tar: str) -> None:
    for asked in (
        {"skip_damaged": True},
        {"time_map_dir": "maps"},
    ):
        with pytest.raises(InvalidArgumentError, match="tar"):
            tidelog.scan(tar, TOPIC, **asked)  # type: ignore[arg-type]
    with pytest.raises(UnknownTopicOrPartitionError):
        tidelog.scan(tar, "nowhere")
    with open_source(tar) as source, pytest.raises(InvalidArgumentError, match="no consumer groups"):
        source.groups()
    for options in ({"timeMapDir": "/maps"}, {"skipDamaged": "true"}):
        with pytest.raises(InvalidArgumentError):
            parse_options({"path": tar, "subscribe": TOPIC} | options, SystemClock())


def test_places_and_times(folder: Path, tar: str) -> None:
    keys = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
    with open_source(tar) as of_tar, open_source(folder) as of_folder:
        for target in (EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, 0, 1_777, 10**9):
            answers = of_tar.find(dict.fromkeys(keys, target)), of_folder.find(dict.fromkeys(keys, target))
            found = [[one and (one.offset, one.timestamp) for one in answer.values()] for answer in answers]
            assert found[0] == found[1], target
        for until in (LOG_END, HIGH_WATERMARK):  # the folder has no checkpoint either
            assert of_tar.ends(keys, until=until) == of_folder.ends(keys, until=until)
        with pytest.raises(UnsupportedVersionError):
            of_tar.find({keys[0]: -9})
        nowhere = TopicPartition(TOPIC, 7)
        assert of_tar.ends([nowhere]) == {}
        with pytest.raises(UnknownTopicOrPartitionError):
            of_tar.find({nowhere: 0})


def test_the_high_watermark(folder: Path, tar: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text(f"0\n1\n{TOPIC} 0 1000\n")
    with tarfile.open(tar.removeprefix("tar:"), "a") as archive:
        archive.add(tmp_path / "checkpoint", "replication-offset-checkpoint")
    for until, rows in {LOG_END: 2 * RECORDS, HIGH_WATERMARK: RECORDS + 1_000}.items():
        assert tidelog.scan(tar, TOPIC, until=until).read_all().num_rows == rows
    key = TopicPartition(TOPIC, 0)
    with open_source(tar) as source:
        assert source.ends([key], until=HIGH_WATERMARK)[key] == (0, 1_000, RECORDS)
        assert source.find({key: 2_900})[key] is not None
        assert source.find({key: 2_900}, until=HIGH_WATERMARK)[key] is None


def test_transactions_are_refused(tar: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(
        build_batch_v2([Record(0, 1_000, 0, b"k", b"v")], producer=Producer(7, 0, 0), is_transactional=True)
    )
    with tarfile.open(tar.removeprefix("tar:"), "a") as archive:
        archive.add(tmp_path / "log", "paid-0/00000000000000000000.log")
    assert tidelog.scan(tar, "paid").read_all().num_rows == 1
    assert tidelog.scan(tar, TOPIC, isolation=READ_COMMITTED).read_all().num_rows == 2 * RECORDS
    key = TopicPartition("paid", 0)
    with open_source(tar) as source:
        for ask in (lambda: source.ends([key], READ_COMMITTED), lambda: source.find({key: 0}, READ_COMMITTED)):
            with pytest.raises(InvalidArgumentError, match="transactions"):
                ask()
    with pytest.raises(InvalidArgumentError, match="transactions"):
        tidelog.scan(tar, "paid", isolation=READ_COMMITTED)


def test_an_empty_partition(tar: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with tarfile.open(tar.removeprefix("tar:"), "a") as archive:
        archive.add(tmp_path / "empty", "quiet-0/00000000000000000042.log")
    key = TopicPartition("quiet", 0)
    with open_source(tar) as source:
        assert source.ends([key])[key] == (42, 42, 42)
        for target, offset in {EARLIEST: 42, LATEST: 42, MAX_TIMESTAMP: None, 0: None}.items():
            found = source.find({key: target})[key]
            assert (found and found.offset) == offset
    assert tidelog.scan(tar, "quiet").read_all().num_rows == 0


def test_the_commands(folder: Path, tar: str) -> None:
    for command in (
        ["cat", None, TOPIC, "--from", "1500", "--to", "1900", "--format", "jsonl"],
        ["find", None, TOPIC, "--at", "2000", "--json"],
        ["find", None, TOPIC, "--at", "latest"],
    ):
        of_tar, of_folder = (run_ok(*(place if word is None else word for word in command)) for place in (tar, folder))
        assert of_tar.stdout == of_folder.stdout != ""
    assert [line["log_end_offset"] for line in run_ok("stat", tar, TOPIC, "--json").json_lines] == [RECORDS, RECORDS]
    assert "orders" in run_ok("stat", tar).stdout
    assert "need a folder, not a tar file" in run("find", tar, TOPIC, "--at", "1", "--explain").stderr
    assert "needs a data folder, DIR, not a tar file" in run("verify", tar).stderr
    assert "this kind of source has no consumer groups" in run("groups", "list", tar).stderr


def test_a_batch_of_spark(folder: Path, tar: str) -> None:
    given = {"subscribe": TOPIC, "startTime": "1970-01-01T00:00:01.5Z", "startingTimestamp": "1400", "endingTimestamp": "2600"}
    rows = []
    for place in (tar, str(folder)):
        tasks = plan_tasks(parse_options({"path": place} | given, SystemClock()), 3)
        assert len(tasks) >= 2
        splits = [split for task in pickle.loads(pickle.dumps(tasks)) for split in task]
        rows.append([row for split in splits for batch in split.read(["partition", "offset"]) for row in batch.to_pylist()])
    assert rows[0] == rows[1] != []


def test_a_stream_of_spark(folder: Path, tar: str) -> None:
    options = {"subscribe": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 900, "maxTimePerTrigger": "1s"}
    found = [Query({"path": place} | options) for place in (tar, folder)]
    rows = [query.run_all() for query in found]
    for query in found:
        query.reader.stop()
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2 * RECORDS


def test_a_copy(folder: Path, tar: str) -> None:
    copies = []
    for place in (tar, folder):
        with open_source(place) as source:
            planned = plan_copy(source, TOPIC, start_ms=1_500)
        copies.append(
            [
                (part.source, run, batch.record_count)
                for part in planned
                for batch in filter(None, copied_or_skipped(part.splits, CopyRules(), part.start_offset))
                for run in batch.runs
            ]
        )
    assert sum(count for _, _, count in copies[0]) == sum(count for _, _, count in copies[1]) > 0


# --- Nobody asks for the kind

ASKED_BY = ("client/connections/addresses.py", "sources/opening.py")
"""The files that may look at an address: what an address of brokers is, and the table of kinds."""

IS_ADDRESS = "is_address"
CLASSES = {"FolderSource", "BrokerSource", "FolderSplit", "BrokerSplit", "BrokerGroups"}


def names_in(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield each name in a file, and whether it is asked of by isinstance."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, False
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            yield from ((one.id, True) for one in ast.walk(node.args[1]) if isinstance(one, ast.Name))


def test_only_sources_ask_for_the_kind() -> None:
    found = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        where, text = path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
        if not any(name in text for name in (IS_ADDRESS, *CLASSES)):
            continue  # To parse all files takes seconds.
        for name, is_asked in names_in(ast.parse(text)):
            found += name == IS_ADDRESS
            assert name != IS_ADDRESS or where in ASKED_BY, (
                f"{where} looks at an address; sources/opening.py has the table of kinds"
            )
            assert not (is_asked and name in CLASSES), f"{where} asks for a class of sources; ask the source for what is needed"
    assert found >= 1, "the names were found"
