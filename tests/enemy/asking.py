"""Every way to ask a folder, each with what must come, what came, and how loudly it was said that something is wrong.

| loudness | |
|---|---|
| 0 | nothing was said |
| 1 | a note or a warning |
| 2 | an error, or exit code 3: the answer is known not to be all |
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidelog
from tests.cli.conftest import run
from tests.enemy.folders import Folder
from tests.enemy.truth import PartitionTruth
from tidelog.clock import ManualClock
from tidelog.errors import TidelogError
from tidelog.model import LATEST, MAX_TIMESTAMP, TopicPartition
from tidelog.sources.plan import plan
from tidelog.sources.split_reader import read_split
from tidelog.storage.segment import walked_headers
from tidelog.testing import Broker

Truths = dict[TopicPartition, PartitionTruth]

CLOCK = ManualClock(1_700_000_000_000 + 400 * 24 * 3600 * 1000)
HARMLESS = ("without a timestamp left out", "because the scan has a time bound", "the configuration of", "digits alone")
"""What a sound folder has said of it, too."""
RESOLVED = " ms, "


class Answer(NamedTuple):
    """One question, its true answer, the one that came, and what was said."""

    question: str
    true: Any
    came: Any
    loudness: int
    said: str


class Asked(NamedTuple):
    """What a question may choose from."""

    folder: Folder
    truths: Truths
    rng: random.Random

    @property
    def topics(self) -> list[str]:
        return sorted({key.topic for key in self.folder.keys})

    def of(self, topic: str) -> list[PartitionTruth]:
        return [self.truths[key] for key in sorted(self.folder.keys) if key.topic == topic]

    def any_topic(self) -> str:
        return self.rng.choice(self.topics)

    def any_key(self) -> TopicPartition:
        return self.rng.choice(self.folder.keys)

    def times(self, topic: str, count: int) -> list[int]:
        known = sorted({row.timestamp for one in self.of(topic) for row in one.rows if row.timestamp >= 0})
        known = [time + shift for time in known for shift in (0, 1)] or [1]
        return [self.rng.choice(known) for _ in range(count)]


Question = Callable[[Asked], Iterator[Answer]]


# --- the command line


def _ran(question: list[object], true: Any, read: Callable[[list[Any]], Any]) -> Answer:
    with _heard():
        ran = run(*question, clock=CLOCK)
    lines = [line for line in ran.stderr.splitlines() if line.startswith(("note: ", "tidelog: ", "missing: ", "fault: "))]
    told = [line for line in lines if not any(one in line for one in HARMLESS)]
    loudness = 2 if ran.exit_code else int(bool(told))
    # An answer that ended in an error is none.
    came = None if ran.exit_code not in (0, 3) else read(ran.json_lines)
    return Answer(" ".join(str(one) for one in question), true, came, loudness, "\n".join(told))


def find(asked: Asked) -> Iterator[Answer]:
    topic = asked.any_topic()
    truths = asked.of(topic)
    for at in [*asked.times(topic, 2), asked.rng.choice(["earliest", "latest", "max"])]:
        if at not in ("earliest", "latest") and any(one.is_v0 for one in truths):
            continue
        true = {one.key.partition: _target(one, at) for one in truths}
        extra = asked.rng.choice([[], [], ["--explain"]])
        yield _ran(["find", asked.folder.path, topic, "--at", at, "--json", *extra], true, _found)


def _target(truth: PartitionTruth, at: object) -> tuple[int, int] | None:
    match at:
        case "earliest":
            return (truth.log_start, -1)
        case "latest":
            return (truth.end, -1)
        case "max":
            return truth.find_max()
    assert isinstance(at, int)
    return truth.find(at)


def _found(lines: list[Any]) -> Any:
    return {line["partition"]: None if line["offset"] < 0 else (line["offset"], line["timestamp"]) for line in lines}


def cat(asked: Asked) -> Iterator[Answer]:
    topic = asked.any_topic()
    start, end = _range(asked, topic)
    is_committed = asked.rng.random() < 0.3
    true = [
        (one.key.partition, row.offset, row.timestamp if row.timestamp >= 0 else None, _hex(row.key), _hex(row.value))
        for one in asked.of(topic)
        for row in one.data(start, end, is_committed=is_committed)
    ]
    question: list[object] = ["cat", asked.folder.path, topic, "--format", "jsonl", "--encoding", "base64"]
    question += [] if start is None else ["--from", start]
    question += [] if end is None else ["--to", end]
    question += ["--isolation", "read_committed"] if is_committed else []
    question += _maps(asked)
    yield _ran(
        question,
        true,
        lambda lines: [
            (one["partition"], one["offset"], one["timestamp"], _base64(one["key"]), _base64(one["value"])) for one in lines
        ],
    )


def _range(asked: Asked, topic: str) -> tuple[int | None, int | None]:
    start, end = sorted(asked.times(topic, 2))
    return (None if asked.rng.random() < 0.2 else start, None if asked.rng.random() < 0.3 else end)


def _maps(asked: Asked) -> list[object]:
    return ["--time-map-dir", asked.folder.time_map_dir] if asked.folder.time_map_dir is not None else []


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _base64(text: str | None) -> str | None:
    import base64

    return None if text is None else base64.b64decode(text).hex()


def stat(asked: Asked) -> Iterator[Answer]:
    topic = asked.any_topic()
    is_quick = asked.rng.random() < 0.3
    partitions, segments = {}, {}
    for one in asked.of(topic):
        key = one.key.partition
        largest = max((segment.largest_timestamp for segment in one.segments), default=-1)
        partitions[key] = (one.log_start, one.end, largest if largest >= 0 else None, None if is_quick else len(one.data()))
        for segment in one.segments:
            found = segment.largest_timestamp if segment.largest_timestamp >= 0 else None
            segments[key, segment.base_offset] = (segment.next_offset, found)

    def read(lines: list[Any]) -> Any:
        times = {
            id(one): None if one.get("largest_timestamp_source") == "mtime" else one.get("largest_timestamp") for one in lines
        }
        return (
            {
                one["partition"]: (one["log_start_offset"], one["log_end_offset"], times[id(one)], one["records"])
                for one in lines
                if one["type"] == "partition"
            },
            {
                (one["partition"], one["base_offset"]): (one["next_offset"], times[id(one)])
                for one in lines
                if one["type"] == "segment"
            },
        )

    yield _ran(["stat", asked.folder.path, topic, "--json", *(["--quick"] if is_quick else [])], (partitions, segments), read)


def retention(asked: Asked) -> Iterator[Answer]:
    topic = asked.any_topic()
    true = {
        (one.key.partition, segment.base_offset): segment.largest_timestamp
        for one in asked.of(topic)
        for segment in one.segments
        if segment.largest_timestamp >= 0
    }
    yield _ran(
        ["retention", asked.folder.path, topic, "--retention", "1h", "--json"],
        true,
        lambda lines: {
            (one["partition"], one["base_offset"]): one["largest_timestamp"]
            for one in lines
            if one.get("type") != "missing" and (one["partition"], one["base_offset"]) in true
        },
    )


# --- Python


@contextmanager
def _heard() -> Iterator[logging.Logger]:
    """Let warnings through, whatever level the tests have set for loggers above: commands print them, too."""
    logger = logging.getLogger("tidelog")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield logger
    finally:
        logger.setLevel(level)


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect what is logged and warned."""
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Handler(logging.WARNING)
    with _heard() as logger:
        logger.addHandler(handler)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                yield said
            said += [f"WARNING {one.message}" for one in caught]
        finally:
            logger.removeHandler(handler)


