"""Indexes and time maps compared with their logs: what Kafka wrote is right, each kind of damage is reported with its place."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.check.verifying import INTERVAL_BYTES, copied, faults, golden_partitions, notes, verified
from tests.reader import build
from tests.reader.build import LogBuilder
from tests.reader.golden import GOLDEN
from tests.storage.partition_logs import NOW_MS, open_log, timed
from tidelog.check.batch_table import longest_ascending
from tidelog.check.finding import MOST_PER_FILE, Finding, shortened
from tidelog.check.folder_indexes import VerifyOptions, verify_partitions
from tidelog.check.interval_votes import IntervalVotes
from tidelog.check.partitions import PartitionToVerify
from tidelog.clock import ManualClock
from tidelog.reader.log import Log
from tidelog.reader.time_map_file import rebuild_time_map
from tidelog.records.compression import Codec

KAFKA_3 = GOLDEN / "kafka-3.9.1"


def by_name(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


# --- what Kafka wrote


@pytest.mark.parametrize("folder", golden_partitions("kafka-3.9.1", "log", "live"), ids=by_name)
def test_kafka_391_is_right(folder: Path) -> None:
    one = verified(folder)
    assert one.findings == []
    assert one.segments == len(list(folder.glob("*.log")))
    indexes = sum(path.stat().st_size for path in folder.glob("*.index")) if folder.parent.name == "log" else 0
    assert one.offset_entries == indexes // 8 or not indexes
    # Small topics of Kafka's own have no entries that would tell.
    assert one.interval_bytes == (INTERVAL_BYTES if one.offset_entries and not one.topic.startswith("__") else 4096)
    assert one.aborted_transactions == sum(path.stat().st_size for path in folder.glob("*.txnindex")) // 34


@pytest.mark.parametrize("folder", golden_partitions("kafka-2.4.1", "log", "live"), ids=by_name)
def test_kafka_241_is_right_by_its_own_rules(folder: Path) -> None:
    """Several messages appended at once, exact records, append times of v0: noted, and right."""
    one = verified(folder)
    assert one.faults == 0
    assert one.interval_bytes == (INTERVAL_BYTES if one.offset_entries else 4096)
    assert all("correct, but not as Kafka 3.9.1 writes them" in note or "restarted" in note for note in notes(folder))
    assert notes(folder) or one.topic.startswith(("v2-", "__"))


def test_several_at_a_time_come_in_order(tmp_path: Path) -> None:
    folders = golden_partitions("kafka-3.9.1", "log")
    (tmp_path / "nothing-0").mkdir()
    (tmp_path / "nothing-0" / "partition.metadata").write_bytes((folders[0] / "partition.metadata").read_bytes())
    folders.insert(3, tmp_path / "nothing-0")
    heard: list[int] = []
    opened = [PartitionToVerify(lambda folder=folder: Log.open(folder)) for folder in folders]
    found = list(verify_partitions(opened, VerifyOptions(threads=3, progress=heard.append)))
    assert [one.directory for one in found] == folders
    assert sum(heard) == sum(one.size_bytes for one in found)
    assert found[3].segments == 0


def test_the_interval_that_is_given_counts() -> None:
    found = faults(KAFKA_3 / "log" / "v2-lz4-ct-0", 4096)
    assert len(found) > 10
    assert "a misplaced entry, with an interval of 4096 bytes" in found[0].what


# --- kinds of damage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition of two segments, its time rising with each batch."""
    builder = LogBuilder(tmp_path / "t-0", segment_bytes=6000, interval_bytes=300)
    for n in range(100):
        builder.append(batch_of_two(n))
    return builder.close().directory


def batch_of_two(n: int) -> bytes:
    return build.batch(2 * n, [1000 + n, 1000 + n], value=b"value")


def change(folder: Path, name: str, at: int, new: bytes) -> Path:
    path = folder / f"{name:0>20}" if "." not in name else folder / f"{name.split('.')[0]:0>20}.{name.split('.')[1]}"
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)
    return path


