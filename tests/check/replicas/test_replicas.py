"""`tidelog verify --replicas`: what is the same is, however it is split; every difference below the end is found."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.check.replicas.laying import EPOCHS, flip, lay
from tests.cli.conftest import run
from tests.reader.build import batch, marker
from tidelog.check.replicas import replicas_verify
from tidelog.check.replicas.batch_bytes import BatchBytes
from tidelog.check.replicas.compared_range import Bounds, ComparedRange, compared_range, epochs_within
from tidelog.check.replicas.partition_comparison import PartitionComparison
from tidelog.check.replicas.replicas_verify import ReplicasReport, verify_replicas
from tidelog.errors import DataDirNotFoundError, InvalidArgumentError, UnknownTopicOrPartitionError
from tidelog.formats import names
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.records import Record

TIME_MS = 1_373_461_200_000


def batches(count: int, magic: int = 2, codec: Codec = Codec.NONE) -> list[bytes]:
    """Batches of 1, 2, 3, 1, 2, 3, ... records."""
    made, offset = [], 0
    for number in range(count):
        records = 1 + number % 3
        times = [TIME_MS + offset * 1000 + n for n in range(records)]
        made.append(batch(offset, times, magic=magic, codec=codec, epoch=0))
        offset = max(header.next_offset for header in iter_headers(made[-1]))
    return made


def end_of(made: Sequence[bytes]) -> int:
    return max(header.next_offset for header in iter_headers(made[-1]))


def compared(*folders: Path) -> PartitionComparison:
    (one,) = verify_replicas(folders).partitions
    return one


def said(report: ReplicasReport) -> list[str]:
    """Return what is wrong."""
    findings = [*report.findings, *(finding for one in report.partitions for finding in one.findings)]
    return [str(finding) for finding in findings if finding.is_fault] + [
        str(difference) for one in report.partitions for difference in one.differences
    ]


class TestTheSame:
    def test_in_other_segments(self, tmp_path: Path) -> None:
        made = batches(20)
        a, b, c = (tmp_path / name for name in "abc")
        lay(a, made, rolls=(5, 11), high_watermark=end_of(made))
        lay(b, made, rolls=(1, 2, 17), high_watermark=end_of(made))
        lay(c, made, high_watermark=end_of(made))
        one = compared(a, b, c)
        assert one.is_equal and one.findings == []
        assert one.range is not None and (one.range.start, one.range.end) == (0, end_of(made))
        assert one.sha256 == hashlib.sha256(b"".join(made)).hexdigest()
        assert one.size_bytes == sum(map(len, made))

    def test_only_what_is_below_the_smallest_high_watermark_counts(self, tmp_path: Path) -> None:
        made, other = batches(6), batches(4)
        tail = [batch(end_of(other), [TIME_MS], epoch=1, value=b"of another leader")]
        a, b = tmp_path / "a", tmp_path / "b"
        lay(a, made, high_watermark=end_of(made), epochs=[*EPOCHS, EpochEntry(2, end_of(other))])
        lay(b, other + tail, high_watermark=end_of(other), epochs=[*EPOCHS, EpochEntry(1, end_of(other))])
        one = compared(a, b)
        assert one.is_equal and one.range is not None
        assert (one.range.end, one.range.end_of) == (end_of(other), b)
        assert one.sha256 == hashlib.sha256(b"".join(other)).hexdigest()

    def test_retention_deleted_more_on_one_side(self, tmp_path: Path) -> None:
        made = batches(12)
        a, b, c = (tmp_path / name for name in "abc")
        lay(a, made, rolls=(6,), high_watermark=end_of(made))
        lay(b, made[6:], high_watermark=end_of(made), epochs=[EpochEntry(0, 12)])
        lay(c, made, high_watermark=end_of(made), log_start=16)
        assert compared(a, b).is_equal
        one = compared(a, b, c)
        assert one.is_equal and one.range is not None
        assert (one.range.start, one.range.start_of) == (16, c)
        assert one.sha256 == hashlib.sha256(b"".join(made[8:])).hexdigest(), "16 is in the batch of offsets 15 to 17"

    def test_a_folder_without_a_high_watermark_counts_up_to_its_end(self, tmp_path: Path) -> None:
        made = batches(9)
        a, b = tmp_path / "a", tmp_path / "b"
        lay(a, made, high_watermark=end_of(made))
        lay(b, made[:7])
        one = compared(a, b)
        assert one.is_equal and one.range is not None
        assert (one.range.end, one.range.end_of) == (end_of(made[:7]), b)
        assert "no high watermark" in str(one.findings[0])
        (a / names.HIGH_WATERMARK_CHECKPOINT).unlink()
        (found,) = compared(a, b).findings
        assert "no folder has a high watermark of the partition: compared up to 13" in str(found)

    def test_a_preallocated_end_and_an_empty_log(self, tmp_path: Path) -> None:
        made = batches(5)
        a, b = tmp_path / "a", tmp_path / "b"
        (*_, last) = lay(a, made, high_watermark=end_of(made))
        lay(b, made, high_watermark=end_of(made))
        last.path.write_bytes(last.path.read_bytes() + bytes(4096))
        lay(a, [], high_watermark=0, partition=1)
        lay(b, [], high_watermark=0, partition=1)
        report = verify_replicas([a, b], threads=2)
        assert report.is_equal
        assert [one.sha256 for one in report.partitions] == [hashlib.sha256(data).hexdigest() for data in (b"".join(made), b"")]


@st.composite
def laid_batches(draw: st.DrawFn) -> list[bytes]:
    magic = draw(st.sampled_from([0, 1, 2, 2]))
    codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]))
    return batches(draw(st.integers(2, 12)), magic, codec)


@given(made=laid_batches(), data=st.data())
def test_any_byte_that_is_changed_below_the_end_is_found(made: list[bytes], data: st.DataObject) -> None:
    count = len(made)
    with TemporaryDirectory() as name:
        folders = [Path(name, letter) for letter in "abc"[: data.draw(st.integers(2, 3))]]
        compared_count = data.draw(st.integers(1, count))
        high_watermark = end_of(made[:compared_count])
        laid = [
            lay(
                folder,
                made,
                rolls=data.draw(st.lists(st.integers(1, count - 1), max_size=3, unique=True)),
                high_watermark=high_watermark,
                epochs=() if made[0][16] < 2 else EPOCHS,
            )
            for folder in folders
        ]
        assert verify_replicas(folders).is_equal
        damaged = data.draw(st.integers(0, len(folders) - 1))
        number = data.draw(st.integers(0, count - 1))
        place = laid[damaged][number]
        byte = data.draw(st.one_of(st.integers(0, min(61, place.size) - 1), st.integers(0, place.size - 1)))
        flip(place.path, place.position + byte, data.draw(st.integers(1, 255)))
        (one,) = verify_replicas(folders).partitions
        if number < compared_count:
            assert not one.is_equal
            first = end_of(made[:number]) if number else 0
            for difference in one.differences:
                assert difference.offset == first
                assert [standing.directory for standing in difference.standings] == folders
                standing = difference.standings[damaged]
                assert (standing.path, standing.position) == (place.path, place.position)
                assert all(other.is_sound for n, other in enumerate(difference.standings) if n != damaged)
            if not one.differences:
                assert [finding.path for finding in one.findings if finding.is_fault] == [place.path]
        else:
            assert one.differences == []


class TestDifferences:
    def test_what_stands_in_each_folder(self, tmp_path: Path) -> None:
        made = batches(9)
        a, b, c = (tmp_path / name for name in "abc")
        other = batch(6, [TIME_MS + 5], epoch=0, value=b"another")
        for folder, fourth in ((a, made[3]), (b, other), (c, made[3])):
            lay(folder, [*made[:3], fourth, *made[4:]], rolls=(3,) if folder == b else (), high_watermark=end_of(made))
        (found,) = compared(a, b, c).differences
        assert (found.kind, found.offset, found.key) == ("batch", 6, ("t", 0))
        assert "the replicas differ from offset 6 on, first in byte 17 of the batch (checksum)" in str(found)
        assert [one.position for one in found.standings] == [sum(map(len, made[:3])), 0, sum(map(len, made[:3]))]
        assert "batch of offsets 6 to 6, 2013-07-10T13:00:00.005Z, leader epoch 0," in str(found.standings[1])
        assert all(one.is_sound for one in found.standings)

    def test_a_log_that_ends_early(self, tmp_path: Path) -> None:
        made = batches(9)
        a, b = tmp_path / "a", tmp_path / "b"
        lay(a, made, high_watermark=end_of(made))
        lay(b, made[:8], high_watermark=end_of(made))
        (found,) = compared(a, b).differences
        assert found.offset == end_of(made[:8])
        assert "nothing: the log ends here" in str(found.standings[1])
        lay(tmp_path / "c", made[:8], high_watermark=end_of(made))
        (fault, _) = said(verify_replicas([tmp_path / "c", b]))
        assert f"the log ends at {end_of(made[:8])}, below the high watermark {end_of(made)}" in fault

    def test_a_segment_that_is_gone(self, tmp_path: Path) -> None:
        made = batches(12)
        a, b = tmp_path / "a", tmp_path / "b"
        lay(a, made, rolls=(4, 8), high_watermark=end_of(made))
        laid = lay(b, made, rolls=(4, 8), high_watermark=end_of(made))
        for path in b.glob(f"t-0/{laid[4].path.stem}.*"):
            path.unlink()
        (found,) = compared(a, b).differences
        assert found.offset == end_of(made[:4])
        assert f"batch of offsets {end_of(made[:8])} to " in str(found.standings[1])

    def test_leader_epochs(self, tmp_path: Path) -> None:
        made = batches(9)
        a, b, c = (tmp_path / name for name in "abc")
        lay(a, made, high_watermark=end_of(made), epochs=[EpochEntry(0, 0), EpochEntry(2, 6)])
        lay(b, made, high_watermark=end_of(made), epochs=[EpochEntry(0, 0), EpochEntry(1, 9)])
        lay(c, made, high_watermark=end_of(made), epochs=())
        (found,) = compared(a, b).differences
        assert str(found) == "t-0: the leader epochs differ from offset 6 on"
        assert [one.what for one in found.standings] == ["epoch 2 at 6", "epoch 1 at 9"]
        one = compared(a, c)
        assert one.is_equal and "leader-epoch-checkpoint has no leader epochs" in str(one.findings[0])
        LeaderEpochs([EpochEntry(2, 7)]).write(c / "t-0" / names.LEADER_EPOCH_CHECKPOINT)
        assert compared(a, c).is_equal, "records were deleted up to 7, and no more than the epochs say so yet"
        LeaderEpochs([EpochEntry(1, 7)]).write(c / "t-0" / names.LEADER_EPOCH_CHECKPOINT)
        assert [one.offset for one in compared(a, c).differences] == [7]
        (b / "t-0" / names.LEADER_EPOCH_CHECKPOINT).write_text("what?\n")
        assert [text for text in said(verify_replicas([a, b, c])) if str(b / "t-0") in text]

    def test_another_topic_of_that_name(self, tmp_path: Path) -> None:
        made = batches(3)
        a, b, c = (tmp_path / name for name in "abc")
        lay(a, made, high_watermark=end_of(made))
        lay(b, made, high_watermark=end_of(made), topic_id=uuid.UUID(int=8))
        lay(c, made, high_watermark=end_of(made), topic_id=None)
        (found,) = compared(a, b).differences
        assert found.kind == "topic id" and "topic id AAAAAAAAAAAAAAAAAAAACA" in str(found.standings[1])
        one = compared(a, c)
        assert one.is_equal and "the topic id is not compared" in str(one.findings[0])

    def test_damage_names_the_folder_and_stops_nothing_else(self, tmp_path: Path) -> None:
        made = batches(30)
        folders = [tmp_path / name for name in "abc"]
        for folder in folders:
            for partition in range(2):
                laid = lay(folder, made, high_watermark=end_of(made), log_start=20, partition=partition)
            if folder.name == "b":
                flip(laid[0].path, laid[0].position + 9, 0x7F)  # A length below the start, where the walk to it begins.
                Path(laid[0].path.with_suffix(".index")).unlink()
        report = verify_replicas(folders)
        assert [one.is_equal for one in report.partitions] == [True, False]
        (text,) = said(report)
        assert text.startswith(str(folders[1] / "t-1"))
        assert report.partitions[1].sha256 == report.partitions[0].sha256, "the others are compared all the same"

    def test_a_checkpoint_that_is_damaged(self, tmp_path: Path) -> None:
        made = batches(3)
        a, b = tmp_path / "a", tmp_path / "b"
        for folder in (a, b):
            lay(folder, made, high_watermark=end_of(made))
        (a / names.HIGH_WATERMARK_CHECKPOINT).write_text("0\n9\n")
        (text,) = said(verify_replicas([a, b]))
        assert text.startswith(str(a / names.HIGH_WATERMARK_CHECKPOINT))

    def test_folders_of_two_clusters(self, tmp_path: Path) -> None:
        made = batches(3)
        for name in "ab":
            lay(tmp_path / name, made, high_watermark=end_of(made))
            (tmp_path / name / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={name}\n")
        (text,) = said(verify_replicas([tmp_path / "a", tmp_path / "b"]))
        assert "the folder belongs to a different cluster: its cluster id is b, not a" in text


def keyed(offset: int, *pairs: tuple[bytes, bytes | None]) -> bytes:
    records = [Record(offset + n, TIME_MS + offset + n, 0, key, value) for n, (key, value) in enumerate(pairs)]
    return bytes(build_batch_v2(records, leader_epoch=0))


class TestCompacted:
    """Ten offsets are compacted, two follow."""

    whole = (
        keyed(0, (b"a", b"1"), (b"b", b"1")),
        keyed(2, (b"a", b"2"), (b"c", b"1")),
        keyed(4, (b"c", None)),
        bytes(
            build_batch_v2(
                [Record(5, TIME_MS, 0, b"b", b"aborted")], leader_epoch=0, is_transactional=True, producer=Producer(9, 0, 0)
            )
        ),
        marker(6, TIME_MS, ControlType.ABORT, 9),
        keyed(7, (b"d", b"1"), (b"a", b"3"), (b"e", b"1")),
    )
    tail = (keyed(10, (b"a", b"4"), (b"a", b"5")),)
    cleaned = (keyed(1, (b"b", b"1")), keyed(7, (b"d", b"1"), (b"a", b"3"), (b"e", b"1")))

    def folders(self, tmp_path: Path, cleaned: Sequence[bytes]) -> tuple[Path, Path]:
        a, b = tmp_path / "a", tmp_path / "b"
        lay(a, [*self.whole, *self.tail], rolls=(2, 6), high_watermark=12)
        lay(b, [*cleaned, *self.tail], rolls=(len(cleaned),), high_watermark=12, cleaned=10)
        shutil.move(b / "t-0" / names.file_name(1, ".log"), b / "t-0" / names.file_name(0, ".log"))
        for path in (b / "t-0").glob("*1.*index"):
            path.unlink()
        return a, b

    def test_cleaned_at_different_times(self, tmp_path: Path) -> None:
        a, b = self.folders(tmp_path, self.cleaned)
        one = compared(a, b)
        assert (one.is_equal, one.bytes_from, one.sha256) == (True, 10, hashlib.sha256(self.tail[0]).hexdigest())
        (found,) = one.findings
        assert "cleaned at different times up to offset 10: below it the latest record of each key is compared" in str(found)

    def test_epochs_begin_later_in_what_was_copied_from_a_cleaned_log(self, tmp_path: Path) -> None:
        a, b = self.folders(tmp_path, self.cleaned)
        LeaderEpochs([EpochEntry(0, 0), EpochEntry(1, 3), EpochEntry(2, 10)]).write(a / "t-0" / names.LEADER_EPOCH_CHECKPOINT)
        LeaderEpochs([EpochEntry(0, 0), EpochEntry(1, 7), EpochEntry(2, 10)]).write(b / "t-0" / names.LEADER_EPOCH_CHECKPOINT)
        assert compared(a, b).is_equal
        LeaderEpochs([EpochEntry(0, 0), EpochEntry(1, 7), EpochEntry(2, 11)]).write(b / "t-0" / names.LEADER_EPOCH_CHECKPOINT)
        assert [one.offset for one in compared(a, b).differences] == [10]

    def test_the_same_bytes_need_no_excuse(self, tmp_path: Path) -> None:
        for name in "ab":
            lay(tmp_path / name, [*self.whole, *self.tail], rolls=(6,), high_watermark=12, cleaned=10)
        one = compared(tmp_path / "a", tmp_path / "b")
        assert (one.is_equal, one.bytes_from, one.findings) == (True, 0, [])
        for name, start in (("a", 3), ("b", 5)):  # One of them was recovered after it was cleaned.
            LeaderEpochs([EpochEntry(0, 0), EpochEntry(1, start)]).write(tmp_path / name / "t-0" / names.LEADER_EPOCH_CHECKPOINT)
        assert compared(tmp_path / "a", tmp_path / "b").is_equal

    @pytest.mark.parametrize(
        ("cleaned", "offset"),
        [
            ([keyed(1, (b"b", b"1")), keyed(8, (b"a", b"3"), (b"e", b"1"))], 7),
            ([keyed(1, (b"b", b"2")), *cleaned[1:]], 1),
            ([keyed(1, (b"b", b"1")), keyed(3, (b"c", b"1")), *cleaned[1:]], 3),
            ([keyed(1, (b"b", b"1")), keyed(7, (b"d", b"1"), (b"a", b"3"), (b"f", b"1"))], 9),
        ],
    )
    def test_a_key_that_was_lost_changed_or_came_back(self, tmp_path: Path, cleaned: list[bytes], offset: int) -> None:
        found = compared(*self.folders(tmp_path, cleaned)).differences
        assert [(one.kind, one.offset) for one in found] == [("latest records", offset)]
        assert any(f"record at offset {offset}" in str(standing) for standing in found[0].standings)

    def test_damage_below(self, tmp_path: Path) -> None:
        a, b = self.folders(tmp_path, self.cleaned)
        flip(a / "t-0" / names.file_name(0, ".log"), 70)
        (text,) = said(verify_replicas([a, b]))
        assert text.startswith(str(a / "t-0")) and "checksum does not match" in text

    def test_what_differs_above_is_still_found(self, tmp_path: Path) -> None:
        a, b = self.folders(tmp_path, self.cleaned)
        flip(b / "t-0" / names.file_name(10, ".log"), 12)
        (found,) = compared(a, b).differences
        assert (found.kind, found.offset) == ("batch", 10)

    def test_more_keys_than_there_is_memory_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tidelog.check.replicas.latest_records.MOST_KEYS", 2)
        one = compared(*self.folders(tmp_path, self.cleaned))
        assert one.is_equal and "not compared below it: more than" in str(one.findings[0])


class TestLive:
    def test_segments_that_are_deleted_under_the_look(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = batches(12)
        a, b = tmp_path / "a", tmp_path / "b"
        lay(a, made, rolls=(4, 8), high_watermark=end_of(made))
        laid = lay(b, made, rolls=(4, 8), high_watermark=end_of(made))
        read = BatchBytes.read

        def deleting(stream: BatchBytes, at: int, length: int) -> bytes:
            for path in b.glob(f"t-0/{laid[0].path.stem}.*"):
                path.unlink()
            return read(stream, at, length)

        monkeypatch.setattr(BatchBytes, "read", deleting)
        one = compared(a, b)
        assert one.is_equal and one.range is not None
        assert one.range.start == end_of(made[:4])

    def test_a_folder_that_never_holds_still_is_noted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = batches(4)
        for name in "ab":
            lay(tmp_path / name, made, high_watermark=end_of(made))
        monkeypatch.setattr(BatchBytes, "read", lambda *_: _changed())
        one = compared(tmp_path / "a", tmp_path / "b")
        assert one.is_equal and one.range is None and "changed during each of 5 comparisons" in str(one.findings[0])

    def test_what_is_wrong_while_a_broker_runs_is_looked_at_again(self, tmp_path: Path) -> None:
        made = batches(8)
        a, b = tmp_path / "a", tmp_path / "b"
        lay(a, made, high_watermark=end_of(made))
        laid = lay(b, made, high_watermark=end_of(made))
        flip(laid[3].path, laid[3].position + 70)
        slept: list[float] = []

        def mend(seconds: float) -> None:
            slept.append(seconds)
            flip(laid[3].path, laid[3].position + 70)

        with DirLock(b):
            assert verify_replicas([a, b], sleep=mend).is_equal
        assert slept == [replicas_verify.SETTLES_SECONDS]
        flip(laid[3].path, laid[3].position + 70)
        assert not verify_replicas([a, b], sleep=mend).is_equal, "nobody owns it"
        assert len(slept) == 1


def _changed() -> bytes:
    from tidelog.errors import SegmentChangedError

    raise SegmentChangedError("a file no longer exists")


class TestRules:
    def test_bounds(self) -> None:
        a, b, c = Path("a"), Path("b"), Path("c")
        found = compared_range([Bounds(a, 3, 0, 9, None), Bounds(b, 5, 7, 8, None), Bounds(c, 0, 0, None, 12)])
        assert found == ComparedRange(start=5, end=8, start_of=b, end_of=b, cleaned_to=7, has_high_watermark=True)
        found = compared_range([Bounds(a, 3, 0, None, 4), Bounds(b, 0, 0, None, None)])
        assert found == ComparedRange(start=3, end=4, start_of=a, end_of=a, cleaned_to=0, has_high_watermark=False)
        assert compared_range([Bounds(a, 0, 0, None, None)]) is None

    def test_epochs(self) -> None:
        entries = [EpochEntry(0, 0), EpochEntry(2, 5), EpochEntry(3, 9)]
        assert epochs_within(entries, 0, 9) == entries[:2]
        assert epochs_within(entries, 7, 10) == [EpochEntry(2, 7), EpochEntry(3, 9)]
        assert epochs_within(entries[1:], 0, 9) == [EpochEntry(2, 5)]
        assert epochs_within([], 0, 9) == epochs_within(entries, 9, 9) == epochs_within(entries, 10, 9) == []


class TestCommand:
    @pytest.fixture
    def folders(self, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
        made = batches(9)
        for name, rolls in (("a", (2,)), ("b", (3, 5))):
            for topic in ("orders", "other"):
                lay(tmp_path / name, made, rolls=rolls, high_watermark=end_of(made), topic=topic)
        lay(tmp_path / "a", made, high_watermark=end_of(made), topic="single")
        yield tmp_path / "a", tmp_path / "b"

    def test_the_same(self, folders: tuple[Path, Path]) -> None:
        ran = run("verify", "--replicas", *map(str, folders))
        assert ran.exit_code == 0
        assert [line.split()[:5] for line in ran.lines[1:]] == [[topic, "0", "2", "0", "18"] for topic in ("orders", "other")]
        assert len(ran.lines[1].split()[-1]) == 64
        assert ran.notes == [f"note: {folders[0]}: 1 partition is in one folder only, and not compared: single-0"]
        ran = run("verify", "--replicas", *map(str, folders), "--topic", "other", "--json")
        one, whole = ran.json_lines
        assert (one["type"], one["topic"], one["end_offset"], one["is_equal"]) == ("replicas", "other", 18, True)
        assert whole == {"type": "folders", "paths": [str(folder) for folder in folders], "is_equal": True}

    def test_a_difference(self, folders: tuple[Path, Path]) -> None:
        flip(folders[1] / "orders-0" / names.file_name(0, ".log"), 100)
        ran = run("verify", "--replicas", *map(str, folders))
        assert ran.exit_code == 3
        first, a, b, *_ = ran.lines
        assert first.startswith("difference: orders-0: the replicas differ from offset 1 on, first in byte ")
        assert a.startswith(f"  {folders[0]}/orders-0/") and "batch of offsets 1 to 2" in a
        assert b.startswith(f"  {folders[1]}/orders-0/") and ": damaged: the batch checksum does not match" in b
        ran = run("verify", "--replicas", *map(str, folders), "--json")
        assert ran.exit_code == 3
        found = next(line for line in ran.json_lines if line["type"] == "difference")
        assert (found["offset"], [one["is_sound"] for one in found["replicas"]]) == (1, [True, False])
        assert ran.json_lines[-1]["is_equal"] is False

    def test_topics_may_be_options_without_replicas_too(self, folders: tuple[Path, Path]) -> None:
        words = run("verify", str(folders[0]), "orders")
        assert words.stdout == run("verify", str(folders[0]), "--topic", "orders").stdout
        assert words.stdout.count("\n") > 1

    def test_what_is_refused(self, folders: tuple[Path, Path], tmp_path: Path) -> None:
        a, b = folders
        for arguments, what in (
            ([a], "at least two data folders"),
            ([a, b, "--interval", "5"], "--interval and --time-map-dir do not apply"),
        ):
            ran = run("verify", "--replicas", *map(str, arguments))
            assert (ran.exit_code, what in ran.stderr) == (2, True)
        with pytest.raises(InvalidArgumentError, match="twice"):
            verify_replicas([a, b, tmp_path / "b" / ".." / "a"])
        with pytest.raises(InvalidArgumentError, match="two data folders"):
            verify_replicas([a])
        with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'none' in any"):
            verify_replicas([a, b], ["none"])
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition is in two"):
            verify_replicas([a, b], ["single"])
        with pytest.raises(DataDirNotFoundError):
            verify_replicas([a, tmp_path / "nowhere"])
