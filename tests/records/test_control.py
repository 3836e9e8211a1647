"""Control records: keys and values that brokers write, and ones that they do not."""

from __future__ import annotations

import pytest

from tidelog.errors import InvalidRecordError
from tidelog.records.control import (
    ControlType,
    EndTxnMarker,
    control_key,
    end_txn_value,
    parse_control_type,
    parse_end_txn_marker,
)


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """One run is enough: no kernel has a part in this."""


@pytest.mark.parametrize("control_type", [found for found in ControlType if found is not ControlType.UNKNOWN])
def test_control_types(control_type: ControlType) -> None:
    assert parse_control_type(control_key(control_type)) is control_type
    assert control_key(control_type) == bytes((0, 0, 0, control_type))


def test_younger_keys() -> None:
    """A younger version may carry more; a younger type is unknown, not wrong."""
    assert parse_control_type(b"\x00\x05\x00\x01more") is ControlType.COMMIT
    assert parse_control_type(b"\x00\x00\x00\x63") is ControlType.UNKNOWN


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_keys_that_are_none(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match=r"control record(?:'s)? key.*\(a\.log at byte 5\)"):
        parse_control_type(key, path="a.log", position=5)


def test_end_txn_marker() -> None:
    marker = parse_end_txn_marker(control_key(ControlType.COMMIT), end_txn_value(12))
    assert marker == EndTxnMarker(ControlType.COMMIT, 12)
    assert parse_end_txn_marker(control_key(ControlType.ABORT), end_txn_value(-1) + b"younger").coordinator_epoch == -1


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_markers_that_are_none(value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="transaction marker"):
        parse_end_txn_marker(control_key(ControlType.COMMIT), value)


def test_other_types_end_no_transaction() -> None:
    with pytest.raises(InvalidRecordError, match="found LEADER_CHANGE, expected ABORT or COMMIT"):
        parse_end_txn_marker(control_key(ControlType.LEADER_CHANGE), end_txn_value(0))
