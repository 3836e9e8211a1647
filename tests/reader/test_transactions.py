"""read_committed: transactions open, aborted and committed, with and without the files that report them.

ProducerStateManagerTest's falling back to an older snapshot, LogLoaderTest.testFullTransactionIndexRecovery, and what a reader
must not do when ``.txnindex`` is lost: show aborted records.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.reader import build
from tests.reader.build import LogBuilder
from tests.reader.test_golden import read_committed
from tidelog.errors import CorruptBatchError
from tidelog.formats import names
from tidelog.formats.producer_snapshot import build_snapshot, read_snapshot
from tidelog.formats.txn_index import AbortedTxn, TxnIndex
from tidelog.model import LATEST
from tidelog.reader import transactions
from tidelog.reader.log import Log
from tidelog.reader.time_search import find_offset
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def data(offset: int, producer_id: int, records: int = 1, *, transactional: bool = True) -> bytes:
    return build.batch(offset, [offset] * records, producer=Producer(producer_id, 0, offset), transactional=transactional)


def end(offset: int, kind: ControlType, producer_id: int) -> bytes:
    return build.marker(offset, offset, kind, producer_id)


class Model:
    """Random transactions of a few producers, and what a read_committed consumer may see of them."""

    def __init__(self, tmp_path: Path, seed: int, *, batches: int = 120, segment_bytes: int = 700) -> None:
        chance = random.Random(seed)
        self.builder = LogBuilder(tmp_path / "t-0", segment_bytes=segment_bytes)
        self.visible: list[int] = []
        pending: dict[int, list[int]] = {}
        offset = 0
        for _ in range(batches):
            producer_id = chance.randrange(4)
            kind = chance.choice(["data", "data", "data", "plain", "end"])
            if kind == "end" and producer_id in pending:
                control = chance.choice([ABORT, COMMIT])
                self.builder.append(end(offset, control, producer_id))
                records = pending.pop(producer_id)
                self.visible += records if control is COMMIT else []
                offset += 1
                continue
            count = chance.randrange(1, 4)
            new = list(range(offset, offset + count))
            if kind == "plain":
                self.builder.append(build.batch(offset, new))
                self.visible += new
            else:
                self.builder.append(data(offset, producer_id, count))
                pending.setdefault(producer_id, []).extend(new)
            offset += count
        self.stable = min((records[0] for records in pending.values()), default=offset)
        self.visible = sorted(one for one in self.visible if one < self.stable)

    def check(self, log: Log) -> None:
        assert log.last_stable_offset == self.stable
        assert read_committed(log) == self.visible


@pytest.fixture(params=range(4))
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    return Model(tmp_path, request.param)


class TestLastStableOffset:
    def test_open_transaction_is_withheld(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testFetchUpToLastStableOffset, LogSegmentTest's open transactions: no index knows of them"""
        builder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [1]), data(1, 7), build.batch(2, [2]), data(3, 8)).close()
        log = builder.open()
        assert (log.last_stable_offset, log.log_end_offset) == (1, 4)
        assert log.aborted_transactions(0, 4) == []

    def test_known_from_the_snapshot_alone(self, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testRecoverFromSnapshotUnfinishedTransaction: opened in a segment long gone"""
        builder = LogBuilder(tmp_path / "t-0").append(data(0, 7), build.batch(1, [1])).roll().append(build.batch(2, [2])).close()
        for path in builder.directory.glob("00000000000000000000.*"):
            path.unlink()
        log = builder.open()
        assert (log.log_start_offset, log.last_stable_offset) == (2, 2)

    def test_markers_above_the_high_watermark(self, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testFirstUnstableOffset: a transaction is decided once its marker is replicated"""
        builder = (
            LogBuilder(tmp_path / "t-0").append(data(0, 7), build.batch(1, [1]), end(2, COMMIT, 7), build.batch(3, [3])).close()
        )
        stable = {mark: builder.open(high_watermark=mark).last_stable_offset for mark in (1, 2, 3, 4)}
        assert stable == {1: 0, 2: 0, 3: 3, 4: 4}

    @pytest.mark.parametrize(
        ("mark", "told"),
        [
            (None, None),
            (6, None),
            (5, "read_committed ends at the checkpointed high watermark 5; the log ends at 6"),
            (4, "read_committed ends at the checkpointed high watermark 4; the log ends at 6"),
            (3, "read_committed ends at 1, before a transaction that ends at or past the checkpointed high watermark 3;"),
            (1, "read_committed ends at the checkpointed high watermark 1; the log ends at 6"),
        ],
    )
    def test_what_only_the_checkpoint_withholds_is_told(
        self, tmp_path: Path, mark: int | None, told: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The checkpoint of a running broker is up to 5 s old: committed records behind it would look as if they were lost."""
        builder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [1]), data(1, 7), build.batch(2, [2]), end(3, COMMIT, 7))
        log = builder.append(build.batch(4, [4, 5])).close().open(high_watermark=mark)
        assert find_offset(log, 0) == (0, 1, -1, False)
        assert (log.log_end_offset, log.aborted_transactions(0, 6)) == (6, [])
        assert not caplog.records, "nobody asked for read_committed"
        for _ in range(3):
            assert log.last_stable_offset == {None: 6, 3: 1}.get(mark, mark)
        assert find_offset(log, LATEST, "read_committed") is not None
        texts = [record.getMessage() for record in caplog.records]
        assert len(texts) == (told is not None)
        assert all(text.startswith(f"{builder.directory}: {told}") and text.endswith("the log ends at 6") for text in texts)

    def test_what_a_transaction_withholds_is_not(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """It is open still: without the checkpoint it would be the end just so."""
        builder = LogBuilder(tmp_path / "t-0").append(data(0, 7), build.batch(1, [1]), build.batch(2, [2])).close()
        assert builder.open(high_watermark=2).last_stable_offset == 0
        assert not caplog.records

    @pytest.mark.parametrize("damage", ["empty", "truncated", "corrupt", "gone"])
    def test_a_damaged_snapshot_falls_back(self, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
        """ProducerStateManagerTest.testLoadFromEmptySnapshotFile, testLoadFromTruncatedSnapshotFile,
        testLoadFromCorruptSnapshotFile:
        the next lower one is taken"""
        builder = (
            LogBuilder(tmp_path / "t-0").append(data(0, 7)).roll().append(data(1, 8)).roll().append(end(2, COMMIT, 7)).close()
        )
        path = builder.file(3, ".snapshot")
        content = path.read_bytes()
        log = builder.open()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes({"empty": b"", "truncated": content[:-9], "corrupt": content[:30] + b"!" + content[31:]}[damage])
        assert log.last_stable_offset == 1
        assert [str(path) in record.getMessage() for record in caplog.records] == ([] if damage == "gone" else [True])

    def test_load_producers_after_delete_records(self, tmp_path: Path) -> None:
        """LogLoaderTest.testLoadProducersAfterDeleteRecordsMidSegment, testLoadProducersAfterDeleteRecordsOnSegment: a log start
        inside a segment or at one's base changes nothing about what is open, only that nothing below it counts"""
        builder = LogBuilder(tmp_path / "t-0").append(data(0, 1), data(1, 2)).roll().append(data(2, 2)).close()
        for log_start_offset in (0, 1, 2):
            log = builder.open(log_start_offset=log_start_offset)
            assert log.last_stable_offset == log_start_offset


class TestAborted:
    def test_full_transaction_index_recovery(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """LogLoaderTest.testFullTransactionIndexRecovery, LogSegmentTest.testRecoverTransactionIndex: rebuilt from the log
        when the
        index is gone (here in memory), with the last stable offset as it was"""
        builder = LogBuilder(tmp_path / "t-0", start_offset=100)
        builder.append(data(100, 1, 2), data(102, 2, 2), data(104, 1), data(105, 2))
        builder.append(end(106, ABORT, 2), end(107, COMMIT, 1)).close()
        expected = [AbortedTxn(2, 102, 106, 100)]
        assert builder.open().aborted_transactions(100, 108) == expected
        builder.file(100, ".txnindex").unlink()
        for path in builder.directory.glob("*.snapshot"):
            path.unlink()
        assert builder.open().aborted_transactions(100, 108) == expected
        assert "missing or damaged" in caplog.text

    def test_range(self, tmp_path: Path) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(data(0, 7), data(1, 8)).roll().append(end(2, ABORT, 7)).roll()
        builder.append(build.batch(3, [3]), end(4, ABORT, 8)).close()
        log = builder.open()
        first, second = AbortedTxn(7, 0, 2, 1), AbortedTxn(8, 1, 4, 5)
        assert log.aborted_transactions(0, 5) == [first, second]
        assert log.aborted_transactions(0, 1) == [first]
        assert log.aborted_transactions(1, 2) == [first, second]
        assert log.aborted_transactions(3, 4) == [second]
        assert log.aborted_transactions(5, 5) == []

    def test_segments_behind_the_range_are_not_read(self, tmp_path: Path) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(data(0, 7), end(1, ABORT, 7)).roll()
        for base in range(2, 40, 2):
            builder.append(build.batch(base, [1, 2])).roll()
        log = builder.close().open()
        assert len(log.aborted_transactions(0, 2)) == 1
        assert [segment.bytes_read for segment in log.segments[2:-1]] == [0] * (len(log.segments) - 3)

    def test_random_transactions(self, model: Model, caplog: pytest.LogCaptureFixture) -> None:
        model.check(model.builder.close().open())
        assert not caplog.records

    def test_without_a_clean_shutdown(self, model: Model) -> None:
        model.check(model.builder.close_live().open())

    def test_without_snapshots(self, model: Model) -> None:
        builder = model.builder.close()
        for path in builder.directory.glob("*.snapshot"):
            path.unlink()
        model.check(builder.open())

    @pytest.mark.parametrize("snapshots", [True, False])
    def test_without_transaction_indexes(self, model: Model, snapshots: bool, caplog: pytest.LogCaptureFixture) -> None:
        builder = model.builder.close()
        lost = list(builder.directory.glob("*.txnindex"))
        for path in lost + ([] if snapshots else list(builder.directory.glob("*.snapshot"))):
            path.unlink()
        model.check(builder.open())
        assert {record.getMessage().split(": ")[0] for record in caplog.records} <= {str(path) for path in lost}
        assert caplog.records

    @pytest.mark.parametrize("seed", range(12))
    def test_damaged_transaction_indexes(self, tmp_path: Path, seed: int) -> None:
        """Bytes flipped anywhere in every index: aborted records stay hidden, committed ones seen."""
        model = Model(tmp_path, seed % 3, segment_bytes=1500)
        builder, chance = model.builder.close(), random.Random(seed)
        for path in builder.directory.glob("*.txnindex"):
            content = bytearray(path.read_bytes())
            for _ in range(chance.randrange(1, 3)):
                position = chance.randrange(len(content))
                if position % 34 < 26:  # the last stable offset is not used
                    content[position] ^= 1 << chance.randrange(8)
            path.write_bytes(content)
        model.check(builder.open())

    @pytest.mark.parametrize("snapshots", ["all", "some", "none"])
    @pytest.mark.parametrize("seed", range(6))
    def test_indexes_without_some_entries(
        self, tmp_path: Path, seed: int, snapshots: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whole entries gone from any segment's index, at the end or in between: seen from the log, and told."""
        model = Model(tmp_path, seed % 3, segment_bytes=1500)
        builder, chance = model.builder.close(), random.Random(seed)
        cut = set()
        for path in sorted(builder.directory.glob("*.txnindex")):
            content = path.read_bytes()
            entries = [content[i : i + 34] for i in range(0, len(content), 34)]
            kept = entries[:-1] if seed < 3 else [entry for entry in entries if chance.random() < 0.5]
            if len(kept) < len(entries):
                cut.add(str(path))
                path.write_bytes(b"".join(kept))
        for path in sorted(builder.directory.glob("*.snapshot")):
            if snapshots == "none" or (snapshots == "some" and chance.random() < 0.5):
                path.unlink()
        log = builder.open()
        model.check(log)
        log.aborted_transactions(0, log.log_end_offset)
        assert cut
        assert {record.getMessage().split(": ")[0] for record in caplog.records} == cut

    @pytest.mark.parametrize("with_end_state", [False, True])
    @pytest.mark.parametrize("snapshot", [True, False])
    @pytest.mark.parametrize(
        ("entries", "told"),
        [
            ([(7, 2, 5), (7, 6, 7)], None),
            ([(7, 2, 5)], "is not in the index (7)"),
            ([(7, 6, 7)], "is not in the index (5)"),
            ([(7, 0, 5), (7, 6, 7)], "has the wrong first offset (0)"),
            ([(7, 3, 5), (7, 6, 7)], "has the wrong first offset (3)"),
            ([(7, 2, 5), (7, 2, 7)], "has the wrong first offset (2)"),
            ([(7, 2, 5), (8, 6, 7)], "has no ABORT marker in the log (7)"),
            ([(7, 0, 1), (7, 2, 5), (7, 6, 7)], "lists a committed transaction as aborted (1)"),
            ([(7, 2, 5), (7, 6, 7), (9, 8, 8)], None),
            ([(7, 2, 5), (7, 6, 7), (9, 0, 8)], None),
            ([(7, 2, 5), (7, 6, 7), (7, 2, 8)], "has no ABORT marker in the log (8)"),
            ([(7, 2, 5), (7, 6, 7), (10, 8, 9)], "has no ABORT marker in the log (9)"),
            ([(7, 2, 5), (7, 6, 7), (11, 8, 10)], "has no ABORT marker in the log (10)"),
        ],
    )
    def test_what_an_index_may_say(
        self,
        tmp_path: Path,
        snapshot: bool,
        with_end_state: bool,
        entries: list[tuple[int, int, int]],
        told: str | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Against: 0-1 committed; 2-5 and 6-7 aborted; 8 the ABORT and 9 the COMMIT of transactions without records; 10 plain."""
        builder = LogBuilder(tmp_path / "t-0").append(data(0, 7), end(1, COMMIT, 7), data(2, 7), data(3, 7, 2), end(5, ABORT, 7))
        builder.append(data(6, 7), end(7, ABORT, 7), end(8, ABORT, 9), end(9, COMMIT, 10), build.batch(10, [10])).roll()
        builder.append(build.batch(11, [11])).close()
        index = TxnIndex(0, [AbortedTxn(*entry, entry[2] + 1) for entry in entries])
        builder.file(0, ".txnindex").write_bytes(index.to_bytes())
        if not snapshot:
            for path in builder.directory.glob("*.snapshot"):
                path.unlink()
        log = builder.open()
        if with_end_state:
            assert log.last_stable_offset == 12
        aborted = log.aborted_transactions(0, 12)
        assert [txn[:3] for txn in aborted] == ([(7, 2, 5), (7, 6, 7)] if told else entries)
        assert read_committed(builder.open()) == [0, 10, 11]
        texts = {record.getMessage() for record in caplog.records}
        assert len(texts) == bool(told)
        assert all(str(told) in text and text.endswith("aborted transactions are read from the log") for text in texts)

    def test_an_index_entry_from_before_the_snapshot(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """What was open at a segment's base is in its snapshot: an entry cannot begin before without that."""
        builder = LogBuilder(tmp_path / "t-0").append(data(0, 7), end(1, COMMIT, 7)).roll()
        builder.append(build.batch(2, [2]), data(3, 7), end(4, ABORT, 7)).close()
        builder.file(2, ".txnindex").write_bytes(AbortedTxn(7, 0, 4, 5).to_bytes())
        builder.file(0, ".snapshot").unlink(missing_ok=True)
        assert builder.open().aborted_transactions(2, 5) == [AbortedTxn(7, 3, 4, 5)]
        assert "has the wrong first offset (0)" in caplog.text

    def test_an_entry_newer_than_what_is_seen(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The owner went on after the listing: to the log, and to the index."""
        builder = LogBuilder(tmp_path / "t-0").append(data(0, 7), end(1, ABORT, 7)).close_live()
        log = builder.open()
        builder.append(data(2, 7), end(3, ABORT, 7)).close_live()
        assert log.log_end_offset == 2
        assert log.aborted_transactions(0, 10) == [AbortedTxn(7, 0, 1, 2)]
        assert not caplog.records

    def test_every_segment_is_walked_once(self, tmp_path: Path) -> None:
        """Also where there is no snapshot to start from: older releases kept two."""
        builder = LogBuilder(tmp_path / "t-0")
        for base in range(0, 300, 3):
            builder.append(data(base, 7, 2), end(base + 2, ABORT, 7)).roll()
        builder.close()
        for path in builder.directory.glob("*.snapshot"):
            path.unlink()
        log = builder.open()
        assert len(log.aborted_transactions(0, 300)) == 100
        one = log.segments[0].size_bytes
        assert sum(segment.bytes_read for segment in log.segments) < 20 * 100 * one

    def test_an_index_cut_short(self, tmp_path: Path) -> None:
        """In the last segment, whose end is replayed anyway, even a cut between two entries is found out."""
        builder = LogBuilder(tmp_path / "t-0")
        builder.append(data(0, 7), end(1, ABORT, 7), data(2, 7), end(3, ABORT, 7)).close_live()
        path = builder.file(0, ".txnindex")
        path.write_bytes(path.read_bytes()[:34])
        assert [txn.last_offset for txn in builder.open().aborted_transactions(0, 4)] == [1, 3]
        path.write_bytes(b"")
        assert [txn.last_offset for txn in builder.open().aborted_transactions(0, 4)] == [1, 3]

    def test_an_index_that_names_a_commit(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(data(0, 7), end(1, COMMIT, 7), data(2, 7), end(3, ABORT, 7)).close()
        builder.file(0, ".txnindex").write_bytes(TxnIndex(0, [AbortedTxn(7, 0, 1, 2), AbortedTxn(7, 2, 3, 4)]).to_bytes())
        assert read_committed(builder.open()) == [0]
        assert "committed" in caplog.text

    def test_a_transaction_whose_beginning_was_compacted_away(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [0]), data(5, 7), end(8, ABORT, 7)).close()
        builder.file(0, ".txnindex").write_bytes(TxnIndex(0, [AbortedTxn(7, 2, 8, 9)]).to_bytes())
        assert builder.open().aborted_transactions(0, 9) == [AbortedTxn(7, 2, 8, 9)]
        assert not caplog.records

    def test_an_empty_marker_batch(self, tmp_path: Path) -> None:
        """ProducerStateManagerTest.testAppendEmptyControlBatch: compaction emptied it; nothing ends, and nothing breaks"""
        from tidelog.records.builder import build_empty_batch_v2

        empty = build_empty_batch_v2(1, 1, producer=Producer(7, 0, -1), is_transactional=True, is_control=True)
        path = tmp_path / "t-0"
        path.mkdir()
        (path / "00000000000000000000.log").write_bytes(build.batch(0, [0]) + bytes(empty) + build.batch(2, [0]))
        log = Log.open(path)
        assert (log.last_stable_offset, log.aborted_transactions(0, 3)) == (3, [])

    def test_a_damaged_marker_is_told(self, tmp_path: Path) -> None:
        builder = (
            LogBuilder(tmp_path / "t-0").append(data(0, 7), end(1, ABORT, 7), *(build.batch(i, [i]) for i in range(2, 9))).close()
        )
        for path in builder.directory.glob("*.snapshot"):
            path.unlink()
        content = builder.file(0, ".log").read_bytes()
        start, stop = len(data(0, 7)), len(data(0, 7)) + len(end(1, ABORT, 7))
        for position in range(start + 61, stop):
            damaged = bytearray(content)
            damaged[position] ^= 1
            builder.file(0, ".log").write_bytes(damaged)
            with pytest.raises(CorruptBatchError):
                _ = builder.open().last_stable_offset

    def test_snapshots_of_the_builder_are_those_of_a_replay(self, model: Model) -> None:
        """The state that replaying the log gives is the one that was written on the way."""
        builder = model.builder.close()
        log = builder.open()
        written = {entry.producer_id: entry for entry in read_snapshot(builder.file(log.log_end_offset, ".snapshot"))}
        for path in builder.directory.glob("*.snapshot"):
            path.unlink()
        assert builder.open()._transactions.end_state().producers == written


def test_a_snapshot_of_another_log_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its checksum is right, and it reports no open transaction: then an abort after it would be of nothing."""
    builder = LogBuilder(tmp_path / "t-0")
    builder.append(build.batch(0, [1]), build.batch(1, [2], producer=Producer(7, 0, 0), transactional=True)).roll()
    builder.append(build.marker(2, 3, ControlType.ABORT, 7)).close()
    assert [txn.first_offset for txn in builder.open().aborted_transactions(2, 3)] == [1]
    builder.file(2, names.SNAPSHOT_SUFFIX).write_bytes(build_snapshot([]))
    builder.file(2, names.TXN_INDEX_SUFFIX).unlink()
    assert [txn.first_offset for txn in builder.open().aborted_transactions(2, 3)] == [1]
    assert "its open transactions differ from the log's" in caplog.text


@pytest.mark.parametrize(("batches", "is_seen"), [(2, True), (1, False)])
def test_so_many_batches_are_replayed_to_doubt_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, batches: int, is_seen: bool
) -> None:
    """Beyond that it is believed, and the replay from it goes on from its offset."""
    monkeypatch.setattr(transactions, "MAX_REPLAYED_BATCHES", batches)
    builder = LogBuilder(tmp_path / "t-0")
    builder.append(build.batch(0, [1]), build.batch(1, [2], producer=Producer(7, 0, 0), transactional=True)).roll()
    builder.append(build.batch(2, [3])).close()
    builder.file(3, names.SNAPSHOT_SUFFIX).unlink()
    builder.file(2, names.SNAPSHOT_SUFFIX).write_bytes(build_snapshot([]))
    assert builder.open().last_stable_offset == (1 if is_seen else 3)
    assert ("its open transactions differ from the log's" in caplog.text) is is_seen
