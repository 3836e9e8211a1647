"""The summary of a partition's segments in a bucket: few requests whatever the number of segments, and the folder's answers."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run
from tests.objects.test_object_file import Memory
from tests.reader.build import LogBuilder, batch, marker
from tests.sources.logs import ROW_COLUMNS, rows_of
from tidelog.errors import SegmentChangedError
from tidelog.formats import names
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.partition_metadata import write_topic_id
from tidelog.formats.summary.segment_summary import decode_summary, encode_summary
from tidelog.model import MAX_TIMESTAMP, TopicPartition
from tidelog.objects import stores
from tidelog.objects.address import with_options
from tidelog.objects.listing import ObjectFacts
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.sources.bounds import TimeRange
from tidelog.sources.opening import open_source
from tidelog.sources.scan_plan import ScanRequest

KEY = TopicPartition("t", 0)
SEGMENTS = 40
PER_SEGMENT = 25
VALUE_BYTES = 8_000
MOST_COLD, MOST_WARM = 6, 2


def build(folder: Path, seed: int, *, is_plain: bool) -> Path:
    """A log in many segments, with its indexes, time maps and summary. One that is not plain has late records, records without a
    timestamp, transactions, gaps and an empty last segment.
    """
    chance = random.Random(seed)
    builder = LogBuilder(folder / "t-0", interval_bytes=4096)
    offset = 0
    for number in range(SEGMENTS):
        if number:
            builder.roll(offset + 7 if not is_plain and chance.random() < 0.1 else None)
            offset = builder.next_offset
        for _ in range(PER_SEGMENT):
            time = offset * 1000 + (0 if is_plain or chance.random() < 0.9 else chance.randrange(-200_000, 200_000))
            time = -1 if not is_plain and chance.random() < 0.001 else max(time, 0)
            in_transaction = not is_plain and chance.random() < 0.02
            producer = Producer(7, 0, offset) if in_transaction else None
            value = chance.randbytes(VALUE_BYTES)
            builder.append(batch(offset, [time], value=value, producer=producer, transactional=in_transaction))
            if in_transaction:
                offset += 1
                builder.append(marker(offset, time + 50_000, ControlType.COMMIT, 7))
            offset += 1
    if not is_plain:
        builder.roll()
    builder.close()
    (folder / "t-0" / names.LEADER_EPOCH_CHECKPOINT).write_bytes(LeaderEpochs([EpochEntry(0, 0)]).encode())
    write_topic_id(folder / "t-0" / names.PARTITION_METADATA, uuid.UUID(int=7))
    assert run("index", "rebuild", str(folder), "--interval", "4096").exit_code in (0, 3)  # 3: it has gaps.
    return folder


class Bucket(Memory):
    """A folder's files as objects, whose times can be set."""

    def __init__(self, folder: Path) -> None:
        super().__init__({f"t-0/{path.name}": path.read_bytes() for path in (folder / "t-0").iterdir()})
        self.times: dict[str, int] = {}

    def list(self, prefix: str) -> Iterable[tuple[str, ObjectFacts]]:
        for key, facts in super().list(prefix):
            yield key, facts._replace(modified_ns=self.times.get(key, 1))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("plain"), 1, is_plain=True)


@contextmanager
def served(folder: Path) -> Iterator[Bucket]:
    bucket = Bucket(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stores, "open_store", lambda place, options: bucket)
        yield bucket


def address(cache: Path | None = None) -> str:
    return with_options("s3://bucket", {"cache_bytes": "0"} if cache is None else {"cache_dir": str(cache)})


def found(place: str | Path, time: int) -> tuple[int, int] | None:
    with open_source(place if isinstance(place, str) else str(place)) as source:
        one = source.find({KEY: time})[KEY]
        return None if one is None else (one.offset, one.timestamp)


