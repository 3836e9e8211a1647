"""Records of ``__remote_log_metadata``: bytes that Kafka 3.9.1 wrote, and what cannot be decoded."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.conftest import run_ok
from tests.decoding.test_internal_topics import INTERNAL, read, write
from tidelog.errors import ProtocolError
from tidelog.metadata.frame import UnknownRecord, encode_record
from tidelog.metadata.remote_log_records import (
    REMOTE_LOG_RECORDS,
    PartitionDeleteState,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentState,
    TopicIdPartitionEntry,
    decode_remote_log_record,
)
from tidelog.model import REMOTE_LOG_METADATA_TOPIC

STARTED = base64.b64decode(
    "AQAAB29yZGVyc7koa5pzzkRLl4VtBCYHsK0AAAAAADe/gxUC00etg9MsXol/G0gAAAAAAAAAAAAAAAAAAAAAgQAAAAEAAAGL0C/K+AAAAaIg"
    "wKD7AgAAAAAAAAAAAAAAAAAAAD1KAAAA"
)
FINISHED = base64.b64decode("AQEAB29yZGVyc7koa5pzzkRLl4VtBCYHsK0AAAAAADe/gxUC00etg9MsXol/G0gAAAAAAQAAAaIgwKFPAAEA")
DELETED = encode_record(
    RemotePartitionDeleteMetadataRecord(
        TopicIdPartitionEntry("orders", UUID(int=7), 3), 1, 5, PartitionDeleteState.DELETE_PARTITION_MARKED
    ),
    0,
)
ID = {"topicIdPartition": {"name": "orders", "id": "uShrmnPOREuXhW0EJgewrQ", "partition": 0}, "id": "N7-DFQLTR62D0yxeiX8bSA"}
SHOWN = [
    {
        "type": "REMOTE_LOG_SEGMENT_METADATA_RECORD",
        "version": 0,
        "data": {
            "remoteLogSegmentId": ID,
            "startOffset": 0,
            "endOffset": 129,
            "brokerId": 1,
            "maxTimestampMs": 1700004875000,
            "eventTimestampMs": 1795845824763,
            "segmentLeaderEpochs": [{"leaderEpoch": 0, "offset": 0}],
            "segmentSizeInBytes": 15690,
            "customMetadata": None,
            "remoteLogSegmentState": "COPY_SEGMENT_STARTED",
        },
    },
    {
        "type": "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD",
        "version": 0,
        "data": {
            "remoteLogSegmentId": ID,
            "brokerId": 1,
            "eventTimestampMs": 1795845824847,
            "customMetadata": None,
            "remoteLogSegmentState": "COPY_SEGMENT_FINISHED",
        },
    },
    {
        "type": "REMOTE_PARTITION_DELETE_METADATA_RECORD",
        "version": 0,
        "data": {
            "topicIdPartition": {"name": "orders", "id": "AAAAAAAAAAAAAAAAAAAABw", "partition": 3},
            "brokerId": 1,
            "eventTimestampMs": 5,
            "remotePartitionDeleteState": "DELETE_PARTITION_MARKED",
        },
    },
]


def test_what_kafka_wrote_is_decoded_and_encoded_again() -> None:
    for value in (STARTED, FINISHED, DELETED):
        record = decode_remote_log_record(value)
        assert not isinstance(record, UnknownRecord)
        assert encode_record(record, 0) == value
    finished = decode_remote_log_record(FINISHED)
    assert isinstance(finished, RemoteLogSegmentMetadataUpdateRecord)
    assert finished.remote_log_segment_state == SegmentState.COPY_SEGMENT_FINISHED


def test_commands_and_scans_show_it(tmp_path: Path) -> None:
    unknown = b"\x01\x09\x00what"
    file = write(tmp_path, REMOTE_LOG_METADATA_TOPIC, [(None, value) for value in (STARTED, FINISHED, DELETED, unknown)])
    rows = read(tmp_path, REMOTE_LOG_METADATA_TOPIC, decode=INTERNAL)
    assert [json.loads(row["value"]) for row in rows[:3]] == SHOWN
    assert (rows[3]["value"], rows[3]["value_undecoded"]) == (None, unknown)
    lines = run_ok("dump", str(file), "--records", "--json").stdout.splitlines()
    records = [row for row in map(json.loads, lines) if row["type"] == "record"]
    assert [row["decoded_value"] for row in records] == [*SHOWN, None]


@pytest.mark.parametrize("value", [STARTED[:-1], FINISHED[:20], b"\x02" + STARTED[1:], FINISHED[:-2] + b"\x09\x00", b""])
def test_malformed_values_are_refused(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_remote_log_record(value)


def test_a_newer_record_is_unknown() -> None:
    assert isinstance(decode_remote_log_record(b"\x01\x00\x63" + STARTED[3:]), UnknownRecord)
    assert set(REMOTE_LOG_RECORDS) == {0, 1, 2, 3}