def test_a_position_that_is_no_batchs(folder: Path) -> None:
    path = change(folder, "0.index", 8 * 3 + 4, (1234).to_bytes(4, "big"))
    (fault,) = faults(folder)
    assert (fault.path, fault.entry, fault.position) == (path, 3, 24)
    assert fault.what == "no batch starts there"
    assert fault.found is not None and fault.found.endswith("at byte 1234")
    assert fault.expected is not None and fault.expected.split(" at ")[0] == fault.found.split(" at ")[0]
    assert str(fault) == f"{path} entry 3, byte 24: no batch starts there, found {fault.found}, expected {fault.expected}"


def test_an_offset_that_is_not_the_batchs(folder: Path) -> None:
    change(folder, "0.index", 8 * 2, (9999).to_bytes(4, "big"))
    (fault,) = faults(folder)
    assert fault.what == "the offset is not the batch's last"
    assert fault.expected is not None and "offset 9999" not in fault.expected


def test_an_entry_that_is_missing(folder: Path) -> None:
    path = folder / f"{0:020}.index"
    data = path.read_bytes()
    path.write_bytes(data[:16] + data[32:])
    (fault,) = faults(folder)
    assert fault.what == "2 entries are missing, the first one"
    assert (fault.entry, fault.position) == (2, 16)


def test_an_entry_too_many(folder: Path) -> None:
    """A true one that is not due."""
    path = folder / f"{0:020}.index"
    size = len(batch_of_two(0))
    data = path.read_bytes()
    path.write_bytes((3).to_bytes(4, "big") + size.to_bytes(4, "big") + data)
    (fault,) = faults(folder)
    assert fault.entry == 0 and "misplaced" in fault.what


def test_a_timestamp_that_never_was(folder: Path) -> None:
    change(folder, "0.timeindex", 12 * 4, (5).to_bytes(8, "big"))
    (fault,) = faults(folder)
    assert fault.what == "that was never the largest timestamp"
    assert fault.entry == 4
    assert fault.found is not None and fault.found.startswith("1970-01-01T00:00:00.005Z (5) at offset ")
    assert fault.expected is not None and "T00:00:01" in fault.expected


def test_a_time_entry_at_another_batch(folder: Path) -> None:
    change(folder, "0.timeindex", 12 * 4 + 8, (1).to_bytes(4, "big"))
    (fault,) = faults(folder)
    assert fault.what == "the offset is not that of the batch that first reached the timestamp"


def test_the_last_entry_of_a_finished_segment_is_its_largest_timestamp(folder: Path) -> None:
    path = folder / f"{0:020}.timeindex"
    path.write_bytes(path.read_bytes()[:-12])
    (fault,) = faults(folder)
    assert fault.what == "an entry is missing"


def test_files_that_are_missing_or_of_no_segment(folder: Path) -> None:
    first = f"{0:020}"
    (folder / f"{first}.index").unlink()
    (folder / f"{first}.timeindex").rename(folder / f"{7:020}.timeindex")
    found = verified(folder).findings
    assert [(one.path.name, one.what, one.is_fault) for one in found] == [
        (f"{first}.index", "the file is missing", True),
        (f"{first}.timeindex", "the file is missing", True),
        (f"{7:020}.timeindex", "belongs to no segment: there is no .log of that name", False),
    ]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_zeros_behind_the_entries_are_for_the_living(folder: Path, suffix: str) -> None:
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    for base in (bases[0], bases[-1]):
        path = folder / f"{base:020}{suffix}"
        path.write_bytes(path.read_bytes() + bytes(240))
    (fault,) = faults(folder)
    assert fault.what == "240 zero bytes follow the entries; Kafka reads them as entries"
    assert fault.path.name == f"{bases[0]:020}{suffix}"
    # After a clean shutdown no segment is live.
    (folder.parent / ".kafka_cleanshutdown").touch()
    assert len(faults(folder)) == 2


