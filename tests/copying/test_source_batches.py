"""What becomes of a log's batches, against a plain list of its records: random logs of all formats, codecs and kinds of time."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fields import check_fields
from tests.reader.test_missing import one_partition, take_away
from tests.sources.conftest import quiet as quiet
from tests.sources.logs import TOPIC, LogBuilder, Row, expected
from tests.sources.test_property import NOON, steps, write
from tidelog.copying.column_rebuilding import BATCH_BYTES, TimeRule
from tidelog.copying.copy_plan import plan_copy
from tidelog.copying.source_batches import CopiedBatch, CopyCounts, CopyRules, copied_or_skipped
from tidelog.errors import CorruptBatchError, InvalidArgumentError
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, read_header
from tidelog.records.compression import Codec
from tidelog.records.records import iter_records
from tidelog.sources.opening import open_source

Plain = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def plain(rows: list[Row], rules: CopyRules) -> list[Plain]:
    """What the copy must hold: (offset in the source, time, key, value, headers)."""
    found = []
    for row in rows:
        time = row.timestamp if rules.time is TimeRule.LOG or row.create_time < 0 else row.create_time
        found.append((row.offset, time if time < 0 else time + rules.shift_ms, row.key, row.value, row.headers))
    return found


def copied(batches: list[CopiedBatch]) -> list[Plain]:
    """What the batches hold; each is looked at as a broker would."""
    found: list[Plain] = []
    for batch in batches:
        header = read_header(batch.data)
        assert (header.magic, header.base_offset, header.size) == (2, 0, len(batch.data))
        check_fields(header, producer_id=-1, producer_epoch=-1, base_sequence=-1, leader_epoch=-1)
        assert header.timestamp_type == CREATE_TIME
        assert not (header.is_control or header.is_transactional or header.has_delete_horizon)
        records = list(iter_records(header, memoryview(batch.data)))  # checks the checksum
        assert [record.offset for record in records] == list(range(batch.record_count))
        assert header.last_offset + 1 == header.record_count == batch.record_count
        assert header.max_timestamp == batch.max_timestamp == max(record.timestamp for record in records)
        offsets = [offset for first, last in batch.runs for offset in range(first, last + 1)]
        assert offsets[-1] < batch.next_offset
        found += [
            (offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for offset, record in zip(offsets, records, strict=True)
        ]
    return found


def copy(folder: Path | str, rules: CopyRules | None = None, start_offset: int = 0, **asked: Any) -> list[CopiedBatch]:
    planned = plan_copy(open_source(folder), TOPIC, **asked)
    splits = [split for partition in planned for split in partition.splits]
    return [one for one in copied_or_skipped(splits, rules or CopyRules(), start_offset) if one is not None]


@pytest.mark.usefixtures("quiet")
@examples(60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_the_copy_holds_just_the_records_wanted(data: st.DataObject) -> None:
    happened = data.draw(st.lists(steps(), max_size=16), label="log")
    with TemporaryDirectory() as folder:
        builder = write(Path(folder), happened, segment_bytes=data.draw(st.sampled_from([200, 1000, 1 << 20])))
        builder.close()
        seen = sorted({row.timestamp for row in builder.rows if row.timestamp > 0} | {NOON})
        bound = st.one_of(st.none(), st.sampled_from(seen), st.sampled_from(seen).map(lambda ms: ms + 1))
        start, end = data.draw(bound, label="start"), data.draw(bound, label="end")
        if start is not None and end is not None and end < start:
            start, end = end, start
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, builder.next_offset)] * 2), label="offsets"))
        rules = CopyRules(data.draw(st.sampled_from(TimeRule)), data.draw(st.sampled_from([0, 0, 5, 10**9])))
        wanted = plain(expected(builder, start, end, first=first, last=last, committed=True), rules)

        batches = copy(folder, rules, start_ms=start, end_ms=end, offsets={0: (first, last)})
        assert copied(batches) == wanted
        positions = [batch.next_offset for batch in batches]
        assert positions == sorted(set(positions))

        # Broken off after any batch, or anywhere: what is left follows.
        for position in {*positions, data.draw(st.integers(first, max(first, last)))}:
            rest = copy(folder, rules, position, start_ms=start, end_ms=end, offsets={0: (first, last)})
            assert copied(rest) == [row for row in wanted if row[0] >= position]


def log(folder: Path) -> LogBuilder:
    return LogBuilder(folder, segment_bytes=1 << 20)


def test_what_a_folder_lacks_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = one_partition("kafka-3.9.1", "two-partitions-0", tmp_path)
    plan_copy(open_source(folder), "two-partitions")
    assert not caplog.messages
    take_away(folder / "two-partitions-0", 157)
    plan_copy(open_source(folder), "two-partitions")
    (message,) = caplog.messages
    assert message.startswith("records are missing from the folder: two-partitions-0: offsets [157, 200) missing")


@pytest.mark.parametrize("times", [(NOON, -1, NOON), (-1, -1)])
def test_a_record_without_the_producers_time_has_the_logs(tmp_path: Path, times: tuple[int, ...]) -> None:
    builder = log(tmp_path)
    builder.append([(time, None, None) for time in times], append_time=NOON + 7)
    builder.close()
    (batch,) = copy(tmp_path)
    assert batch.is_rebuilt
    assert [time for _, time, *_ in copied([batch])] == [NOON + 7 if time < 0 else time for time in times]


def test_whole_batches_pass_as_bytes(tmp_path: Path) -> None:
    builder = log(tmp_path)
    for codec in (Codec.NONE, Codec.ZSTD, Codec.GZIP):
        builder.append([(NOON + i, b"k", b"v" * 100) for i in range(20)], codec=codec, headers=(("a", b"b"),))
    builder.append([(NOON + i, b"k", b"v") for i in (3, 9, 1)], append_time=NOON + 50)
    builder.close()
    stored = builder.logs()[0].read_bytes()
    counts = CopyCounts()
    (partition,) = plan_copy(open_source(tmp_path), TOPIC)
    batches = [one for one in copied_or_skipped(partition.splits, CopyRules(), 0, counts) if one is not None]
    position = 0
    for batch in batches:
        header = read_header(stored, position)
        assert batch.data[61:] == stored[position + 61 : position + header.size]
        assert read_header(batch.data).codec is header.codec
        assert not batch.is_rebuilt
        position += header.size
    # The producers' times come to light again.
    assert read_header(batches[-1].data).max_timestamp == NOON + 9
    assert (counts.batches, counts.records, counts.rebuilt_batches) == (4, 63, 0)
    assert counts.size_bytes == len(stored)


def test_moved_times_cost_the_header_alone(tmp_path: Path) -> None:
    builder = log(tmp_path)
    builder.append([(NOON + i, None, b"v") for i in (3, 9, 1)], codec=Codec.LZ4)
    builder.append([(-1, None, b"without a time")])
    builder.close()
    moved, timeless = copy(tmp_path, CopyRules(shift_ms=-1000))
    assert not moved.is_rebuilt
    assert [row[1] for row in copied([moved, timeless])] == [NOON - 997, NOON - 991, NOON - 999, -1]
    with pytest.raises(InvalidArgumentError, match=f"a shifted timestamp is before 1970: shift by less: found -{NOON} ms"):
        copy(tmp_path, CopyRules(shift_ms=-2 * NOON - 1))


def test_single_messages_of_old_formats_share_batches(tmp_path: Path) -> None:
    builder = log(tmp_path)
    for i in range(300):
        builder.append([(NOON + i, b"k", b"v" * 1000)], magic=i // 150)
    builder.close()
    batches = copy(tmp_path)
    assert copied(batches) == plain(builder.rows, CopyRules())
    assert len(batches) == 5
    assert all(len(batch.data) <= BATCH_BYTES for batch in batches)
    assert [row[1] for row in copied(batches)][149:151] == [-1, NOON + 150]


def test_a_record_larger_than_a_batch_is_alone(tmp_path: Path) -> None:
    builder = log(tmp_path)
    values = [b"a", b"b" * (2 * BATCH_BYTES), b"gone", b"c"]
    builder.append([(NOON, None, value) for value in values], gaps=[2])
    builder.append([(NOON, None, None)], gaps=[0])
    builder.close()
    batches = copy(tmp_path)
    assert [[row[3] for row in copied([batch])] for batch in batches] == [[b"a"], [values[1]], [b"c"]]
    assert [batch.next_offset for batch in batches] == [1, 2, 5]


def test_header_keys_stay_as_they_are(tmp_path: Path) -> None:
    """Also those that are no UTF-8, which readers are given with replacement characters."""
    builder = log(tmp_path)
    builder.append([(NOON, None, b"1"), (NOON, None, b"2")], headers=(("kkkk", b"v"), ("e", None)), gaps=[0])
    builder.close()
    (path,) = builder.logs()
    stored = bytearray(path.read_bytes())
    at = stored.index(b"kkkk")
    stored[at : at + 4] = b"\xff\xfe\x80k"
    from tidelog.records.patch import set_max_timestamp

    set_max_timestamp(stored, LOG_APPEND_TIME, NOON)  # for the checksum
    path.write_bytes(stored)
    (batch,) = copy(tmp_path)
    assert batch.is_rebuilt
    assert b"\xff\xfe\x80k" in batch.data


def test_damage_is_told_and_nothing_passes(tmp_path: Path) -> None:
    builder = log(tmp_path)
    for _ in range(2):
        builder.append([(NOON, None, b"value" * 10)])
    builder.close()
    (path,) = builder.logs()
    stored = bytearray(path.read_bytes())
    stored[stored.index(b"value")] ^= 1
    path.write_bytes(stored)
    with pytest.raises(CorruptBatchError):
        copy(tmp_path)


def test_a_flipped_bit_leaves_no_batch_out(tmp_path: Path) -> None:
    """It could make the batch one of control records, or one without records."""
    builder = log(tmp_path)
    builder.append([(NOON + i, b"k", b"v") for i in range(3)])
    builder.close()
    (path,) = builder.logs()
    sound = path.read_bytes()
    for index, bit in ((22, 0x20), (60, 0x03), (26, 0x02)):
        broken = bytearray(sound)
        broken[index] ^= bit
        path.write_bytes(broken)
        with pytest.raises(CorruptBatchError):
            copy(tmp_path)
