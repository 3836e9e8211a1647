"""One segment read: LogSegmentTest and FileRecordsTest, as far as they are about reading and searching.

As upstream, `messages` are v1, one message a batch, with timestamp = 10 × offset.
"""

from __future__ import annotations

import os
import pickle
import random
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.reader import build
from tests.reader.build import LogBuilder, segment_of
from tidelog.errors import CorruptBatchError, NotFoundError, SegmentChangedError, StorageError
from tidelog.formats.batch_walk import walk
from tidelog.formats.files import ReadOnlyFile
from tidelog.reader.log import Log
from tidelog.reader.segment import Segment
from tidelog.reader.segment_time import find_offset_by_timestamp, largest_timestamp, retention_timestamp
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType


def messages(offsets: Iterable[int]) -> list[bytes]:
    return [build.batch(offset, [10 * offset], magic=1, value=b"hello") for offset in offsets]


SIZE = len(messages([40])[0])


def offsets(segment: Segment, position: int = 0) -> list[int]:
    return [header.last_offset for header in segment.headers(position)]


def read_from(segment: Segment, offset: int) -> list[int] | None:
    """What a fetch from `offset` starts with; None if the segment has nothing there."""
    header = segment.translate_offset(offset)
    return None if header is None else offsets(segment, header.position)


def found(segment: Segment, timestamp: int) -> int | None:
    record = find_offset_by_timestamp(segment, timestamp, segment.base_offset)
    return None if record is None else record.offset


