"""Describes a difference between the replicas of a partition, and what each folder has there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from tidelog.check.replicas.batch_bytes import BatchBytes
from tidelog.check.replicas.replica import Replica
from tidelog.errors import CorruptBatchError
from tidelog.formats.batch_walk import check_crc_by_pieces
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import TopicPartition
from tidelog.records.batch import HEADER_BYTES, BatchHeader, read_header
from tidelog.times import format_time

DifferenceKind = Literal["batch", "latest records", "leader epochs", "topic id"]

_FIELDS_V2 = (
    *((0, "base offset"), (8, "length"), (12, "partition leader epoch"), (16, "magic"), (17, "checksum"), (21, "attributes")),
    *((23, "last offset delta"), (27, "base timestamp"), (35, "largest timestamp"), (43, "producer id"), (51, "producer epoch")),
    *((53, "base sequence"), (57, "number of records"), (61, "records")),
)
_FIELDS_V1 = ((0, "offset"), (8, "length"), (12, "checksum"), (16, "magic"), (17, "attributes"), (18, "message"))


class Standing(NamedTuple):
    """What one replica's folder has at the offset where the replicas differ."""

    directory: FilePath
    path: FilePath
    """The replica's file with the difference."""
    position: int | None
    """The position in the file, in bytes."""
    what: str
    header: BatchHeader | None = None
    is_sound: bool = False
    """Whether the folder has a batch there with a valid checksum and a plausible offset. The checksum does not cover the leader
    epoch.
    """

    def __str__(self) -> str:
        place = "" if self.position is None else f" byte {self.position}"
        return f"{self.path}{place}: {self.what}"

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`, with -1 for a missing number."""
        batch = None
        if self.header is not None:
            wanted = (
                "base_offset",
                "last_offset",
                "base_timestamp",
                "max_timestamp",
                "leader_epoch",
                "size",
                "record_count",
                "crc",
            )
            batch = {name: getattr(self.header, name) for name in wanted}
        return {
            "directory": str(self.directory),
            "path": str(self.path),
            "position": self.position,
            "what": self.what,
            "is_sound": self.is_sound,
            "batch": batch,
        }


class Difference(NamedTuple):
    """The first difference of its kind between replicas. `standings` has an element for each folder, in the folders' order."""

    kind: DifferenceKind
    key: TopicPartition
    what: str
    standings: Sequence[Standing]
    offset: int | None = None
    """The first offset at which the replicas differ; None for a topic id."""

    def __str__(self) -> str:
        return f"{self.key.topic}-{self.key.partition}: {self.what}"

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "type": "difference",
            "kind": self.kind,
            "topic": self.key.topic,
            "partition": self.key.partition,
            "offset": self.offset,
            "what": self.what,
            "replicas": [standing.fields() for standing in self.standings],
        }


def batch_difference(replicas: Sequence[Replica], streams: Sequence[BatchBytes], at: int, start_offset: int) -> Difference:
    """Return the difference at byte `at` of the streams, which are equal before it.

    Raises SegmentChangedError, StorageError.
    """
    # All streams are equal before `at`, so one walk finds the start of the batch for all of them.
    begin, offset = max(streams, key=lambda stream: stream.size).batch_start(at)
    standings = [
        _standing(replica, stream, begin, start_offset if offset is None else offset)
        for replica, stream in zip(replicas, streams, strict=True)
    ]
    headers = [one.header for one in standings if one.header is not None]
    if offset is None:
        sound = [one.header.base_offset for one in standings if one.header is not None and one.is_sound]
        offset = max(start_offset, min(sound, default=start_offset))
    field = _field(at - begin, min((header.magic for header in headers), default=2))
    what = f"the replicas differ from offset {offset} on"
    if len(headers) == len(standings):
        what += f", first in byte {at - begin} of the batch ({field})"
    return Difference("batch", replicas[0].key, what, standings, offset)


def _standing(replica: Replica, stream: BatchBytes, begin: int, expected_offset: int) -> Standing:
    place = stream.place(begin)
    if place is None:
        last = replica.log.segments[-1] if replica.log.segments else None
        path, end = (replica.log.directory, None) if last is None else (last.log_path, last.size_bytes)
        return Standing(replica.directory, path, end, "nothing: the log ends here")
    segment, position = place
    here = Standing(replica.directory, segment.log_path, position, "")
    data = segment.file.read(position, min(HEADER_BYTES, segment.size_bytes - position))
    if not any(data):
        return here._replace(what="nothing: zeros, as after the end of a log")
    header = None
    try:
        header = read_header(data, 0, position, segment.log_path)
        if header.end_position > segment.size_bytes:
            raise CorruptBatchError("a batch is truncated by the end of its segment")
        check_crc_by_pieces(segment.file, header)
        if (header.base_offset if header.magic == 2 else header.last_offset) < expected_offset and begin:
            raise CorruptBatchError(f"the previous batch ends at offset {expected_offset - 1}")
    except CorruptBatchError as error:
        damage = error.message if error.found is None else f"{error.message}, found {error.found}, expected {error.expected}"
        return here._replace(what=f"damaged: {damage}" + ("" if header is None else f"; {_described(header)}"), header=header)
    return here._replace(what=_described(header), header=header, is_sound=True)


def _described(header: BatchHeader) -> str:
    base = header.last_offset if header.magic < 2 else header.base_offset
    times = sorted({header.base_timestamp, header.max_timestamp} - {-1})
    shown = " to ".join(format_time(time) for time in times) if times else "no time"
    kind = "control batch" if header.is_control else "batch"
    epoch = "" if header.leader_epoch < 0 else f", leader epoch {header.leader_epoch}"
    return f"{kind} of offsets {base} to {header.last_offset}, {shown}{epoch}, {header.size} bytes, checksum {header.crc:#010x}"


def _field(byte: int, magic: int) -> str:
    fields = _FIELDS_V2 if magic == 2 else _FIELDS_V1
    return next(name for begin, name in reversed(fields) if byte >= begin)