def test_a_broken_length(folder: Path) -> None:
    path = folder / f"{0:020}.timeindex"
    path.write_bytes(path.read_bytes() + b"\1\2\3")
    (fault,) = faults(folder)
    assert fault.what == "the length is not a multiple of the entry size: 3 bytes too many"


def test_swapped_entries_do_not_condemn_the_others(folder: Path) -> None:
    path = folder / f"{0:020}.index"
    data = path.read_bytes()
    path.write_bytes(data[:8] + data[72:80] + data[16:72] + data[8:16] + data[80:])
    found = faults(folder)
    assert {fault.entry for fault in found} == {1, 9}


def test_the_faults_of_one_file_are_not_endless(folder: Path) -> None:
    path = folder / f"{0:020}.timeindex"
    rubbish = random.Random(1).randbytes(12 * 100)
    path.write_bytes(rubbish)
    found = faults(folder)
    assert len(found) == MOST_PER_FILE + 1
    assert found[-1].what.startswith("and ")


def test_a_damaged_log_is_told_and_its_indexes_up_to_there(folder: Path) -> None:
    size = len(batch_of_two(0))
    path = change(folder, "0.log", 20 * size + size - 2, b"\xff\xff")
    (fault,) = faults(folder, 300)
    assert fault.what == "the batch checksum does not match; no index covers the rest of the log"
    assert (fault.path, fault.position) == (path, 20 * size)
    change(folder, "0.index", 8, bytes(8))
    assert [fault.entry for fault in faults(folder, 300)] == [1, None]


def test_a_torn_end_of_the_last_segment_is_no_fault(folder: Path) -> None:
    last = sorted(folder.glob("*.log"))[-1]
    with last.open("ab") as file:
        file.write(build.batch(5000, [5000])[:30])
    assert faults(folder) == []
    with last.open("ab") as file:
        file.write(bytes(100_000))
    assert faults(folder) == []


def test_damage_before_a_sound_batch_in_the_last_segment_is_one(folder: Path) -> None:
    last = sorted(folder.glob("*.log"))[-1]
    size = len(batch_of_two(0))
    data = bytearray(last.read_bytes())
    data[5 * size - 3] ^= 1
    last.write_bytes(data)
    assert any("a sound batch follows" in fault.what for fault in faults(folder))


# --- live segments


def test_a_live_segment_may_lag_and_have_stale_entries(tmp_path: Path) -> None:
    """Preallocated, without the roll's entry, and with what a truncation left behind the entries."""
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=300)
    for n in range(60):
        builder.append(build.batch(n, [1000 + n], value=b"value"))
    folder = builder.close_live().directory
    assert verified(folder).findings == []
    log = folder / f"{0:020}.log"
    size = len(build.batch(0, [1000], value=b"value"))
    log.write_bytes(log.read_bytes()[: 40 * size])
    assert faults(folder) == []
    assert sorted({note.split(" ", 1)[1] for note in notes(folder)}) == ["entries after the correct ones, left by a truncation"]
    # An entry that is missing before the stale ones is a fault all the same.
    path = folder / f"{0:020}.index"
    data = bytearray(path.read_bytes())
    data[8:16] = b"\0\0\0\1\0\0\0\1"
    path.write_bytes(data)
    assert next(fault.entry for fault in faults(folder)) == 1


def test_entries_about_what_was_appended_since(tmp_path: Path) -> None:
    """Whoever verifies a running broker's folder may find entries about batches that he has not seen."""
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=300)
    for n in range(60):
        builder.append(build.batch(n, [1000 + n], value=b"value"))
    folder = builder.close_live().directory
    log = Log.open(folder)
    assert log.segments[0].size_bytes == (folder / f"{0:020}.log").stat().st_size
    listed = log.segments[0]
    listed.size_bytes -= 20 * len(build.batch(0, [1000], value=b"value"))
    (one,) = verify_partitions([PartitionToVerify(lambda: log)], VerifyOptions())
    assert one.findings == []


