"""The transaction index: TransactionIndexTest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import CorruptIndexError, InvalidArgumentError, SegmentChangedError
from tidelog.formats.txn_index import AbortedTxn, TxnIndex

FOUR = [AbortedTxn(0, 0, 10, 11), AbortedTxn(1, 5, 15, 13), AbortedTxn(2, 18, 35, 25), AbortedTxn(3, 32, 50, 40)]


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(data)
    return path


def test_position_set_correctly_when_opened(tmp_path: Path) -> None:
    """TransactionIndexTest.testPositionSetCorrectlyWhenOpened: what is appended after opening follows what was there"""
    index = TxnIndex.open(written(tmp_path, TxnIndex(0, FOUR).to_bytes()), 0)
    another = AbortedTxn(3, 50, 60, 55)
    index.append(another)
    assert index.aborted == [*FOUR, another]


def test_sanity_check(tmp_path: Path) -> None:
    """TransactionIndexTest.testSanityCheck"""
    index = TxnIndex.open(written(tmp_path, TxnIndex(0, FOUR).to_bytes()), 100)
    with pytest.raises(CorruptIndexError):
        index.sanity_check()


def test_last_offset_must_increase() -> None:
    """TransactionIndexTest.testLastOffsetMustIncrease"""
    index = TxnIndex(0)
    index.append(AbortedTxn(1, 5, 15, 13))
    with pytest.raises(InvalidArgumentError):
        index.append(AbortedTxn(0, 0, 15, 11))


def test_last_offset_cannot_decrease() -> None:
    """TransactionIndexTest.testLastOffsetCannotDecrease"""
    index = TxnIndex(0)
    index.append(AbortedTxn(1, 5, 15, 13))
    with pytest.raises(InvalidArgumentError):
        index.append(AbortedTxn(0, 0, 10, 11))


def test_collect_aborted_transactions() -> None:
    """TransactionIndexTest.testCollectAbortedTransactions"""
    index = TxnIndex(0, FOUR)
    assert index.collect_aborted_txns(0, 100) == (FOUR, False)
    assert index.collect_aborted_txns(0, 32) == (FOUR[:3], True)
    assert index.collect_aborted_txns(0, 35) == (FOUR, True)
    assert index.collect_aborted_txns(10, 35) == (FOUR, True)
    assert index.collect_aborted_txns(11, 35) == (FOUR[1:], True)
    assert index.collect_aborted_txns(20, 41) == (FOUR[2:], False)


def test_truncate() -> None:
    """TransactionIndexTest.testTruncate"""
    index = TxnIndex(0, FOUR)
    index.truncate_to(51)
    assert index.aborted == FOUR
    index.truncate_to(50)
    assert index.aborted == FOUR[:3]
    index.reset()
    assert index.aborted == [] and index.last_offset is None


def test_aborted_txn_serde() -> None:
    """TransactionIndexTest.testAbortedTxnSerde"""
    txn = AbortedTxn(983493, 137, 299, 200)
    data = txn.to_bytes()
    assert data == bytes.fromhex("0000 00000000000f01c5 0000000000000089 000000000000012b 00000000000000c8")
    assert AbortedTxn.from_bytes(data) == txn


def test_rename_index(tmp_path: Path) -> None:
    """TransactionIndexTest.testRenameIndex: found under ``.deleted`` too, as long as that exists"""
    path = written(tmp_path, TxnIndex(0, FOUR).to_bytes())
    path.rename(f"{path}.deleted")
    assert TxnIndex.open(path, 0).aborted == FOUR
    Path(f"{path}.deleted").unlink()
    with pytest.raises(SegmentChangedError):
        TxnIndex.open(path, 0)


def test_damage(tmp_path: Path) -> None:
    data = TxnIndex(0, FOUR).to_bytes()
    with pytest.raises(CorruptIndexError, match="135 bytes"):
        TxnIndex.open(written(tmp_path, data[:-1]), 0)
    with pytest.raises(CorruptIndexError, match="version") as raised:
        TxnIndex.open(written(tmp_path, data[:34] + b"\1" + data[35:]), 0)
    assert raised.value.position == 34
    with pytest.raises(CorruptIndexError, match="accepts only increasing offsets"):
        TxnIndex.open(written(tmp_path, data[34:68] + data[:34]), 0)
