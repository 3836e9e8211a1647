"""`/api/record`, `/api/lookup`: one record in full, and the steps by which a record is found by its time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidelog.errors import InvalidArgumentError, NotFoundError, TidelogError
from tidelog.model import MAX_TIMESTAMP, TopicPartition
from tidelog.reader.explain import explained
from tidelog.reader.time_search import FoundOffset, find_offset
from tidelog.reader.trace import SegmentStep, Step, Trace
from tidelog.records.batch import BatchHeader
from tidelog.sources.scan_plan import ScanRequest
from tidelog.sources.selection.row_bytes import row_bytes
from tidelog.sources.source import Source
from tidelog.web.context import Answer, Context, known_ms, plain
from tidelog.web.decoded import Decoding
from tidelog.web.jobs import Job
from tidelog.web.query import Query
from tidelog.web.values import rows

if TYPE_CHECKING:
    import pyarrow as pa

WHOLE_BYTES = 1 << 20
"""The most bytes of a key or value that `/api/record` returns. `/api/bytes` returns all."""

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "create_time")

NAMES = {
    "SegmentStep": "segment",
    "TimeIndexStep": "time_index",
    "OffsetIndexStep": "offset_index",
    "BatchesStep": "batches",
    "RecordStep": "record",
    "KafkaStep": "kafka",
}


def record(context: Context, query: Query, job: Job) -> Answer:
    """Return one record, and the header fields of its batch."""
    key, offset = query.key(), query.number("offset", None, 0, 2**63 - 2)
    with context.sources.named(query.text("source")).borrowed() as source:
        found = record_at(source, key, offset, job)
        batch = _batch(source, key, offset)
    ((row, _),) = rows(found, decoding=Decoding(context, query, key.topic), limit=WHOLE_BYTES)
    import pyarrow as pa

    row["create_time_ms"] = known_ms(found.column("create_time").cast(pa.int64())[0].as_py())
    return {"record": row, "batch": None if batch is None else _shown_batch(batch[0], batch[1])}


def record_bytes(context: Context, query: Query, job: Job) -> tuple[memoryview, str]:
    """Return the bytes of a record's key or value, and a file name for the download."""
    key, offset = query.key(), query.number("offset", None, 0, 2**63 - 2)
    part = query.choice("part", ("value", "key"))
    with context.sources.named(query.text("source")).borrowed() as source:
        data = row_bytes(record_at(source, key, offset, job).column(part), 0)
    if data is None:
        raise NotFoundError(f"the record has no {part}", found=f"offset {offset}")
    return memoryview(data), f"{key.topic}-{key.partition}-{offset}.{part}"


def record_at(source: Source, key: TopicPartition, offset: int, job: Job) -> pa.RecordBatch:
    """Return the record at an offset, as an Arrow batch of one row. Raises NotFoundError if there is none."""
    if key.partition not in source.partitions(key.topic):
        raise NotFoundError(f"there is no partition {key.partition} of {key.topic}", path=source.address)
    request = ScanRequest(topic=key.topic, partitions=(key.partition,), offsets={key.partition: (offset, offset + 1)})
    plan = source.planned(lambda: source.plan(request))
    for split in plan.splits:
        job.take_turn(split.size_bytes)
        for batch in split.read(COLUMNS, views=True, reading=source.reading):
            if batch.num_rows:
                return batch.slice(0, 1)
    part = plan.partitions[0]
    reason = "the record was removed by compaction, or the offset is a transaction marker's"
    if not part.log_start_offset <= offset < part.log_end_offset:
        reason = f"the log has the offsets [{part.log_start_offset}, {part.log_end_offset})"
    raise NotFoundError(f"no record at offset {offset} of {key.topic}-{key.partition}: {reason}", path=source.address)


def _batch(source: Source, key: TopicPartition, offset: int) -> tuple[str, BatchHeader] | None:
    if source.log_dir is None:
        return None
    with source.log_dir.log(*key) as log, suppress(TidelogError):  # The record was read; this is about it.
        for segment, header in log.segment_headers(offset, offset + 1):
            return str(segment.log_path), header
    return None


def _shown_batch(path: str, header: BatchHeader) -> Answer:
    return {
        "file": path,
        "position": plain(header.position),
        "bytes": header.size,
        "base_offset": plain(header.base_offset),
        "last_offset": plain(header.last_offset),
        "format": f"v{header.magic}",
        "codec": header.codec.name.lower(),
        "records": header.record_count if header.record_count >= 0 else None,
        "max_ms": known_ms(header.max_timestamp),
        "leader_epoch": header.leader_epoch if header.leader_epoch >= 0 else None,
        "producer_id": plain(header.producer_id) if header.has_producer_id else None,
        "producer_epoch": header.producer_epoch if header.has_producer_id else None,
        "transactional": header.is_transactional,
    }


def lookup(context: Context, query: Query, job: Job) -> Answer:
    """Return the steps of a search by time, and its result. Brokers do not report their steps."""
    key = query.key()
    time_ms = MAX_TIMESTAMP if query.text("timestamp") == "max" else query.time("timestamp")
    if time_ms is None:
        raise InvalidArgumentError("a parameter is missing", expected="timestamp")
    with context.sources.named(query.text("source")).borrowed() as source:
        if source.log_dir is None:
            found = source.find({key: time_ms})[key]
            return {"steps": [], "answer": _answer(found), "read_bytes": None}
        trace = Trace()
        with source.log_dir.log(*key) as log:
            found = find_offset(log, time_ms, trace=trace)
        steps = list(_shown_steps(trace, found))
    return {"steps": steps, "answer": _answer(found), "read_bytes": plain(trace.bytes_read)}


def _shown_steps(trace: Trace, found: FoundOffset | None) -> list[Answer]:
    """Yield the steps. Adjacent segments that were skipped for the same reason are one step."""
    shown: list[Answer] = []
    for step, sentence in explained(trace, found or FoundOffset(-1, -1, -1)):
        if isinstance(step, SegmentStep) and shown and shown[-1].get("skipped") == step.verdict:
            shown[-1]["count"] += 1
            shown[-1]["last"] = _fields(step)
            continue
        one = {"step": NAMES[type(step).__name__], "text": sentence.strip(), **_fields(step)}
        if isinstance(step, SegmentStep):
            one["count"] = 1
            one["skipped"] = None if step.verdict in ("match", "searched", "no match") else step.verdict
        shown.append(one)
    return shown


def _fields(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in step._asdict().items():
        if name == "path":
            found["file"] = str(value)
        elif "timestamp" in name and isinstance(value, int):
            found[f"{name.removesuffix('timestamp')}ms"] = known_ms(value)
        else:
            found[name] = plain(value) if isinstance(value, int) else value
    return found


def _answer(found: FoundOffset | None) -> Answer | None:
    if found is None or found.offset < 0:
        return None
    return {
        "offset": plain(found.offset),
        "timestamp_ms": known_ms(found.timestamp),
        "leader_epoch": found.leader_epoch if found.leader_epoch >= 0 else None,
        "past_high_watermark": found.is_past_high_watermark,
    }