def _called(question: str, true: Any, ask: Callable[[], tuple[Any, bool]]) -> Answer:
    """Ask; the second of what `ask` returns is whether the answer is called complete."""
    with _listening() as said:
        try:
            came, is_complete = ask()
        except TidelogError as error:
            came, is_complete = None, False
            said.append(str(error))
    told = [one for one in said if not any(text in one for text in HARMLESS)]
    loud = not is_complete or any(one.startswith("WARNING ") for one in told)
    return Answer(question, true, came, 2 if loud else int(bool(told)), "\n".join(told))


def api_find(asked: Asked) -> Iterator[Answer]:
    key = asked.any_key()
    truth = asked.truths[key]
    times = asked.times(key.topic, 5)
    targets = [] if truth.is_v0 else [*times, MAX_TIMESTAMP]
    true = [*(truth.find_max() if at == MAX_TIMESTAMP else truth.find(at) for at in targets), (truth.end, -1)]

    def ask() -> tuple[Any, bool]:
        with tidelog.LogDir(asked.folder.path).log(*key) as log:
            found = [tidelog.find_offset(log, at) for at in [*targets, LATEST]]
        return [None if one is None else (one.offset, one.timestamp) for one in found], True

    yield _called(f"find_offset {key} {targets}", true, ask)


