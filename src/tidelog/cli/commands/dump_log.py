"""`tidelog dump FILE.log`: the batches of a segment, and with --records their records.

Every checksum is verified. A batch with a wrong checksum is shown and marked, and the walk continues after it by its length; the
run then ends with an error that counts such batches. An invalid header ends the walk. A batch that is cut off at the end of the
file, or zeros after the last one, may be left by a crash or a running broker: they are noted, not errors. A snapshot of KRaft's
metadata is written as a whole: an incomplete one is an error.

The file is read in chunks of `CHUNK_BYTES`; only --records reads more, for a larger batch with a valid checksum.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from struct import Struct

from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_bytes, show_time, table
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.decoding.internal.records import InternalRecords
from tidelog.errors import CorruptBatchError, CorruptDataError, SegmentChangedError
from tidelog.formats.batch_walk import check_crc_by_pieces
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath
from tidelog.metadata.json_form import try_show_value
from tidelog.model import KAFKAS_TOPICS, METADATA_TOPIC
from tidelog.reader.metadata_log import ASIDE_DIR, METADATA_DIR, read_snapshot
from tidelog.records.batch import HEADER_BYTES, LOG_OVERHEAD, MIN_HEADER_BYTES, MIN_LENGTH, BatchHeader, compute_crc, read_header
from tidelog.records.compression import Bytes
from tidelog.records.control import ControlType, parse_control_type, parse_end_txn_marker
from tidelog.records.records import Record, iter_records
from tidelog.sources.selection.record_files import TIMESTAMP_TYPES

CHUNK_BYTES = 1 << 20

_LENGTH = Struct(">i")

Row = dict[str, object]


class Walk:
    """Walks the batches of one file, and remembers errors and the remaining bytes."""

    def __init__(self, file: ReadOnlyFile) -> None:
        self.file = file
        self.path = file.path
        self.size_bytes = file.size_bytes()
        self.position = 0
        self.damaged = 0
        self.first_damaged = -1
        self._chunk = memoryview(b"")
        self._start = 0

    def batches(self, on_progress: Callable[[int], None]) -> Iterator[tuple[BatchHeader, bool]]:
        """Yield each header, and whether the checksum is valid. Raises CorruptBatchError for an invalid header."""
        while self.size_bytes - self.position >= MIN_HEADER_BYTES:
            rest_bytes = self.size_bytes - self.position
            self._need(min(HEADER_BYTES, rest_bytes))
            index = self.position - self._start
            (length,) = _LENGTH.unpack_from(self._chunk, index + 8)
            if length == 0 or (length >= MIN_LENGTH and length + LOG_OVERHEAD > rest_bytes):
                return
            header = read_header(self._chunk, index, self.position, self.path)
            is_sound = self._is_sound(header)
            if not is_sound:
                self.damaged += 1
                if self.first_damaged < 0:
                    self.first_damaged = self.position
            yield header, is_sound
            self.position += header.size
            on_progress(header.size)

    def records(self, header: BatchHeader) -> Iterator[Record]:
        """Yield the records of the last yielded batch."""
        self._need(header.size)
        index = self.position - self._start
        return iter_records(header, self._chunk[index : index + header.size], path=self.path, check_crc=False)

    def _is_sound(self, header: BatchHeader) -> bool:
        if header.size > CHUNK_BYTES:
            # A damaged length may be huge: check such a batch in pieces, so that it does not need memory.
            try:
                check_crc_by_pieces(self.file, header)
            except CorruptBatchError:
                return False
            return True
        self._need(header.size)
        index = self.position - self._start
        return compute_crc(header.magic, self._chunk[index : index + header.size]) == header.crc

    def print_rest(self) -> None:
        """Print a note about bytes after the last batch, if there are any."""
        rest_bytes = self.size_bytes - self.position
        if rest_bytes == 0:
            return
        if self._is_zero():
            text = "zeros: preallocated, not yet written"
        else:
            text = "an incomplete batch: cut off by a crash, or still being written"
        notices.note(f"{self.path}: the last {rest_bytes} bytes, from byte {self.position}, are {text}")

    def _is_zero(self) -> bool:
        position = self.position
        while position < self.size_bytes:
            data = self.file.read(position, min(CHUNK_BYTES, self.size_bytes - position))
            if not data or data.count(0) != len(data):
                return False
            position += len(data)
        return True

    def _need(self, length: int) -> None:
        """Ensure that the chunk has `length` bytes from the current position."""
        if self.position - self._start + length <= len(self._chunk):
            return
        wanted = min(max(length, CHUNK_BYTES), self.size_bytes - self.position)
        data = self.file.read(self.position, wanted)
        if len(data) < wanted:
            raise SegmentChangedError("the file was truncated while it was being read", path=self.path, position=self.position)
        self._chunk, self._start = memoryview(data), self.position


def dump_log(path: FilePath, *, with_records: bool, as_json: bool) -> None:
    """Print the batches of a .log file. If there is damage, print everything that can be shown, then raise CorruptDataError."""
    internal = _internal_records(path)
    with ReadOnlyFile(path, fallbacks=()) as file:
        walk = Walk(file)
        with ProgressBar(f"dump {path.name}", walk.size_bytes) as bar:
            batches = walk.batches(bar.advance)
            if as_json:
                print_lines(_json_lines(walk, batches, with_records, internal))
            elif with_records:
                print_lines(_lines_with_records(walk, batches, internal))
            else:
                rows = (_batch_cells(header, is_sound) for header, is_sound in batches)
                print_lines(table(_BATCH_HEADER, rows, spare=_SPARE))
        is_snapshot = path.name.endswith(".checkpoint")
        if not is_snapshot:
            walk.print_rest()
    if internal is not None:
        for text in internal.notices():
            notices.note(text)
    if walk.damaged:
        plural = "es do" if walk.damaged > 1 else " does"
        raise CorruptBatchError(
            f"the checksum of {walk.damaged} batch{plural} not match, the first one", path=path, position=walk.first_damaged
        )
    if is_snapshot:
        read_snapshot(path)  # Raises an error if it is incomplete: a snapshot gets its name when it is complete.


_BATCH_HEADER = (
    "position",
    "bytes",
    "base offset",
    "last offset",
    "records",
    "format",
    "codec",
    "timestamp type",
    "max timestamp",
    "epoch",
    "producer",
    "sequence",
    "",
)
_SPARE = ("timestamp type", "format", "sequence", "epoch", "producer", "codec", "bytes")


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except CorruptDataError:
        return "unknown"


def _flags(header: BatchHeader, is_sound: bool) -> str:
    flags = [
        name
        for name, is_set in (
            ("transactional", header.is_transactional),
            ("control", header.is_control),
            (f"delete horizon {show_time(header.base_timestamp)}", header.has_delete_horizon),
            ("WRONG CHECKSUM", not is_sound),
        )
        if is_set
    ]
    return ", ".join(flags)


def _batch_cells(header: BatchHeader, is_sound: bool) -> list[object]:
    return [
        header.position,
        header.size,
        header.base_offset,
        header.last_offset,
        None if header.record_count < 0 else header.record_count,
        f"v{header.magic}",
        _codec_name(header),
        TIMESTAMP_TYPES[header.timestamp_type],
        show_time(header.max_timestamp),
        None if header.leader_epoch < 0 else header.leader_epoch,
        f"{header.producer_id}/{header.producer_epoch}" if header.has_producer_id else None,
        None if header.base_sequence < 0 else header.base_sequence,
        _flags(header, is_sound),
    ]


def _batch_row(header: BatchHeader, is_sound: bool) -> Row:
    return {
        "type": "batch",
        "position": header.position,
        "bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "magic": header.magic,
        "codec": _codec_name(header),
        "timestamp_type": TIMESTAMP_TYPES[header.timestamp_type],
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "has_delete_horizon": header.has_delete_horizon,
        "crc": header.crc,
        "crc_ok": is_sound,
    }


def _json_lines(
    walk: Walk, batches: Iterator[tuple[BatchHeader, bool]], with_records: bool, internal: InternalRecords | None
) -> Iterator[str]:
    yield json_line({"type": "file", "path": str(walk.path), "kind": "log", "bytes": walk.size_bytes})
    for header, is_sound in batches:
        yield json_line(_batch_row(header, is_sound))
        if with_records and is_sound:
            for record in walk.records(header):
                yield json_line(_record_row(header, record, walk.path, internal))


def _record_row(header: BatchHeader, record: Record, path: FilePath, internal: InternalRecords | None) -> Row:
    row: Row = {"type": "record", "offset": record.offset, "timestamp": record.timestamp}
    if header.is_control:
        return {**row, "type": "control", **_control_facts(header, record, path)}
    if _is_metadata(path):
        return {**row, "metadata": try_show_value(record.value or b"")}
    row |= {
        "timestamp_type": TIMESTAMP_TYPES[record.timestamp_type],
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[key, _base64(value)] for key, value in record.headers],
    }
    if internal is not None:
        row |= {"decoded_key": internal.key(record.key), "decoded_value": internal.value(record.key, record.value)}
    return row


def _control_facts(header: BatchHeader, record: Record, path: FilePath) -> Row:
    kind = parse_control_type(record.key, path=path, position=header.position)
    facts: Row = {"control": kind.name}
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        marker = parse_end_txn_marker(record.key, record.value, path=path, position=header.position)
        facts["coordinator_epoch"] = marker.coordinator_epoch
    return facts


def _internal_records(path: FilePath) -> InternalRecords | None:
    """Return the decoder of an internal topic's records, by the name of the file's folder; None for all other files."""
    topic = path.absolute().parent.name.rpartition("-")[0]
    return InternalRecords(topic) if topic in KAFKAS_TOPICS - {METADATA_TOPIC} else None


def _is_metadata(path: FilePath) -> bool:
    """Whether a file belongs to KRaft's metadata log: a segment or a snapshot."""
    return path.parent.name in (METADATA_DIR, ASIDE_DIR) or path.name.endswith(".checkpoint")


