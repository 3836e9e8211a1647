"""Kafka 3.9.1's own loader as the judge: the same folders in whatever state, loaded and closed by it and by ours.

A log is written at random (segments, transactions, idempotent producers, leader epochs, gaps), closed or killed, and then
something happens to its folder, or several things. What must agree: log start, log end, recovery point; and after the close the
files, byte for byte but for the order of a snapshot's entries.

Where Tidelog does otherwise, a comment that begins with "On purpose" says why.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kafka.jars import classpath
from tests.kafka.java import run_java
from tests.storage.partition_logs import NOW_MS, batch, config, end_txn, messages, open_log, timed
from tidelog.clock import ManualClock
from tidelog.errors import CorruptBatchError, CorruptSnapshotError, TidelogError
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.names import file_name
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler

JUDGE = Path(__file__).parent.parent / "kafka" / "java_sources" / "LoaderJudge.java"
CASES = 240
SEED = int(os.environ.get("LOADING_SEED", "16"))
"""Another one tries other folders."""
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
DELAY_MS = 2**40
TAKEN = "rebuilding all epochs from the log"
"""Part of the warning about a leader-epoch-checkpoint that is lost, or that the batches contradict."""


def rises(number: int) -> bool:
    """Whether no batch of a case's log has an older leader epoch than one before it."""
    return number % 5 in (1, 4)


class Case(NamedTuple):
    """What a folder was loaded with, and what had happened to it."""

    number: int
    properties: dict[str, Any]
    clean: bool
    recovery_point: int
    log_start_offset: int
    end_offset: int
    happened: list[str]

    def question(self, folder: Path) -> str:
        properties = ";".join(f"{name.replace('_', '.')}={value}" for name, value in self.properties.items())
        clean, recovery_point = self.clean, self.recovery_point
        if (
            clean
            and "no snapshots" in self.happened
            and self.log_start_offset <= self.end_offset
            and not list(folder.glob("*.snapshot"))
        ):
            # On purpose: Kafka forgets the producers of such a log, but not of one that was flushed and not closed.
            clean, recovery_point = False, 2**62
        fields = (folder, properties, str(clean).lower(), recovery_point, self.log_start_offset, NOW_MS + 10**6)
        return "\t".join(map(str, fields)) + "\n"


# --- a log


class Writer:
    """Fills a log with what loading has to do with."""

    def __init__(self, log: PartitionLog, chance: random.Random, magic: int, *, rises: bool) -> None:
        """`rises`: whether the markers have the epoch that the log is in; else they have 0, and epochs go back."""
        self.rises = rises
        self.log = log
        self.chance = chance
        self.magic = magic
        self.epoch = 0
        self.sequences = dict.fromkeys(range(1, 5), 0)
        self.open: set[int] = set()

    def write(self) -> None:
        chance = self.chance
        if chance.random() < 0.03:
            self.epoch += chance.choice([1, 1, 3])
        if chance.random() < 0.04:
            self.log.roll()
        timestamp = NOW_MS + chance.randrange(100_000)
        if self.magic < 2:
            codec = chance.choice([Codec.NONE, Codec.NONE, Codec.GZIP])
            self.log.append_as_leader(messages(0, timestamp, chance.randrange(1, 5), magic=self.magic, codec=codec), self.epoch)
        elif chance.random() < 0.5:
            times = [timestamp + chance.randrange(50) for _ in range(chance.randrange(1, 6))]
            self.log.append_as_leader(timed(times), self.epoch)
        elif chance.random() < 0.1:
            self.log.append_as_follower(batch(self.log.log_end_offset + chance.randrange(20), timestamp, leader_epoch=self.epoch))
        else:
            self._write_as_producer(timestamp)

    def _write_as_producer(self, timestamp: int) -> None:
        producer_id = self.chance.choice(list(self.sequences))
        if producer_id > 2 and producer_id in self.open and self.chance.random() < 0.4:
            kind = self.chance.choice([ControlType.ABORT, ControlType.COMMIT])
            end_txn(self.log, kind, producer_id, leader_epoch=self.epoch if self.rises else 0)
            self.open.discard(producer_id)
            return
        count = self.chance.randrange(1, 4)
        producer = Producer(producer_id, 0, self.sequences[producer_id])
        data = batch(0, timestamp, count, producer=producer, transactional=producer_id > 2)
        self.log.append_as_leader(data, self.epoch)
        self.sequences[producer_id] += count
        if producer_id > 2:
            self.open.add(producer_id)


# --- what happens to a folder; each says what it did, or None if it found nothing to do it to