def test_a_live_segments_indexes_come_with_their_first_entry(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=300)
    folder = builder.append(build.batch(0, [1000])).close_live().directory
    for suffix in (".index", ".timeindex"):
        (folder / f"{0:020}{suffix}").unlink()
    assert verified(folder).findings == []
    builder = LogBuilder(tmp_path / "u-0", interval_bytes=300)
    for n in range(60):
        builder.append(build.batch(n, [1000 + n], value=b"value"))
    folder = builder.close_live().directory
    (folder / f"{0:020}.index").unlink()
    assert [fault.what for fault in faults(folder, 300)] == ["the file is missing"]


def test_a_segment_that_goes_meanwhile_is_passed_over(folder: Path) -> None:
    log = Log.open(folder)
    for path in folder.glob(f"{0:020}.*"):
        path.unlink()
    (one,) = verify_partitions([PartitionToVerify(lambda: log)], VerifyOptions())
    assert one.faults == 0
    assert any("removed or replaced by its owner" in finding.what for finding in one.findings)


def test_time_zero_at_the_base(tmp_path: Path) -> None:
    """An entry of zeros."""
    folder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [0])).roll().append(build.batch(1, [5])).close().directory
    assert (folder / f"{0:020}.timeindex").read_bytes() == bytes(12)
    assert verified(folder).findings == []


# --- older rules


def test_first_offsets_as_up_to_kafka_11(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=300, segment_bytes=4000)
    for n in range(100):
        builder.append(build.batch(2 * n, [1000, 1000 + n]))
    folder = builder.close().directory
    for path in folder.glob("*.index"):
        data = path.read_bytes()
        entries = [(int.from_bytes(data[i : i + 4], "big") - 1, data[i + 4 : i + 8]) for i in range(0, len(data), 8)]
        path.write_bytes(b"".join(offset.to_bytes(4, "big") + position for offset, position in entries))
    assert faults(folder, 300) == []
    assert any("with first offsets" in note for note in notes(folder, 300))


def test_segments_of_several_releases(tmp_path: Path) -> None:
    """Kafka up to 1.1 wrote one segment, after some by another release that lack an entry: what they show is not all there is."""
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=300, segment_bytes=4000)
    for n in range(200):
        builder.append(build.batch(2 * n, [1000, 1000 + n]))
    folder = builder.close().directory
    paths = sorted(folder.glob("*.index"))
    assert len(paths) > 4
    for path in paths[:3]:
        data = path.read_bytes()
        path.write_bytes(data[:16] + data[24:])
    path = paths[3]
    data = path.read_bytes()
    entries = [(int.from_bytes(data[i : i + 4], "big") - 1, data[i + 4 : i + 8]) for i in range(0, len(data), 8)]
    path.write_bytes(b"".join(offset.to_bytes(4, "big") + position for offset, position in entries))
    assert {fault.path for fault in faults(folder, 300)} == set(paths[:3])
    assert any("with first offsets" in note for note in notes(folder, 300))


def test_what_is_counted_only_is_no_worse_than_the_rest() -> None:
    """In a folder sparse entries are noted, and so is how many more of them there are."""
    one = Finding(Path("x.index"), "an entry is missing", is_sparse=True)
    assert {finding.in_folder("t", 0).kind for finding in shortened([one] * 100)} == {"note"}
    assert shortened([*[one] * 99, one._replace(is_sparse=False)])[-1].in_folder("t", 0).kind == "fault"


def test_one_entry_for_each_append(tmp_path: Path) -> None:
    """A follower of Kafka before 3.9.1."""
    chance = random.Random(3)
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=400, segment_bytes=9000, per_append=True)
    offset = 0
    for _ in range(80):
        batches = []
        for _ in range(chance.randrange(1, 6)):
            batches.append(build.batch(offset, [1000 + chance.randrange(10_000)] * 2))
            offset += 2
        builder.append(b"".join(batches))
    folder = builder.close().directory
    assert faults(folder, 400) == []
    assert any("several batches appended at once" in note for note in notes(folder, 400))
    assert faults(folder) == []


