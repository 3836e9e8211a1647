"""The transaction index on disk: TransactionIndexTest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.reader.build import open_descriptors
from tidelog.errors import CorruptIndexError, InvalidArgumentError, StorageError
from tidelog.formats.txn_index import ENTRY_BYTES, AbortedTxn, TxnIndex
from tidelog.storage.segment.txn_index_file import TxnIndexFile

FOUR = [AbortedTxn(0, 0, 10, 11), AbortedTxn(1, 5, 15, 13), AbortedTxn(2, 18, 35, 25), AbortedTxn(3, 32, 50, 40)]
FIVE = AbortedTxn(3, 50, 60, 55)


def index_of(directory: Path, base_offset: int = 0, entries: list[AbortedTxn] = FOUR) -> TxnIndexFile:
    index = TxnIndexFile(directory / f"{base_offset:020d}.txnindex", base_offset)
    for entry in entries:
        index.append(entry)
    return index


def on_disk(index: TxnIndexFile) -> list[AbortedTxn]:
    return TxnIndex.open(index.path, index.base_offset).aborted


def test_created_by_the_first_entry(tmp_path: Path) -> None:
    index = index_of(tmp_path, entries=[])
    assert index.is_empty and index.aborted == [] and index.collect_aborted_txns(0, 9) == ([], False)
    index.sanity_check()
    index.truncate_to(3)
    index.reset()
    index.flush()
    index.rename_to(Path(f"{index.path}.deleted"))
    index.close()
    assert list(tmp_path.iterdir()) == [] and not index.delete_if_exists()
    index.append(FOUR[0])
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000000.txnindex.deleted"]
    assert index.path.read_bytes() == FOUR[0].to_bytes() and index.size_bytes == ENTRY_BYTES
    index.close()


def test_position_set_correctly_when_opened(tmp_path: Path) -> None:
    """TransactionIndexTest.testPositionSetCorrectlyWhenOpened"""
    index_of(tmp_path).close()
    index = index_of(tmp_path, entries=[FIVE])
    index.close()
    assert on_disk(index) == [*FOUR, FIVE] and index.aborted == [*FOUR, FIVE]


def test_sanity_check(tmp_path: Path) -> None:
    """TransactionIndexTest.testSanityCheck"""
    index_of(tmp_path).close()
    index = TxnIndexFile(tmp_path / "00000000000000000000.txnindex", 100)
    with pytest.raises(CorruptIndexError):
        index.sanity_check()
    index.path.write_bytes(b"x" * (ENTRY_BYTES + 1))
    torn = TxnIndexFile(index.path, 0)
    with pytest.raises(CorruptIndexError, match="invalid length"):
        torn.sanity_check()
    torn.reset()
    torn.append(FOUR[0])
    assert on_disk(torn) == FOUR[:1]
    torn.close()


@pytest.mark.parametrize("last_offset", [15, 14, 10])
def test_last_offset_must_increase(tmp_path: Path, last_offset: int) -> None:
    """TransactionIndexTest.testLastOffsetMustIncrease, testLastOffsetCannotDecrease"""
    index = index_of(tmp_path, entries=FOUR[:2])
    with pytest.raises(InvalidArgumentError):
        index.append(AbortedTxn(0, 0, last_offset, 16))
    index.close()
    assert on_disk(index) == FOUR[:2]


def test_collect_aborted_transactions(tmp_path: Path) -> None:
    """TransactionIndexTest.testCollectAbortedTransactions"""
    index = index_of(tmp_path)
    index.close()
    assert index.collect_aborted_txns(0, 100) == (FOUR, False)
    assert index.collect_aborted_txns(0, 32) == (FOUR[:3], True)
    assert index.collect_aborted_txns(0, 35) == (FOUR, True)
    assert index.collect_aborted_txns(10, 35) == (FOUR, True)
    assert index.collect_aborted_txns(11, 35) == (FOUR[1:], True)
    assert index.collect_aborted_txns(20, 41) == (FOUR[2:], False)


def test_truncate(tmp_path: Path) -> None:
    """TransactionIndexTest.testTruncate"""
    index = index_of(tmp_path)
    index.truncate_to(51)
    assert index.aborted == on_disk(index) == FOUR
    index.truncate_to(50)
    assert index.aborted == on_disk(index) == FOUR[:3]
    index.append(FIVE)
    assert on_disk(index) == [*FOUR[:3], FIVE]
    index.reset()
    assert index.aborted == [] and index.path.stat().st_size == 0
    index.append(FOUR[0])
    assert on_disk(index) == FOUR[:1]
    index.close()


def test_rename_index(tmp_path: Path) -> None:
    """TransactionIndexTest.testRenameIndex: what comes after goes on in the renamed file"""
    index = index_of(tmp_path, entries=FOUR[:2])
    renamed = tmp_path / "00000000000000000000.txnindex.swap"
    index.rename_to(renamed)
    index.append(FOUR[2])
    index.close()
    assert [path.name for path in tmp_path.iterdir()] == [renamed.name]
    assert index.path == renamed and on_disk(index) == FOUR[:3] == index.aborted


def test_update_parent_dir(tmp_path: Path) -> None:
    """TransactionIndexTest.testUpdateParentDir"""
    (tmp_path / "old").mkdir()
    index = index_of(tmp_path / "old", entries=FOUR[:1])
    (tmp_path / "old").rename(tmp_path / "new")
    index.update_parent_dir(tmp_path / "new")
    index.close()
    assert index.path == tmp_path / "new" / "00000000000000000000.txnindex" and index.aborted == FOUR[:1]


def test_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TransactionIndexTest.testFlush: the file, and once its folder"""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    index = index_of(tmp_path, entries=FOUR[:1])
    index.flush()
    assert synced == [str(index.path), str(tmp_path)]
    index.append(FOUR[1])
    index.flush()
    assert synced[2:] == [str(index.path)]
    index.close()
    index.flush()
    assert len(synced) == 3


def test_delete_if_exists(tmp_path: Path) -> None:
    """TransactionIndexTest.testDeleteIfExists"""
    index = index_of(tmp_path)
    assert index.delete_if_exists() and list(tmp_path.iterdir()) == []
    assert not index.delete_if_exists() and index.is_empty


def test_reading_keeps_nothing_open(tmp_path: Path) -> None:
    index_of(tmp_path).close()
    index = TxnIndexFile(tmp_path / "00000000000000000000.txnindex", 0)
    assert not index.is_empty
    index.truncate_to(100)
    assert open_descriptors(tmp_path) == []


@pytest.mark.parametrize("written", [None, 20])
def test_a_full_disk_leaves_no_torn_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int | None) -> None:
    """UnifiedLogTest.testAppendToTransactionIndexFailure: what the index does"""
    index = index_of(tmp_path, entries=FOUR[:1])
    real = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if written is None:
            raise OSError(28, "No space left on device")
        return real(fd, data[:written], position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(StorageError):
            index.append(FOUR[1])
    assert index.path.stat().st_size == ENTRY_BYTES and index.aborted == FOUR[:1]
    index.append(FOUR[1])
    assert on_disk(index) == FOUR[:2]
    index.close()


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    index = index_of(tmp_path / "gone", entries=[])
    with pytest.raises(StorageError, match="cannot open a transaction index"):
        index.append(FOUR[0])
    assert index.aborted == []