class Folder:
    def __init__(self, path: Path, chance: random.Random, *, clean: bool) -> None:
        self.path = path
        self.chance = chance
        self.clean = clean
        self.happened: list[str] = []

    @property
    def bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self.path.glob("*.log"))

    def file(self, base: int, suffix: str) -> Path:
        return self.path / file_name(base, suffix)

    def any_base(self) -> int:
        return self.chance.choice(self.bases)

    def snapshots(self) -> list[Path]:
        return sorted(self.path.glob("*.snapshot"))


def torn_end(folder: Folder) -> str | None:
    """On purpose not after a clean end: Kafka takes such a log as it is, and would append after the torn batch."""
    path = folder.file(folder.bases[-1], ".log")
    data = path.read_bytes().rstrip(b"\0")
    if folder.clean or len(data) < 100:
        return None
    path.write_bytes(data[: -folder.chance.randrange(1, 60)])
    return "torn end"


def garbage_at_the_end(folder: Folder) -> str | None:
    if folder.clean:
        return None
    what = folder.chance.choice([bytes(300), folder.chance.randbytes(200), b"\xff" * 80, bytes(5)])
    with folder.file(folder.bases[-1], ".log").open("ab") as file:
        file.write(what)
    return "garbage"


def flipped_bit(folder: Folder) -> str | None:
    """On purpose not with a missing or broken index: there Kafka recovers twice, and keeps what follows the damage.

    On purpose not where no checksum covers it, in a base offset (Kafka empties the segment or gives the log up), nor in the
    magic (which Kafka takes for v2 then).
    """
    if folder.clean or any(not folder.file(base, ".index").exists() for base in folder.bases):
        return None
    if "broken transaction index" in folder.happened:
        return None
    path = folder.file(folder.any_base(), ".log")
    data = bytearray(path.read_bytes())
    if len(data) < 100:
        return None
    places: list[int] = []
    with contextlib.suppress(CorruptBatchError):  # A tail that was torn before.
        for header in iter_headers(data):
            places += {*range(header.position + 8, header.end_position)} - {header.position + 16}
    if not places:
        return None
    data[folder.chance.choice(places)] ^= 1 << folder.chance.randrange(8)
    path.write_bytes(data)
    return "flipped bit"


def no_index(folder: Folder) -> str | None:
    folder.file(folder.any_base(), ".index").unlink(missing_ok=True)
    return "no index"


def no_indexes(folder: Folder) -> str | None:
    for path in folder.path.glob("*index"):
        path.unlink()
    return "no indexes"


def blank_indexes(folder: Folder) -> str | None:
    """On purpose not below the recovery point: Kafka takes them as they are there, Tidelog rebuilds them."""
    if folder.clean:
        return None
    for suffix in (".index", ".timeindex"):
        folder.file(folder.bases[-1], suffix).write_bytes(b"  ")
    return "blank indexes"


def broken_txn_index(folder: Folder) -> str | None:
    """Not too short by a part of an entry: Kafka reads those up to there, and says nothing."""
    found = [path for path in folder.path.glob("*.txnindex") if path.stat().st_size]
    if not found:
        return None
    path = folder.chance.choice(found)
    base = int(path.stem)
    if base == 0:
        return None
    path.write_bytes(path.read_bytes()[:18] + (base - 1).to_bytes(8, "big") + bytes(8))
    return "broken transaction index"


def orphans(folder: Folder) -> str | None:
    base = folder.bases[-1] + 1 + folder.chance.randrange(5)
    for suffix in SUFFIXES[1:]:
        folder.file(base, suffix).write_bytes(bytes(24))
    return "orphan indexes"


def deleted_files(folder: Folder) -> str | None:
    base = folder.any_base()
    for suffix in SUFFIXES:
        (folder.path / f"{file_name(base, suffix)}.deleted").write_bytes(b"old")
    return "deleted files"


def stray_snapshots(folder: Folder) -> str | None:
    source = folder.snapshots()
    if not source:
        return None
    for _ in range(folder.chance.randrange(1, 4)):
        shutil.copy(folder.chance.choice(source), folder.file(folder.chance.randrange(folder.bases[-1] + 300), ".snapshot"))
    return "stray snapshots"


def damaged_snapshot(folder: Folder) -> str | None:
    if not folder.snapshots():
        return None
    path = folder.chance.choice(folder.snapshots())
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    return "damaged snapshot"


def no_snapshots(folder: Folder) -> str | None:
    for path in folder.snapshots():
        if folder.chance.random() < 0.7:
            path.unlink()
    return "no snapshots"


def no_epochs(folder: Folder) -> str | None:
    (folder.path / "leader-epoch-checkpoint").unlink(missing_ok=True)
    return "no epochs"