@pytest.mark.parametrize("form", ["next offset", "file's time"])
def test_kip_33s_text_is_noted(form: str, tmp_path: Path) -> None:
    times = [1000 + n if form == "next offset" else -1 for n in range(40)]
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=200)
    for n, time in enumerate(times):
        builder.append(build.batch(n, [time], magic=1))
    folder = builder.roll().append(build.batch(40, [5000], magic=1)).close().directory
    path = folder / f"{0:020}.timeindex"
    if form == "next offset":
        data = path.read_bytes()
        moved = [data[i : i + 11] + bytes([data[i + 11] + 1]) for i in range(0, len(data), 12)]
        path.write_bytes(b"".join(moved))
    else:
        path.write_bytes(NOW_MS.to_bytes(8, "big") + (40).to_bytes(4, "big"))
    assert faults(folder, 200) == []
    assert [note for note in notes(folder, 200) if form in note and "KIP-33" in note]


# --- brokers that were started again


@pytest.mark.parametrize("seed", range(8))
def test_starts_are_no_faults(seed: int, tmp_path: Path) -> None:
    """Each start of a leader raises the epoch, and moves the entries that follow it."""
    chance = random.Random(seed)
    interval = chance.choice([0, 100, 512, 2000])
    settings = {"index_interval_bytes": interval, "segment_bytes": chance.choice([8000, 30_000])}
    clock = ManualClock(NOW_MS)
    for epoch in range(5):
        is_clean = chance.random() < 0.7
        log = open_log(tmp_path, clock, clean=is_clean, **settings)
        for _ in range(chance.randrange(150)):
            times = [NOW_MS + chance.randrange(10_000) for _ in range(chance.randrange(1, 4))]
            log.append_as_leader(timed(times, leader_epoch=epoch), epoch)
        if is_clean:
            log.close()
        else:
            log.flush()
            log.close_handlers()
        assert faults(tmp_path / "log-0", interval) == []
        assert faults(tmp_path / "log-0") == []


def test_a_start_that_the_time_index_tells_of(tmp_path: Path) -> None:
    """No epoch is new, but where an entry was due nothing is noted of the largest timestamp either."""
    for part in range(2):
        log = open_log(tmp_path, index_interval_bytes=1000)
        for n in range(60):
            log.append_as_leader(timed([NOW_MS + 100 * part + n]), 0)
        log.close()
    folder = tmp_path / "log-0"
    for path in folder.glob("*.snapshot"):
        path.unlink()
    assert faults(folder, 1000) == []
    assert any("the broker was restarted there" in note for note in notes(folder, 1000))


# --- transactions


def transactions(tmp_path: Path) -> Path:
    return copied(KAFKA_3 / "log" / "transactions-0", tmp_path)


def test_an_aborted_transaction_that_the_index_lacks(tmp_path: Path) -> None:
    folder = transactions(tmp_path)
    path = folder / f"{1:020}.txnindex"
    data = path.read_bytes()
    path.write_bytes(data[34:])
    (fault,) = faults(folder)
    assert fault.what == "an aborted transaction is missing"
    path.unlink()
    (fault,) = faults(folder)
    assert fault.what == f"the file is missing, although {len(data) // 34} transactions were aborted"


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (0, "version"),
        (9, "belongs to a different producer"),
        (17, "first offset differs"),
        (25, "no abort marker is there"),
        (33, "last stable offset"),
    ],
)
def test_each_field_of_an_aborted_transaction(at: int, what: str, tmp_path: Path) -> None:
    folder = transactions(tmp_path)
    path = folder / f"{1:020}.txnindex"
    data = bytearray(path.read_bytes())
    data[34 + at] += 1
    path.write_bytes(data)
    found = faults(folder)
    assert what in found[0].what
    assert found[0].entry == 1


