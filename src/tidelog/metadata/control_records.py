"""Control records of the Raft layer (KIP-595, KIP-630, KIP-853): leader changes, the header and footer of snapshots, voters.

Their batches have the control bit. A record's key is its type (`records.control`); its value is one of these messages. The field
`version` repeats the version of the value's encoding.
"""

from __future__ import annotations

import uuid

from tidelog.metadata.voters_record import VotersRecord
from tidelog.records.control import ControlType
from tidelog.wire.fields import Message, Struct, array, int16, int32, int64, uuid16


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: uuid.UUID = uuid16("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    kraft_version: int = int16()


CONTROL_RECORDS: dict[ControlType, type[Message]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
"""The message class of a control record's value, by the record's type."""