def rows(place: str | Path, start: int, end: int) -> list[tuple[object, ...]]:
    return rows_of(tidelog.scan(place, "t", start=start, end=end, columns=ROW_COLUMNS))


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_the_folder(tmp_path: Path, seed: int) -> None:
    folder = build(tmp_path / "data", seed, is_plain=False)
    chance = random.Random(seed)
    end = SEGMENTS * PER_SEGMENT * 1000
    with served(folder):
        for time in (0, MAX_TIMESTAMP, *(chance.randrange(end + 200_000) for _ in range(20))):
            assert found(address(), time) == found(folder, time), time
        for _ in range(5):
            start = chance.randrange(end)
            assert rows(address(), start, start + 50_000) == rows(folder, start, start + 50_000)
        with open_source(address()) as bucket, open_source(str(folder)) as local:
            assert bucket.ends([KEY]) == local.ends([KEY])
            assert bucket.missing_in({KEY: (0, None)}) == local.missing_in({KEY: (0, None)})


def test_a_search_takes_few_requests_and_a_range_few_bytes(plain: Path, tmp_path: Path) -> None:
    last = SEGMENTS * PER_SEGMENT - 1
    for share in (0.1, 0.5, 0.9, 1):
        with served(plain) as bucket:
            cache = tmp_path / str(share)
            for most in (MOST_COLD, MOST_WARM):
                bucket.reads.clear()
                assert found(address(cache), int(last * share) * 1000) == (int(last * share), int(last * share) * 1000)
                assert len(bucket.reads) <= most, bucket.reads
    with served(plain) as bucket:
        begin = last * 500
        assert len(rows(address(), begin, begin + last * 10)) in (9, 10, 11)
        logs = sum(len(data) for key, data in bucket.objects.items() if key.endswith(names.LOG_SUFFIX))
        # Blocks of 64 KiB and what is looked at around them weigh more in a log of 8 MB than in one of gigabytes.
        assert sum(end - start for _, start, end in bucket.reads) < 0.1 * logs
        assert len(bucket.reads) <= 10


def test_whole_segments_are_planned_without_a_request(plain: Path) -> None:
    """However many segments: the summary, and the end of the last one. Segments that a time range cuts are looked at."""
    seconds = SEGMENTS * PER_SEGMENT
    with served(plain) as bucket, open_source(address()) as source:
        for time, most in ((TimeRange(None, None), 3), (TimeRange(0, seconds * 1000), 3), (TimeRange(500, None), 9)):
            bucket.reads.clear()
            planned = source.plan(ScanRequest(topic="t", time=time))
            assert len(planned.splits) == SEGMENTS
            assert len(bucket.reads) <= most, bucket.reads
            read = [row for split in planned.splits for batch in split.read(["offset"]) for row in batch.column(0).to_pylist()]
            assert read == list(range(0 if time.start_ms is None or not time.start_ms else 1, seconds))
        cut = source.plan(ScanRequest(topic="t", split_bytes=100_000)).splits
        assert len(cut) == 2 * SEGMENTS
        read = [row for split in cut for batch in split.read(["offset"]) for row in batch.column(0).to_pylist()]
        assert read == list(range(seconds))


def test_a_segment_that_is_not_that_of_the_summary_is_an_error_where_it_is_read(plain: Path) -> None:
    with served(plain) as bucket:
        key = f"t-0/{names.SEGMENT_SUMMARY}"
        facts = decode_summary(bucket.objects[key])
        bucket.objects[key] = encode_summary([facts[0], facts[1]._replace(last_crc=1), *facts[2:]])
        with pytest.raises(
            SegmentChangedError, match=r"segments\.summary in this folder describes a different segment: remove segments\.summary"
        ):
            rows(address(), 0, SEGMENTS * PER_SEGMENT * 1000)