def test_an_earlier_beginning_is_right_only_where_records_are_gone(tmp_path: Path) -> None:
    folder = transactions(tmp_path)
    path = folder / f"{1:020}.txnindex"
    data = bytearray(path.read_bytes())
    data[34 + 17] -= 1
    path.write_bytes(data)
    (fault,) = faults(folder)
    assert fault.what == "the transaction differs from the log"


# --- time maps


def test_time_maps(tmp_path: Path) -> None:
    folder = copied(KAFKA_3 / "log" / "v2-zstd-ct-0", tmp_path / "data")
    maps = tmp_path / "maps"
    logs = sorted(folder.glob("*.log"))
    for log in logs:
        rebuild_time_map(log, block_bytes=4096)
        rebuild_time_map(log, maps, block_bytes=4096)
    one = verified(folder, time_map_dir=maps)
    assert (one.time_maps, one.findings) == (2 * len(logs), [])
    path = maps / folder.name / f"{logs[1].stem}.timemap"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    (fault,) = faults(folder, time_map_dir=maps)
    assert fault.path == path
    assert fault.what == "a time map's checksum does not match"
    assert faults(folder) == []


def test_a_time_map_that_lies_consistently(tmp_path: Path) -> None:
    """Its checksum is right, it agrees with the batches' headers, and its times are not those of the records."""
    folder = copied(KAFKA_3 / "log" / "v2-zstd-ct-0", tmp_path)
    log = sorted(folder.glob("*.log"))[0]
    time_map = rebuild_time_map(log, block_bytes=4096)
    assert time_map is not None
    time_map.min_timestamps[1] += 1
    log.with_suffix(".timemap").write_bytes(time_map.to_bytes())
    (fault,) = faults(folder)
    assert fault.what == "smallest timestamp, number 1"


# --- the parts


def test_interval_votes() -> None:
    votes = IntervalVotes()
    assert votes.best([4096]) == 4096
    votes.add(100)
    assert votes.best([4096]) == 4096, "what follows the last entry alone says nothing"
    for low, high in ((90, 140), (120, 150), (110, 131)):
        votes.add(low, high)
    assert votes.best([4096]) == 128
    assert votes.best([125, 4096]) == 125
    for _ in range(5):
        votes.add(1000, 1010)
    assert votes.best([4096]) == 1000
    votes.add(7, 7)
    assert votes.count == 9


def test_a_gap_of_a_restart_does_not_make_the_interval_odd() -> None:
    votes = IntervalVotes()
    for gap in range(40):
        votes.add(500 - gap, 530 + gap)
    votes.add(518, 540)
    assert votes.best([4096]) == 512
    votes.add(518, 540)
    votes.add(518, 540)
    assert votes.best([4096]) == 520, "too many gaps for one in twenty"


@pytest.mark.parametrize(
    ("numbers", "chosen"),
    [([], []), ([1], [0]), ([1, 2, 3], [0, 1, 2]), ([9, 1, 2, 3], [1, 2, 3]), ([1, 9, 2, 3], [0, 2, 3]), ([1, 1, 2], [1, 2])],
)
def test_longest_ascending(numbers: list[int], chosen: list[int]) -> None:
    found = longest_ascending(numbers)
    assert [numbers[place] for place in found] == [numbers[place] for place in chosen]


def test_gzip_batches_with_their_own_records_last(tmp_path: Path) -> None:
    """By the newest rule the offset is the batch's last, whichever record has the largest timestamp."""
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=100)
    for n in range(30):
        builder.append(build.batch(3 * n, [2000 + n, 1000, 1000], codec=Codec.GZIP))
    folder = builder.close().directory
    assert verified(folder).findings == []
    path = folder / f"{0:020}.timeindex"
    data = bytearray(path.read_bytes())
    data[12 + 11] -= 2
    path.write_bytes(data)
    (fault,) = faults(folder)
    assert fault.entry == 1