def first_segments_gone(folder: Folder) -> str | None:
    if len(folder.bases) < 3:
        return None
    for base in folder.bases[: folder.chance.randrange(1, 3)]:
        for suffix in SUFFIXES:
            folder.file(base, suffix).unlink(missing_ok=True)
    return "first segments gone"


def last_segment_gone(folder: Folder) -> str | None:
    if len(folder.bases) < 3:
        return None
    base = folder.bases[-1]
    for suffix in SUFFIXES:
        folder.file(base, suffix).unlink(missing_ok=True)
    return "last segment gone"


def interrupted_replacement(folder: Folder) -> str | None:
    """Two neighbours become one: at each stage of that (`segment_replacement`).

    On purpose not without an index: Kafka then makes one of zeros for the ``.swap``, and takes it over.
    """
    if len(folder.bases) < 4 or any(not folder.file(base, ".index").exists() for base in folder.bases):
        return None
    at = folder.chance.randrange(len(folder.bases) - 2)
    first, second = folder.bases[at : at + 2]
    if first == 0 and folder.file(second, ".log").stat().st_size == 0:
        return None
    stage = folder.chance.choice(["cleaned", "log is swap", "swap", "old one deleted", "all old deleted", "log in place"])
    new = {suffix: folder.file(first, suffix).read_bytes() for suffix in SUFFIXES if folder.file(first, suffix).exists()}
    new[".log"] += folder.file(second, ".log").read_bytes()
    new[".txnindex"] = b"".join(
        folder.file(base, ".txnindex").read_bytes() for base in (first, second) if folder.file(base, ".txnindex").exists()
    )
    if stage in ("old one deleted", "all old deleted", "log in place"):
        for base in (first, second)[: 1 if stage == "old one deleted" else 2]:
            for suffix in SUFFIXES:
                path = folder.file(base, suffix)
                if path.exists():
                    path.rename(f"{path}.deleted")
    for suffix, data in new.items():
        if suffix == ".txnindex" and not data:
            continue
        ending = ".cleaned" if stage == "cleaned" or (stage == "log is swap" and suffix != ".log") else ".swap"
        if stage == "log in place" and suffix == ".log":
            ending = ""
        (folder.path / (file_name(first, suffix) + ending)).write_bytes(data)
    return f"interrupted replacement: {stage}"


HAPPENINGS: list[Callable[[Folder], str | None]] = [
    torn_end,
    garbage_at_the_end,
    flipped_bit,
    no_index,
    no_indexes,
    blank_indexes,
    broken_txn_index,
    orphans,
    deleted_files,
    stray_snapshots,
    damaged_snapshot,
    no_snapshots,
    no_epochs,
    first_segments_gone,
    last_segment_gone,
    interrupted_replacement,
]


def write_case(number: int, directory: Path) -> Case:
    chance = random.Random(1000 * SEED + number)
    magic = chance.choice([2, 2, 2, 2, 1, 0])
    properties: dict[str, Any] = {
        "segment_bytes": chance.choice([600, 1500, 4000]),
        "segment_index_bytes": chance.choice([240, 1000]),
        "index_interval_bytes": chance.choice([0, 100, 500]),
        "preallocate": chance.choice(["false", "false", "true"]),
        "file_delete_delay_ms": DELAY_MS,
        "retention_ms": -1,
    }
    if magic < 2:
        properties["message_format_version"] = ("0.9.0", "0.10.2")[magic]
    log = open_log(directory, **properties)
    writer = Writer(log, chance, magic, rises=rises(number))
    for _ in range(chance.choice([0, 5, 40, 80])):
        writer.write()
    clean = chance.random() < 0.4
    if clean:
        log.flush(force_active=True)
        log.close()
    else:
        if chance.random() < 0.5:
            log.flush()
        log.close_handlers()
    recovery_point = chance.choice([0, log.recovery_point, chance.randrange(log.log_end_offset + 1)])
    log_start_offset = chance.choice([0, 0, 0, chance.randrange(log.log_end_offset + 1), log.log_end_offset + 5])
    folder = Folder(directory / "log-0", chance, clean=clean)
    chosen = chance.sample(HAPPENINGS, chance.choice([0, 1, 1, 2, 3]))
    for happening in sorted(chosen, key=lambda one: one is flipped_bit):
        done = happening(folder)
        folder.happened += [done] if done is not None else []
    return Case(number, properties, clean, recovery_point, log_start_offset, log.log_end_offset, folder.happened)


# --- ours and theirs