class TestReading:
    def test_read_on_empty_segment(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReadOnEmptySegment"""
        segment = segment_of(tmp_path / "t-0", [], base_offset=40)
        assert segment.translate_offset(40) is None
        assert offsets(segment) == []

    def test_read_before_first_offset(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReadBeforeFirstOffset"""
        assert read_from(segment_of(tmp_path / "t-0", messages(range(50, 54)), base_offset=40), 41) == [50, 51, 52, 53]

    def test_read_after_last(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReadAfterLast"""
        assert read_from(segment_of(tmp_path / "t-0", messages([50, 51]), base_offset=40), 52) is None

    def test_read_from_gap(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReadFromGap"""
        segment = segment_of(tmp_path / "t-0", messages([50, 51, 60, 61]), base_offset=40)
        assert read_from(segment, 55) == [60, 61]

    def test_next_offset_calculation(self, tmp_path: Path) -> None:
        """LogSegmentTest.testNextOffsetCalculation"""
        assert segment_of(tmp_path / "a-0", [], base_offset=40).next_offset == 40
        assert segment_of(tmp_path / "b-0", messages([50, 51, 52]), base_offset=40).next_offset == 53

    def test_change_file_suffixes(self, tmp_path: Path) -> None:
        """LogSegmentTest.testChangeFileSuffixes: a segment listed before its files got ``.deleted`` is read with its indexes"""
        segment = segment_of(tmp_path / "t-0", messages(range(40, 60)), base_offset=40)
        for path in list((tmp_path / "t-0").iterdir()):
            path.rename(f"{path}.deleted")
        assert read_from(segment, 55) == [55, 56, 57, 58, 59]
        assert segment.offset_index is not None and str(segment.offset_index.path).endswith(".index.deleted")
        assert found(segment, 441) == 45

    @pytest.mark.parametrize("zeros", [1, 17, 18, 61, 5_000_000])
    def test_preallocated_file(self, tmp_path: Path, zeros: int, caplog: pytest.LogCaptureFixture) -> None:
        """LogSegmentTest.testCreateWithInitFileSizeAppendMessage, testCreateWithInitFileSizeClearShutdown: zeros are no data"""
        segment = segment_of(tmp_path / "t-0", messages(range(40, 60)), base_offset=40)
        with segment.log_path.open("ab") as file:
            file.truncate(20 * SIZE + zeros)
        segment = Segment.open(segment.log_path)
        assert offsets(segment) == list(range(40, 60))
        assert (segment.end_position, segment.size_bytes) == (20 * SIZE, 20 * SIZE + zeros)
        assert not caplog.records

    def test_large_batches_are_hopped_over(self, tmp_path: Path) -> None:
        big = [build.batch(i, [i], value=bytes(1_500_000)) for i in range(6)]
        segment = segment_of(tmp_path / "t-0", big)
        assert segment.next_offset == 6
        before = segment.bytes_read
        assert offsets(segment) == list(range(6))
        assert segment.bytes_read - before < 100_000
        assert [header.last_offset for header in segment.headers(check_crc=True)] == list(range(6))
        # A length that damage made huge is found out by the file's size, not by reading that much.
        data = bytearray(segment.log_path.read_bytes())
        data[8:12] = (1_000_000_000).to_bytes(4, "big")
        segment.log_path.write_bytes(data)
        with pytest.raises(CorruptBatchError, match="truncated") as raised:
            offsets(Segment.open(segment.log_path))
        assert raised.value.position == 0

    def test_up_to_a_position(self, tmp_path: Path) -> None:
        """FileRecordsTest.testIteratorWithLimits, testRead: whole batches only"""
        segment = segment_of(tmp_path / "t-0", messages(range(10)))
        ends = range(10 * SIZE + 5)
        for start in (0, 3):
            for end in ends:
                got = [header.last_offset for header in segment.headers(start * SIZE, end)]
                assert got == list(range(start, max(start, min(10, end // SIZE))))

    def test_iteration_does_not_change_position(self, tmp_path: Path) -> None:
        """FileRecordsTest.testIterationDoesntChangePosition: two walks at once do not disturb each other"""
        segment = segment_of(tmp_path / "t-0", messages(range(100)))
        for one, other in zip(segment.headers(), segment.headers(), strict=True):
            assert one == other
            assert bytes(segment.read_batch(one)) == messages([one.last_offset])[0]

    def test_file_size(self, tmp_path: Path) -> None:
        """FileRecordsTest.testFileSize"""
        segment = segment_of(tmp_path / "t-0", messages(range(20)))
        assert segment.size_bytes == segment.end_position == 20 * SIZE == segment.log_path.stat().st_size


class TestSearch:
    def test_search(self, tmp_path: Path) -> None:
        """FileRecordsTest.testSearch: where an offset is, by position and size"""
        appended = messages([50, 51, 60, 70])
        segment = segment_of(tmp_path / "t-0", appended, base_offset=50)
        for target, index in ((0, 0), (50, 0), (51, 1), (52, 2), (60, 2), (61, 3), (70, 3)):
            header = segment.translate_offset(target)
            assert header is not None and (header.position, header.size) == (index * SIZE, SIZE)
        assert segment.translate_offset(71) is None

    def test_search_for_timestamp(self, tmp_path: Path) -> None:
        """FileRecordsTest.testSearchForTimestamp"""
        for magic in (1, 2):
            batches = [build.batch(5, [10], magic=magic, epoch=0), build.batch(6, [11], magic=magic, epoch=1)]
            segment = segment_of(tmp_path / f"t-{magic}", batches, base_offset=5)
            for target, expected in ((9, (5, 10, 0)), (10, (5, 10, 0)), (11, (6, 11, 1)), (12, None)):
                record = find_offset_by_timestamp(segment, target, 0)
                got = None if record is None else (record.offset, record.timestamp, record.header.leader_epoch)
                assert got == (expected if expected is None or magic == 2 else (*expected[:2], -1))

    def test_find_offset_by_timestamp(self, tmp_path: Path) -> None:
        """LogSegmentTest.testFindOffsetByTimestamp"""
        segment = segment_of(tmp_path / "t-0", messages(range(40, 50)), base_offset=40, interval_bytes=2 * SIZE - 1)
        assert segment.time_index is not None and segment.time_index.entries == 5
        assert largest_timestamp(segment) == (490, 49, "index")
        expected = {420: 42, 421: 43, 430: 43, 431: 44, 491: None, 401: 41, 399: 40}
        assert {target: found(segment, target) for target in expected} == expected

    def test_starting_offset(self, tmp_path: Path) -> None:
        """Records below the offset that a search starts at do not count (KIP-107)."""
        segment = segment_of(tmp_path / "t-0", [build.batch(0, [500, 7, 400, 8]), build.batch(4, [300, 9, 450])])
        targets = [(0, 0, 0), (450, 1, 6), (400, 1, 2), (400, 3, 6), (300, 3, 4), (300, 5, 6), (451, 1, None)]
        for target, start, expected in targets:
            record = find_offset_by_timestamp(segment, target, start)
            assert (None if record is None else record.offset) == expected

    def test_largest_timestamp(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReloadLargestTimestampAndNextOffsetAfterTruncation, its reading half: 30 messages, an entry per
        two"""
        builder = LogBuilder(tmp_path / "t-0", start_offset=40, interval_bytes=2 * SIZE - 1)
        builder.append(*messages(range(40, 70))).close_live()
        segment = Segment.open(builder.file(40, ".log"))
        assert segment.time_index is not None and segment.time_index.entries == 30 // 2 - 1
        assert largest_timestamp(segment) == (690, 69, "log")
        assert segment.next_offset == 70

    def test_largest_timestamp_without_timestamps(self, tmp_path: Path) -> None:
        for name, data in (
            ("none-0", [build.batch(0, [1, 2], magic=0)]),
            ("empty-0", []),
            ("minus-0", [build.batch(0, [-1, -1])]),
        ):
            segment = segment_of(tmp_path / name, data)
            build.set_modified_ms(segment.log_path, 123_456)
            segment = Segment.open(segment.log_path)
            assert largest_timestamp(segment) == (-1, 0, "none")
            assert retention_timestamp(segment) == (123_456, 0, "mtime")
            assert found(segment, 0) is None

    def test_an_index_entry_without_a_timestamp_is_none(self, tmp_path: Path) -> None:
        """Forged: no release writes one, and the batch that it names agrees."""
        segment = segment_of(tmp_path / "minus-0", [build.batch(0, [-1]), build.batch(1, [-1, -1])])
        segment.log_path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", -1, 1))
        assert largest_timestamp(Segment.open(segment.log_path)) == (-1, 0, "none")

    @pytest.mark.parametrize("per_append", [False, True])
    def test_index_as_older_followers_wrote_it(self, tmp_path: Path, per_append: bool, caplog: pytest.LogCaptureFixture) -> None:
        """Kafka <= 3.9.0 made one entry per append of several batches: last offset of the last, position of the first."""
        builder = LogBuilder(tmp_path / "t-0", per_append=per_append)
        appends = [b"".join(messages(range(i, i + 4))) for i in range(0, 40, 4)]
        builder.append(*appends).close()
        segment = Segment.open(builder.file(0, ".log"))
        for i in range(40):
            assert found(segment, 10 * i) == i
            header = segment.translate_offset(i)
            assert header is not None and header.last_offset == i
        assert not caplog.records

    def test_index_as_kafka_1_1_wrote_it(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The offset index held the first offset of a set, and the time index of uncompressed v1 the very message's offset."""
        sets = [build.batch(i, [10 * i, 10 * i + 1, 10 * i + 2], magic=1, codec=Codec.GZIP) for i in range(0, 60, 3)]
        segment = segment_of(tmp_path / "t-0", sets)
        size = len(sets[0])
        first = b"".join((3 * i).to_bytes(4, "big") + sum(map(len, sets[:i])).to_bytes(4, "big") for i in range(1, 20))
        assert size > 17
        segment.index_path(".index").write_bytes(first)
        for i in range(60):
            again = Segment.open(segment.log_path)
            header = again.translate_offset(i)
            assert header is not None and header.last_offset == i // 3 * 3 + 2
        assert not caplog.records


class TestDamagedIndexes:
    @pytest.mark.parametrize("seed", range(3))
    def test_recovery_fixes_corrupt_index(self, tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
        """LogSegmentTest.testRecoveryFixesCorruptIndex: nonsense from byte 5 on; here nothing is rewritten, and every offset
        is found"""
        segment = segment_of(tmp_path / "t-0", messages(range(100)))
        write_nonsense(segment.index_path(".index"), seed)
        for i in range(100):
            header = Segment.open(segment.log_path).translate_offset(i)
            assert header is not None and header.last_offset == i
        assert any(".index: " in record.getMessage() for record in caplog.records)

    @pytest.mark.parametrize("seed", range(3))
    def test_recovery_fixes_corrupt_time_index(self, tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
        """LogSegmentTest.testRecoveryFixesCorruptTimeIndex"""
        segment = segment_of(tmp_path / "t-0", messages(range(100)))
        write_nonsense(segment.index_path(".timeindex"), seed)
        for i in range(100):
            again = Segment.open(segment.log_path)
            assert largest_timestamp(again)[:2] == (990, 99)
            assert found(again, 10 * i) == i
            assert found(again, 10 * i + 1) == (i + 1 if i < 99 else None)
        assert any(".timeindex: " in record.getMessage() for record in caplog.records)

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    @pytest.mark.parametrize(
        ("damage", "notice"),
        [
            ("missing", "is missing"),
            ("odd length", "invalid length"),
            ("halved", None),
            ("emptied", None),
            ("zeroed", None),
            ("padded", None),
            ("reversed", "decrease"),
        ],
    )
    def test_a_damaged_index_costs_no_answer(
        self, tmp_path: Path, suffix: str, damage: str, notice: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        builder = LogBuilder(tmp_path / "t-0")
        builder.append(*messages(range(100))).roll().append(*messages(range(100, 110))).close()
        path = builder.file(0, suffix)
        data = path.read_bytes()
        entry = 8 if suffix == ".index" else 12
        entries = [data[i : i + entry] for i in range(0, len(data), entry)]
        damaged = {
            "missing": None,
            "odd length": data[:-1],
            "halved": b"".join(entries[: len(entries) // 2]),
            "emptied": b"",
            "zeroed": bytes(len(data)),
            "padded": data + bytes(1000 * entry),
            "reversed": b"".join(reversed(entries)),
        }[damage]
        path.unlink() if damaged is None else path.write_bytes(damaged)
        log = builder.open()
        segment = log.segments[0]
        for i in range(100):
            assert found(segment, 10 * i) == i
            assert read_from(segment, i) == list(range(i, 100))
        assert largest_timestamp(segment)[:2] == (990, 99)
        assert found(segment, 991) is None
        texts = [record.getMessage() for record in caplog.records]
        assert len(texts) == len(set(texts)), "each thing is said once"
        if notice:
            assert any(str(path) in text for text in texts)
            assert any(part in text for text in texts for part in notice.split("|"))
        elif damage == "padded" or suffix == ".index":
            assert not texts
        elif damage == "halved":
            assert "entries are missing" in texts[0]

    def test_index_of_another_log(self, tmp_path: Path) -> None:
        """An index swapped in from another segment of the same shape points to batches that are not what it says."""
        times = [random.Random(1).randrange(1000) for _ in range(100)]
        one = segment_of(tmp_path / "a-0", [build.batch(i, [time]) for i, time in enumerate(times)])
        other = segment_of(tmp_path / "b-0", [build.batch(2 * i, [time, 3]) for i, time in enumerate(reversed(times))])
        for suffix in (".index", ".timeindex"):
            one.index_path(suffix).write_bytes(other.index_path(suffix).read_bytes())
        one = Segment.open(one.log_path)
        for target in range(0, 1002, 7):
            assert found(one, target) == next((i for i, time in enumerate(times) if time >= target), None)

    def test_a_large_segment_without_index_says_so(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        segment = segment_of(tmp_path / "t-0", [build.batch(i, [i], value=bytes(600_000)) for i in range(4)])
        segment.index_path(".index").unlink()
        assert Segment.open(segment.log_path).next_offset == 4
        assert [record.getMessage() for record in caplog.records] == [
            f"{segment.index_path('.index')}: is missing; the log is read instead"
        ]


class TestTornTail:
    def test_iteration_over_partial_and_truncation(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """FileRecordsTest.testIterationOverPartialAndTruncation: garbage after the last message is ignored, and told"""
        for name, garbage in (
            ("a-0", b"hi"),
            ("b-0", b"hello there"),
            ("c-0", messages([20])[0][:-1]),
        ):
            segment = segment_of(tmp_path / name, messages(range(20)))
            with segment.log_path.open("ab") as file:
                file.write(garbage)
            segment = Segment.open(segment.log_path)
            assert offsets(segment) == list(range(20))
            assert (segment.end_position, segment.next_offset) == (20 * SIZE, 20)
            assert f"torn tail: {len(garbage)} bytes after byte {20 * SIZE}" in caplog.records[-1].getMessage()

    def test_an_append_going_on_is_no_torn_tail(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        segment = segment_of(tmp_path / "t-0", messages(range(20)))
        half, rest = messages([20])[0][:20], messages([20])[0][20:]
        with segment.log_path.open("ab", buffering=0) as file:
            file.write(half)
            listed = Segment.open(segment.log_path)
            file.write(rest)
        assert offsets(listed) == list(range(20))
        assert not caplog.records

    def test_recovery_with_corrupt_message(self, tmp_path: Path) -> None:
        """LogSegmentTest.testRecoveryWithCorruptMessage: a flipped message is reported as damage, not taken for the end"""
        for k in range(20):
            segment = segment_of(tmp_path / f"t-{k}", messages(range(20)))
            data = bytearray(segment.log_path.read_bytes())
            data[k * SIZE + SIZE - 2] ^= 0x10
            segment.log_path.write_bytes(data)
            segment.index_path(".index").write_bytes(b"")
            segment = Segment.open(segment.log_path)
            follows = "and a crash does not leave such a batch" if k == 19 else "and a sound batch follows"
            with pytest.raises(CorruptBatchError, match=f"checksum.*{follows}") as raised:
                offsets(segment)
            assert (raised.value.path, raised.value.position) == (str(segment.log_path), k * SIZE)

    def test_damage_below_the_last_index_entry_is_told_when_read(self, tmp_path: Path) -> None:
        segment = segment_of(tmp_path / "t-0", messages(range(20)))
        data = bytearray(segment.log_path.read_bytes())
        data[5 * SIZE + SIZE - 2] ^= 0x10
        segment.log_path.write_bytes(data)
        segment = Segment.open(segment.log_path)
        assert segment.next_offset == 20
        with pytest.raises(CorruptBatchError) as raised:
            list(segment.headers(check_crc=True))
        assert raised.value.position == 5 * SIZE

    @pytest.mark.parametrize("cut", range(1, SIZE, 7))
    def test_torn_segment_before_the_last(self, tmp_path: Path, cut: int) -> None:
        """A cut is an end only in the last segment."""
        builder = LogBuilder(tmp_path / "t-0")
        builder.append(*messages(range(20))).roll().append(*messages(range(20, 25))).close()
        path = builder.file(0, ".log")
        path.write_bytes(path.read_bytes()[:-cut])
        with pytest.raises(CorruptBatchError) as raised:
            offsets(builder.open().segments[0])
        assert raised.value.position == 19 * SIZE

    def test_zeros_before_the_last_segment_are_damage(self, tmp_path: Path) -> None:
        builder = LogBuilder(tmp_path / "t-0")
        builder.append(*messages(range(20))).roll().append(*messages(range(20, 25))).close()
        path = builder.file(0, ".log")
        path.write_bytes(path.read_bytes()[:-SIZE] + bytes(SIZE))
        with pytest.raises(CorruptBatchError):
            offsets(builder.open().segments[0])

    def test_a_torn_batch_that_carries_another_log(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A Kafka batch in a value is no batch of this log: its offset does not fit."""
        carried = build.batch(0, [1, 2, 3])
        segment = segment_of(tmp_path / "t-0", [*messages(range(100)), build.batch(100, [1], value=carried + bytes(100))])
        data = segment.log_path.read_bytes()
        segment.log_path.write_bytes(data[:-30])
        assert Segment.open(segment.log_path).next_offset == 100
        assert "torn tail" in caplog.records[-1].getMessage()

    def test_offsets_that_go_back(self, tmp_path: Path) -> None:
        """The base offset is not under v2's checksum: its neighbours tell."""
        batches = [build.batch(i, [i]) for i in range(10)]
        segment = segment_of(tmp_path / "t-0", batches)
        for position, value in ((5, 3), (5, 6)):
            data = bytearray(b"".join(batches))
            data[position * len(batches[0]) + 7] = value
            segment.log_path.write_bytes(data)
            with pytest.raises(CorruptBatchError, match="too low"):
                list(Segment.open(segment.log_path).headers())

    @pytest.mark.parametrize("offset", [0, 9])
    def test_the_last_offset_goes_back(self, tmp_path: Path, offset: int) -> None:
        """A whole batch with a right checksum is no torn tail, and its records are not left out."""
        segment = segment_of(tmp_path / "t-0", messages(range(10)))
        with segment.log_path.open("ab") as file:
            file.write(messages([offset])[0])
        with pytest.raises(CorruptBatchError, match="too low"):
            _ = Segment.open(segment.log_path).next_offset

    def test_a_segment_under_a_higher_name(self, tmp_path: Path) -> None:
        segment = segment_of(tmp_path / "t-0", messages([0]))
        renamed = segment.log_path.rename(segment.log_path.with_name("00000000000000000005.log"))
        with pytest.raises(CorruptBatchError, match="too low"):
            _ = Segment.open(renamed).next_offset


class TestFiles:
    @pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
    def test_a_named_pipe_does_not_hang(self, tmp_path: Path, suffix: str) -> None:
        """Nobody will ever write to it: an error, in place of a wait without end."""
        path = segment_of(tmp_path / "t-0", messages(range(20))).index_path(suffix)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(StorageError, match="it is not a regular file") as caught:
            find_offset_by_timestamp(Segment.open(path.with_suffix(".log")), 5, 0)
        assert caught.value.path == str(path)

    def test_a_loop_of_links(self, tmp_path: Path) -> None:
        path = tmp_path / "t-0" / "00000000000000000000.log"
        path.parent.mkdir()
        path.symlink_to(path)
        with pytest.raises(StorageError, match="Too many levels of symbolic links") as caught:
            Log.open(path.parent)
        assert caught.value.path == str(path)

    def test_no_such_file(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError):
            Segment.open(tmp_path / "00000000000000000000.log")

    def test_gone_since_it_was_listed(self, tmp_path: Path) -> None:
        segment = segment_of(tmp_path / "t-0", messages(range(5)))
        segment.log_path.unlink()
        with pytest.raises(SegmentChangedError, match=r"a file no longer exists \(.*\.log\); read again$") as caught:
            offsets(segment)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value), "as it comes back from a worker"

    def test_replaced_since_it_was_listed(self, tmp_path: Path) -> None:
        """Compaction puts another file under the same name: the one listed is read from ``.deleted``, or not at all."""
        segment = segment_of(tmp_path / "t-0", messages(range(20)))
        compacted = segment_of(tmp_path / "compacted-0", messages(range(0, 20, 5)))
        for suffix in (".log", ".index", ".timeindex"):
            path = segment.index_path(suffix)
            path.rename(f"{path}.deleted")
            path.write_bytes(compacted.index_path(suffix).read_bytes())
        assert offsets(segment) == list(range(20))
        assert found(segment, 130) == 13
        segment.close()
        for suffix in (".log", ".index", ".timeindex"):
            Path(f"{segment.index_path(suffix)}.deleted").unlink()
        with pytest.raises(SegmentChangedError, match=r"a file was replaced .*; read again$"):
            offsets(segment)

    def test_replaced_while_its_index_is_opened(self, tmp_path: Path) -> None:
        """The log is open, its index not yet, when both are replaced: the index that is opened belongs to the open log."""
        times = [random.Random(3).randrange(1000) for _ in range(60)]
        segment = segment_of(tmp_path / "t-0", [build.batch(i, [time]) for i, time in enumerate(times)])
        compacted = segment_of(tmp_path / "c-0", [build.batch(i, [time]) for i, time in enumerate(times) if i % 7 == 0])
        segment.file.open()
        for suffix in (".log", ".index", ".timeindex"):
            path = segment.index_path(suffix)
            path.rename(f"{path}.deleted")
            path.write_bytes(compacted.index_path(suffix).read_bytes())
        for target in range(0, 1000, 9):
            assert found(segment, target) == next((i for i, time in enumerate(times) if time >= target), None)
        assert str(segment.time_index and segment.time_index.path).endswith(".deleted")

    def test_index_renamed_between_two_looks(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        segment = segment_of(tmp_path / "t-0", messages(range(50)))
        assert found(segment, 130) == 13
        segment.close()
        for path in list((tmp_path / "t-0").iterdir()):
            path.rename(f"{path}.deleted")
        assert found(segment, 140) == 14
        assert not caplog.records

    def test_truncated_while_read(self, tmp_path: Path) -> None:
        segment = segment_of(tmp_path / "t-0", messages(range(2000)))
        headers = segment.headers()
        next(headers)
        with segment.log_path.open("r+b") as file:
            file.truncate(100)
        with pytest.raises(SegmentChangedError, match=r"truncated while .*; read again$"):
            list(headers)

    def test_bytes_read_are_counted(self, tmp_path: Path) -> None:
        segment = segment_of(tmp_path / "t-0", messages(range(100)))
        assert segment.bytes_read == 0
        assert found(segment, 500) == 50
        assert 0 < segment.bytes_read < 60_000


def test_walk_needs_no_segment(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    path.write_bytes(b"".join(messages(range(5))))
    with ReadOnlyFile(path) as file:
        assert [header.last_offset for header in walk(file, 0, file.size_bytes(), crc=True)] == list(range(5))


def test_control_batches(tmp_path: Path) -> None:
    producer = Producer(9, 0, 0)
    batches = [build.batch(0, [5], producer=producer, transactional=True), build.marker(1, 77, ControlType.ABORT, 9)]
    segment = segment_of(tmp_path / "t-0", batches)
    data, control = segment.headers()
    assert control.is_control and not data.is_control
    marker = segment.end_txn_marker(control)
    assert marker is not None and marker.type is ControlType.ABORT
    assert found(segment, 6) == 1, "control records count in a search by time, as in Kafka"


def write_nonsense(path: Path, seed: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:5] + random.Random(seed).randbytes(len(data) - 5))