@pytest.mark.parametrize("what", ["no bytes", "no segments", "another partition's", "another version's", "half of the logs"])
def test_a_summary_that_does_not_fit_costs_requests_only(
    plain: Path, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a copy may leave it that is not finished, or that mixed two folders."""
    start, end = SEGMENTS * PER_SEGMENT * 250, SEGMENTS * PER_SEGMENT * 400
    with served(plain) as bucket:
        key = f"t-0/{names.SEGMENT_SUMMARY}"
        expected = rows(plain, start, end)
        match what:
            case "no bytes":
                bucket.objects[key] = b""
            case "no segments":
                bucket.objects[key] = encode_summary([])
            case "another partition's":
                other = build(tmp_path, 2, is_plain=False) / "t-0" / names.SEGMENT_SUMMARY
                bucket.objects[key] = other.read_bytes()
            case "another version's":
                bucket.objects[key] = bucket.objects[key].replace(b"\0\0\0\1", b"\0\0\0\2", 1)
            case _:  # The writer has copied the first half, in the order of the names, and the old summary was there.
                for name in [
                    name for name in bucket.objects if "t-0/0" in name and int(name[4:24]) >= SEGMENTS * PER_SEGMENT // 2
                ]:
                    del bucket.objects[name]
        assert found(address(), start) == found(plain, start)
        assert rows(address(), start, end) == expected
    notes = " ".join(record.getMessage() for record in caplog.records)
    assert ("the segments are read instead" in notes) == (what in ("no bytes", "another version's"))


@pytest.mark.parametrize("change", ["grown", "newer", "replaced", "damaged", "absent"])
def test_a_summary_that_is_not_of_the_logs_is_not_believed(plain: Path, change: str, caplog: pytest.LogCaptureFixture) -> None:
    time = SEGMENTS * PER_SEGMENT * 500
    with served(plain) as bucket:
        summary, logs = f"t-0/{names.SEGMENT_SUMMARY}", sorted(key for key in bucket.objects if key.endswith(names.LOG_SUFFIX))
        # Its first segment has a late record, which the summary does not know; the other files beside it are as if it had none.
        late = batch(0, [time * 9], value=bytes(VALUE_BYTES))
        first = bytearray(bucket.objects[logs[0]])
        assert len(late) == len(batch(0, [0], value=bytes(VALUE_BYTES)))
        first[: len(late)] = late
        expected = (0, time * 9)
        if change == "grown":
            bucket.objects[logs[0]] = bytes(first)
            facts = decode_summary(bucket.objects[summary])
            bucket.objects[summary] = encode_summary([facts[0]._replace(size_bytes=facts[0].size_bytes - 1), *facts[1:]])
        elif change == "newer":
            bucket.objects[logs[0]] = bytes(first)
            bucket.times[logs[0]] = 2
        elif change == "replaced":  # The end of the last segment is read, and is not what the summary says.
            facts = decode_summary(bucket.objects[summary])
            bucket.objects[summary] = encode_summary(
                [*facts[:-1], facts[-1]._replace(last_crc=1, next_offset=facts[-1].next_offset)]
            )
            expected = (time // 1000, time)
        else:
            expected = (time // 1000, time)
            if change == "absent":
                del bucket.objects[summary]
            else:
                bucket.objects[summary] = bucket.objects[summary][:-1] + b"?"
        for name in (names.TIME_INDEX_SUFFIX, names.INDEX_SUFFIX, names.TIME_MAP_SUFFIX):
            bucket.objects.pop(logs[0].replace(names.LOG_SUFFIX, name), None)
        assert found(address(), time) == expected
        assert len(rows(address(), 0, time * 10)) == SEGMENTS * PER_SEGMENT
    notes = " ".join(record.getMessage() for record in caplog.records)
    assert ("a summary of segments is damaged" in notes) == (change == "damaged")
    assert ("describes a different log" in notes) == (change == "replaced")


def test_index_verify_compares_the_summary_with_the_logs(tmp_path: Path) -> None:
    folder = build(tmp_path, 1, is_plain=False)
    assert run("index", "verify", str(folder)).exit_code in (0, 3)
    path = folder / "t-0" / names.SEGMENT_SUMMARY
    facts = decode_summary(path.read_bytes())
    path.write_bytes(encode_summary([facts[0], facts[1]._replace(largest=facts[1].largest - 1), *facts[2:]]))
    verified = run("index", "verify", str(folder))
    assert verified.exit_code == 1
    assert f"{facts[1].base_offset:020d}.log: largest" in verified.stdout