def load_and_close(case: Case, folder: Path) -> str:
    """What the judge does, by ours."""
    clock = ManualClock(NOW_MS + 10**6)
    scheduler = Scheduler(clock)
    try:
        log = load(
            folder,
            config(**case.properties),
            clock,
            scheduler,
            had_clean_shutdown=case.clean,
            recovery_point=case.recovery_point,
            log_start_offset=case.log_start_offset,
        )
    except TidelogError as error:
        return f"error {error}"
    verdict = f"{log.log_start_offset} {log.log_end_offset} {log.recovery_point} {len(log.segments)}"
    log.flush(force_active=True)
    log.close()
    return verdict


def contents(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in folder.iterdir():
        if path.name.endswith(".deleted"):
            continue
        if path.suffix == ".snapshot":
            try:
                found[path.name] = sorted(read_snapshot(path))
            except CorruptSnapshotError:
                found[path.name] = path.read_bytes()  # Nobody had to read it.
        elif path.name == "leader-epoch-checkpoint":
            found[path.name] = LeaderEpochs.read(path).entries
        elif path.suffix in SUFFIXES:
            found[path.name] = path.read_bytes()
        elif path.name != "partition.metadata":
            found[path.name] = None
    if found.get("leader-epoch-checkpoint") == []:
        del found["leader-epoch-checkpoint"]
    return found


def epochs_of(folder: Path, log_start_offset: int) -> list[EpochEntry]:
    """What the batches of a log say whose epochs only rise."""
    found = LeaderEpochs()
    for path in sorted(folder.glob("*.log")):
        for header in iter_headers(path.read_bytes()):
            found.assign(header.leader_epoch, header.base_offset)
    found.truncate_from_start(log_start_offset)
    return found.entries


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, str, Path, Path]]:
    """Each case, Kafka's verdict, the folder as Kafka left it, and one that is still to be loaded."""
    root = tmp_path_factory.mktemp("loading")
    cases = []
    for number in range(CASES):
        (root / str(number) / "ours").mkdir(parents=True)
        cases.append(write_case(number, root / str(number) / "ours"))
        shutil.copytree(root / str(number) / "ours" / "log-0", root / str(number) / "kafkas" / "log-0")
    questions, verdicts = root / "questions", root / "verdicts"
    questions.write_text("".join(case.question(root / str(case.number) / "kafkas" / "log-0") for case in cases))
    run_java(classpath("3.9.1"), str(JUDGE), [questions, verdicts], heap_mb=512)
    lines = verdicts.read_text().splitlines()
    assert len(lines) == len(cases)
    return [
        (case, line, root / str(case.number) / "kafkas" / "log-0", root / str(case.number) / "ours" / "log-0")
        for case, line in zip(cases, lines, strict=True)
    ]


@pytest.mark.parametrize("number", range(CASES))
def test_same_as_kafka(judged: list[tuple[Case, str, Path, Path]], number: int, caplog: pytest.LogCaptureFixture) -> None:
    case, verdict, theirs, ours = judged[number]
    found = load_and_close(case, ours)
    if "append to a full index" in verdict:
        return  # On purpose: entries that there is no room for are left out; Kafka gives the log up.
    assert found == verdict, case
    expected_files, found_files = contents(theirs), contents(ours)
    if "message_format_version" in case.properties:
        # On purpose: in the old formats Kafka leaves an empty snapshot of a segment that it cut off.
        end = f"{int(verdict.split()[1]):020d}.snapshot"
        for name in [name for name in {*found_files, *expected_files} if name.endswith(".snapshot") and name > end]:
            found_files.pop(name, None)
            expected_files.pop(name, None)
    if TAKEN in caplog.text:
        # On purpose: where the file is lost, Kafka goes on with the epochs of the segments that it recovers; and what a batch of
        # an older epoch has dropped stays dropped there, though that batch was cut off as damaged. Never otherwise.
        is_cut_back = not rises(number) and int(verdict.split()[1]) < case.end_offset
        assert "no epochs" in case.happened or is_cut_back, case
        expected_files["leader-epoch-checkpoint"] = epochs_of(ours, int(verdict.split()[0]))
    only = sorted(set(found_files) ^ set(expected_files))
    assert not only, (only, sorted(expected_files), case)
    if "no epochs" in case.happened and not case.clean and TAKEN not in caplog.text:
        # On purpose: Kafka recovers segments without an index before those below them, and gets the epochs in the wrong order.
        expected_files.pop("leader-epoch-checkpoint", None)
    if "no index" in case.happened and "no producer snapshot is left" in caplog.text:
        # On purpose: Kafka removes all snapshots when it builds an index below the log start, and forgets the producers.
        expected_files = {
            name: expected for name, expected in expected_files.items() if expected or not name.endswith(".snapshot")
        }
    for name, expected in expected_files.items():
        assert found_files[name] == expected, (name, case)
