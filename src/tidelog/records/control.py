"""Control records: only brokers write them into a log, not producers.

A control batch (attributes bit 5) holds one record::

    key    int16 version (0), int16 type
    value  end of a transaction: int16 version (0), int32 coordinator epoch
           other types: a message of the Raft layer, not parsed here

Readers never return control records to users. Searches by time include them, as in Kafka (spec §13).
"""

from __future__ import annotations

import os
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from tidelog.errors import InvalidRecordError
from tidelog.records.compression import Bytes

_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")

CURRENT_VERSION = 0


class ControlType(IntEnum):
    """The type of a control record. `UNKNOWN` stands for types that are newer than this list."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class EndTxnMarker(NamedTuple):
    """The end of a transaction: `type` is ABORT or COMMIT."""

    type: ControlType
    coordinator_epoch: int


def parse_control_type(
    key: Bytes | None, *, path: str | os.PathLike[str] | None = None, position: int | None = None
) -> ControlType:
    """Return the type in a control record's key. Raises InvalidRecordError for an invalid key."""
    if key is None or len(key) < _KEY.size:
        found = "null" if key is None else f"{len(key)} bytes"
        raise InvalidRecordError(
            "a control record's key is too short", path=path, position=position, found=found, expected="4 bytes"
        )
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(
            "a control record's key has an invalid version", path=path, position=position, found=version, expected="0 or more"
        )
    try:
        return ControlType(type_id)
    except ValueError:
        return ControlType.UNKNOWN


def parse_end_txn_marker(
    key: Bytes | None, value: Bytes | None, *, path: str | os.PathLike[str] | None = None, position: int | None = None
) -> EndTxnMarker:
    """Return the transaction marker in a control record. Raises InvalidRecordError if the record is not a transaction marker."""
    control_type = parse_control_type(key, path=path, position=position)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecordError(
            "a control record is not a transaction marker",
            path=path,
            position=position,
            found=control_type.name,
            expected="ABORT or COMMIT",
        )
    if value is None or len(value) < _END_TXN_VALUE.size:
        found = "null" if value is None else f"{len(value)} bytes"
        raise InvalidRecordError(
            "a transaction marker is too short", path=path, position=position, found=found, expected="6 bytes"
        )
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(
            "a transaction marker has an invalid version", path=path, position=position, found=version, expected="0 or more"
        )
    return EndTxnMarker(control_type, coordinator_epoch)


def control_key(control_type: ControlType) -> bytes:
    """Return the key of a control record."""
    return _KEY.pack(CURRENT_VERSION, control_type)


def end_txn_value(coordinator_epoch: int) -> bytes:
    """Return the value of a transaction marker."""
    return _END_TXN_VALUE.pack(CURRENT_VERSION, coordinator_epoch)