def _base64(data: Bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _lines_with_records(
    walk: Walk, batches: Iterator[tuple[BatchHeader, bool]], internal: InternalRecords | None
) -> Iterator[str]:
    for header, is_sound in batches:
        yield one_line(_batch_sentence(header, is_sound))
        if is_sound:
            records = walk.records(header)
            for line in table(None, (_record_cells(header, record, walk.path, internal) for record in records)):
                yield f"    {line}"


def _batch_sentence(header: BatchHeader, is_sound: bool) -> str:
    count = "" if header.record_count < 0 else f", {header.record_count} record{'' if header.record_count == 1 else 's'}"
    producer = f", producer {header.producer_id}/{header.producer_epoch}" if header.has_producer_id else ""
    sequence = f" sequence {header.base_sequence}" if header.base_sequence >= 0 else ""
    epoch = f", leader epoch {header.leader_epoch}" if header.leader_epoch >= 0 else ""
    flags = _flags(header, is_sound)
    return (
        f"batch at {header.position}: offsets {header.base_offset}..{header.last_offset}{count}, "
        f"{header.size} bytes, v{header.magic}, {_codec_name(header)}, {TIMESTAMP_TYPES[header.timestamp_type]}, "
        f"max {show_time(header.max_timestamp)}{epoch}{producer}{sequence}{', ' if flags else ''}{flags}"
    )


def _record_cells(header: BatchHeader, record: Record, path: FilePath, internal: InternalRecords | None) -> list[object]:
    if header.is_control:
        facts = _control_facts(header, record, path)
        words = " ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
        return [record.offset, show_time(record.timestamp), words]
    if _is_metadata(path):
        return [record.offset, show_time(record.timestamp), json_line(try_show_value(record.value or b""))]
    key, value = (None, None) if internal is None else (internal.key(record.key), internal.value(record.key, record.value))
    cells: list[object] = [
        record.offset,
        show_time(record.timestamp),
        show_bytes(record.key) if key is None else json_line(key),
        show_bytes(record.value) if value is None else json_line(value),
    ]
    if record.headers:
        cells.append(" ".join(f"{key}={show_bytes(value)}" for key, value in record.headers))
    return cells