def scan(asked: Asked) -> Iterator[Answer]:
    topic = asked.any_topic()
    start, end = _range(asked, topic)
    is_committed = asked.rng.random() < 0.3
    true = [(one.key.partition, row.offset) for one in asked.of(topic) for row in one.data(start, end, is_committed=is_committed)]

    def ask() -> tuple[Any, bool]:
        report = tidelog.ScanReport()
        reader = tidelog.scan(
            asked.folder.path,
            topic,
            start,
            end,
            ["partition", "offset"],
            isolation="read_committed" if is_committed else "read_uncommitted",
            time_map_dir=asked.folder.time_map_dir,
            report=report,
        )
        table = reader.read_all()
        return list(zip(table[0].to_pylist(), table[1].to_pylist(), strict=True)), report.is_complete

    yield _called(f"scan {topic} {start} {end} committed={is_committed}", true, ask)


def splits(asked: Asked) -> Iterator[Answer]:
    """Ask for a range of offsets and times in small splits, as Spark does."""
    key = asked.any_key()
    truth = asked.truths[key]
    start, end = _range(asked, key.topic)
    offsets = [row.offset for row in truth.rows] or [0]
    first, last = sorted((asked.rng.choice(offsets), asked.rng.choice(offsets)))
    true = [row.offset for row in truth.data(start, end) if first <= row.offset < last]
    split_bytes = asked.rng.choice([64, 500, 5000])

    def ask() -> tuple[Any, bool]:
        found = plan(
            tidelog.LogDir(asked.folder.path),
            key.topic,
            start=start,
            end=end,
            partitions=[key.partition],
            offsets={key.partition: (first, last)},
            split_bytes=split_bytes,
            time_map_dir=asked.folder.time_map_dir,
        )
        for note in found.notes:
            logging.getLogger("tidelog").warning("%s", note)
        rows: list[int] = []
        for split in found.splits:
            for batch in read_split(split, ["offset"]):
                rows += batch.column(0).to_pylist()
        return rows, found.known.is_complete

    yield _called(f"splits {key} {start} {end} {first} {last} {split_bytes}", true, ask)


# --- a broker


@contextmanager
def _few_headers_at_once() -> Iterator[None]:
    """Let the broker take batches for far apart that are few and small: what it believes of a large log shows in a small one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walked_headers, "POINT_BATCHES", 3)
        patch.setattr(walked_headers, "POINT_BYTES", 300)
        yield


def served(asked: Asked) -> Iterator[Answer]:
    """Serve the folder read-only, or a copy of it as our own, and ask it with a client."""
    is_read_only = asked.rng.random() < 0.7
    path = asked.folder.path
    if not is_read_only:
        path = path.parent / "served"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(asked.folder.path, path)
    topic = asked.any_topic()
    truths = asked.of(topic)
    times = [] if any(one.is_v0 for one in truths) else asked.times(topic, 3)
    start, end = _range(asked, topic)
    true = (
        [[one.find(at) for one in truths] for at in times],
        [(one.log_start, one.end) for one in truths],
        [(one.key.partition, row.offset) for one in truths for row in one.data(start, end)],
    )

    def ask() -> tuple[Any, bool]:
        keys = [one.key for one in truths]
        with (
            _few_headers_at_once() if asked.rng.random() < 0.7 else nullcontext(),
            Broker(path, clock=CLOCK, read_only=is_read_only, log_retention_ms=-1, log_cleaner_enable=False) as broker,
            tidelog.connect(broker.bootstrap_servers, clock=CLOCK) as client,
        ):
            found = []
            for at in times:
                answers = client.offsets_for_times(dict.fromkeys(keys, at))
                found.append([(one.offset, one.timestamp) if (one := answers[key]) else None for key in keys])
            earliest, latest = client.earliest_offsets(keys), client.latest_offsets(keys)
            rows = [(one.partition, one.offset) for one in client.read(topic, from_time=start, to_time=end)]
        return (found, [(earliest[key], latest[key]) for key in keys], rows), True

    yield _called(f"serve {topic} read_only={is_read_only} times {times} range {start} {end}", true, ask)


def verify(asked: Asked) -> Iterator[Answer]:
    """What verify says is no answer by itself: whether it finds a fault is the caller's to judge."""
    path = asked.folder.path
    with _heard():
        ran = run("verify", path, "--json", *_maps(asked), clock=CLOCK)
    found = (
        [one for one in ran.json_lines if one.get("type") in ("missing", "fault")] if ran.exit_code in (0, 3) else [ran.stderr]
    )
    yield Answer("verify", None, None, 2 if ran.exit_code else 0, "\n".join(json.dumps(one) for one in found))


CHEAP: tuple[Question, ...] = (find, cat, stat, retention, api_find, scan, splits)


def whole(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
