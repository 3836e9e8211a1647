"""Kafka 3.9.1's own LogValidator and down-conversion as the judge: random record sets, one JVM, verdict by verdict.

| what | must be |
|---|---|
| patched in place; rebuilt without codec, in gzip, in LZ4 at its default level | the same bytes |
| rebuilt in other codecs | the same header but for size and checksum, the same records |
| refused | the same class, the same refused records |

Where Tidelog does otherwise, a comment that begins with "On purpose" says why.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pytest

from tests.broker.test_down_conversion import down_converted
from tests.kafka.jars import classpath
from tests.kafka.java import run_java
from tests.records.helpers import read_all, with_right_crc
from tidelog.config import LogConfig
from tidelog.errors import (
    CorruptBatchError,
    DecompressionError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordValidationError,
    TidelogError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec, compress
from tidelog.records.control import ControlType, control_key, end_txn_value
from tidelog.records.conversion import down_convert
from tidelog.records.legacy import build_message_set, encode_message
from tidelog.records.records import Record
from tidelog.records.validation import AppendOrigin, ValidatedRecords, ValidationRules, validate_and_assign_offsets

JUDGE = Path(__file__).parent.parent / "kafka" / "java_sources" / "LogValidatorJudge.java"
NOW = 1_700_000_000_000
SEED = 391

KAFKA_NAMES: dict[type[TidelogError], tuple[str, ...]] = {
    InvalidTimestampError: ("InvalidTimestampException",),
    RecordValidationError: ("InvalidRecordException",),
    InvalidRecordError: ("InvalidRecordException",),
    CorruptBatchError: ("CorruptRecordException",),
    UnsupportedForMessageFormatError: ("UnsupportedForMessageFormatException",),
    UnsupportedCompressionTypeError: ("IllegalArgumentException", "UnsupportedCompressionTypeException"),
    InvalidArgumentError: ("IllegalArgumentException",),
    DecompressionError: ("KafkaException",),
}

OFTEN = (InvalidTimestampError, InvalidRecordError, CorruptBatchError, UnsupportedForMessageFormatError, InvalidArgumentError)
"""Refusals that the cases must hold many of, so that the judge has something to judge."""


class Case(NamedTuple):
    """An append to be judged."""

    kind: str
    records: bytes
    properties: Mapping[str, str]
    origin: AppendOrigin
    leader_epoch: int
    base_offset: int


class Fetch(NamedTuple):
    """A down-conversion to be judged."""

    records: bytes
    magic: int
    first_offset: int


class Refusal(NamedTuple):
    name: str
    message: str
    indexes: list[int]


class Accepted(NamedTuple):
    data: bytes
    max_timestamp: int
    size_may_have_changed: bool
    next_offset: int


# --- Random record sets ---------------------------------------------------------------------------------------------------


def random_records(rng: random.Random, *, headers: bool = True) -> list[Record]:
    count = rng.choice([1, 1, 2, 3, 5, 12, 40]) if rng.random() < 0.97 else 400
    spread = rng.choice([0, 10, 500, 5000])
    without_time, without_key = rng.choice([0, 0, 0, 0.2, 1]), rng.choice([0, 0, 0.1])
    records = []
    for i in range(count):
        timestamp = -1 if rng.random() < without_time else NOW + rng.randint(-spread, spread)
        key = None if rng.random() < without_key else rng.randbytes(rng.choice([0, 3, 8, 70]))
        value = None if rng.random() < 0.1 else bytes([rng.randrange(256)]) * rng.choice([0, 5, 100, 1000])
        head = ()
        if headers and rng.random() < 0.1:
            head = tuple((rng.choice(["", "h", "größe"]), rng.choice([None, b"", b"x" * 100])) for _ in range(rng.randrange(4)))
        records.append(Record(i, timestamp, 0, key, value, head))
    return records


def random_properties(rng: random.Random) -> dict[str, str]:
    properties = {"message.format.version": rng.choice(["3.0-IV1"] * 5 + ["0.9.0", "0.10.2"])}
    properties["compression.type"] = rng.choice(["producer"] * 4 + ["uncompressed", "gzip", "lz4", "snappy", "zstd"])
    if rng.random() < 0.2:
        properties["compression.gzip.level"] = str(rng.choice([-1, 1, 6, 9]))
        properties["compression.zstd.level"] = str(rng.choice([-5, 1, 3, 10]))
        properties["compression.lz4.level"] = str(rng.choice([1, 9, 12]))
    if rng.random() < 0.3:
        properties["message.timestamp.type"] = "LogAppendTime"
    if rng.random() < 0.4:
        properties["message.timestamp.before.max.ms"] = str(rng.choice([0, 400, 1000]))
    if rng.random() < 0.4:
        properties["message.timestamp.after.max.ms"] = str(rng.choice([0, 400, 1000]))
    if rng.random() < 0.1:
        properties["message.timestamp.difference.max.ms"] = str(rng.choice([0, 400, 4000]))
    if rng.random() < 0.2:
        properties["cleanup.policy"] = rng.choice(["compact", "compact,delete"])
    return properties


def claimed_time(rng: random.Random, records: list[Record]) -> int:
    """A LogAppendTime for a batch that should not have one: see `differences` for what becomes of it."""
    return rng.choice([-1, max(record.timestamp for record in records), NOW - 300, NOW + 800])


def batch_v2(rng: random.Random) -> bytearray:
    records = random_records(rng)
    is_known = rng.random() < 0.2
    claims = rng.random() < 0.1
    return build_batch_v2(
        records,
        codec=rng.choice(list(Codec)),
        timestamp_type=int(claims),
        append_time=claimed_time(rng, records) if claims else -1,
        producer=Producer(77, 3, rng.choice([0, 10])) if is_known else Producer(),
        is_transactional=is_known and rng.random() < 0.5,
        delete_horizon_ms=NOW - 17 if rng.random() < 0.05 and not claims else None,
    )


def message_set(rng: random.Random) -> bytearray:
    records = random_records(rng, headers=False)
    first = rng.choice([0, 0, 0, 0, 7])
    gap = rng.choice([1, 1, 1, 1, 3])
    records = [record._replace(offset=first + gap * i) for i, record in enumerate(records)]
    claims = rng.random() < 0.1
    return build_message_set(
        records,
        rng.choice([0, 1]),
        codec=rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]),
        timestamp_type=int(claims),
        append_time=claimed_time(rng, records) if claims else -1,
    )


def wrapper(rng: random.Random) -> bytearray:
    """A compressed v0 or v1 message with offsets, formats, checksums or codecs inside that should not be."""
    magic = rng.choice([0, 1])
    records = random_records(rng, headers=False)
    inside = []
    for i, record in enumerate(records):
        offset = rng.choice([i, i, i, i, 0, i + 1])
        other = rng.random() < 0.05
        message = bytearray(encode_message(1 - magic if other else magic, offset, record.timestamp, record.key, record.value))
        if rng.random() < 0.01:
            message[15] ^= 1
        if rng.random() < 0.01:
            message[17] |= 1
            message = with_right_crc(message)
        inside.append(message)
    data = b"".join(inside[: rng.choice([len(inside)] * 20 + [0])])
    codec = rng.choice([Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    value = rng.choice([bytes(compress(codec, data, magic=magic))] * 30 + [None])
    outer = rng.choice([0, len(records) - 1, len(records) - 1, len(records) + 3])
    largest = max(record.timestamp for record in records)
    return bytearray(encode_message(magic, outer, largest, None, value, codec=codec))


def with_wrong_header(rng: random.Random) -> bytearray:
    """A v2 batch whose header says something else than its records."""
    batch = batch_v2(rng)
    (count,) = struct.unpack_from(">i", batch, 57)
    kind = rng.randrange(7)
    if kind == 0:
        struct.pack_into(">i", batch, 57, count + rng.choice([-1, 1, 5, -count, -count - 2]))
    elif kind == 1:
        struct.pack_into(">i", batch, 23, max(count - 1 + rng.choice([-1, 1, 5]), 0))
    elif kind == 2:
        wrong = max(count + rng.choice([-1, 1, 5]), 1)
        struct.pack_into(">i", batch, 57, wrong)
        struct.pack_into(">i", batch, 23, wrong - 1)
    elif kind == 3:
        struct.pack_into(">qhi", batch, 43, 5, 0, -1)
    elif kind == 4:
        batch[22] |= 0x20
    elif kind == 5:
        batch[rng.choice([21, 22])] |= 0x80  # a bit that means nothing
    else:
        struct.pack_into(">q", batch, 35, NOW + 123_456)
    return with_right_crc(batch)


def damaged(rng: random.Random) -> bytearray:
    """A v2 batch with bytes of its records changed, and the checksum of what it has become."""
    batch = build_batch_v2(random_records(rng))
    section = bytearray(batch[61:])
    for _ in range(rng.choice([1, 1, 2])):
        section[rng.randrange(min(len(section), rng.choice([8, 80, 10_000])))] = rng.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF])
    codec = rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP])
    batch[61:] = compress(codec, bytes(section))
    batch[22] = codec
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return with_right_crc(batch)


def control_batch(rng: random.Random) -> bytearray:
    record = Record(0, NOW + rng.choice([0, 900]), 0, control_key(ControlType.COMMIT), end_txn_value(4))
    return build_batch_v2([record], producer=Producer(9, 1), is_transactional=True, is_control=True)


def several(rng: random.Random) -> bytearray:
    return rng.choice([batch_v2, message_set])(rng) + rng.choice([batch_v2, message_set])(rng)


KINDS: dict[str, tuple[int, Callable[[random.Random], bytearray]]] = {
    "v2": (1400, batch_v2),
    "messages": (1400, message_set),
    "wrapper": (500, wrapper),
    "wrong header": (300, with_wrong_header),
    "damaged": (400, damaged),
    "control": (60, control_batch),
    "several": (150, several),
    "nothing": (5, lambda rng: bytearray()),
}


def random_cases() -> Iterator[Case]:
    rng = random.Random(SEED)
    for kind, (number, make) in KINDS.items():
        for _ in range(number):
            is_client = kind != "control" or rng.random() < 0.2
            yield Case(
                kind,
                bytes(make(rng)),
                random_properties(rng),
                AppendOrigin.CLIENT if is_client else AppendOrigin.COORDINATOR,
                rng.choice([0, 5, 2**31 - 1]),
                rng.choice([0, 1, 1_234_567, 2**40]),
            )


def random_fetches() -> Iterator[Fetch]:
    """Batches as a log has them, several in a row, for fetchers that begin before, within or after them."""
    rng = random.Random(SEED + 1)
    for _ in range(600):
        log = bytearray()
        offset = rng.choice([0, 1000])
        for _ in range(rng.randrange(1, 4)):
            records = [record._replace(offset=offset + record.offset) for record in random_records(rng)]
            magic = rng.choice([0, 1, 2, 2])
            codec = rng.choice(list(Codec) if magic == 2 and rng.random() < 0.2 else list(Codec)[:4])
            timestamp_type = rng.choice([0, 0, 1])
            if magic == 2 and rng.random() < 0.1:
                record = records[0]._replace(key=control_key(ControlType.ABORT), value=end_txn_value(1), headers=())
                log += build_batch_v2([record], producer=Producer(9, 1), is_transactional=True, is_control=True)
                offset += 1
                continue
            if magic == 2:
                known = rng.choice([Producer(), Producer(5, 1, 3)])
                log += build_batch_v2(records, codec=codec, timestamp_type=timestamp_type, append_time=NOW, producer=known)
            else:
                plain = [record._replace(headers=()) for record in records]
                log += build_message_set(plain, magic, codec=codec, timestamp_type=timestamp_type, append_time=NOW)
            offset += len(records)
        yield Fetch(bytes(log), rng.choice([0, 1, 1, 2]), rng.choice([0, 1000, 1001, 1005, 2000]))


# --- Both verdicts --------------------------------------------------------------------------------------------------------


def ours(case: Case) -> ValidatedRecords | TidelogError:
    rules = ValidationRules.from_config(LogConfig.from_properties(case.properties), case.leader_epoch)
    buffer = bytearray(case.records)
    try:
        headers = list(iter_headers(buffer))
        return validate_and_assign_offsets(buffer, headers, rules, base_offset=case.base_offset, now_ms=NOW, origin=case.origin)
    except TidelogError as error:
        assert buffer == case.records, "refused, and changed all the same"
        return error


def our_fetch(fetch: Fetch) -> bytearray | TidelogError:
    try:
        headers = iter_headers(fetch.records)
        return bytearray().join(down_convert(fetch.records, one, fetch.magic, fetch.first_offset) for one in headers)
    except TidelogError as error:
        return error


def judge(cases: list[Case], fetches: list[Fetch], folder: Path) -> tuple[list[Accepted | Refusal], list[bytes | Refusal]]:
    questions, verdicts = folder / "cases", folder / "verdicts"
    with questions.open("wb") as out:
        for case in cases:
            properties = "\n".join(f"{name}={value}" for name, value in sorted(case.properties.items()))
            out.write(b"\x00" + _utf(properties) + _sized(case.records) + _utf(case.origin.name))
            out.write(struct.pack(">iqq", case.leader_epoch, case.base_offset, NOW))
        for fetch in fetches:
            out.write(struct.pack(">bbq", 1, fetch.magic, fetch.first_offset) + _sized(fetch.records))
    run_java(classpath("3.9.1"), str(JUDGE), [questions, verdicts], heap_mb=512)
    with verdicts.open("rb") as stream:
        appended = [_read_verdict(stream) or _read_accepted(stream) for _ in cases]
        fetched = [_read_verdict(stream) or _read_sized(stream) for _ in fetches]
        assert stream.read() == b""
    return appended, fetched


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _read(stream: BinaryIO, fields: str) -> tuple[Any, ...]:
    return struct.unpack(fields, stream.read(struct.calcsize(fields)))


def _read_sized(stream: BinaryIO) -> bytes:
    return stream.read(_read(stream, ">i")[0])


def _read_verdict(stream: BinaryIO) -> Refusal | None:
    if stream.read(1) == b"\x00":
        return None
    name = stream.read(_read(stream, ">H")[0]).decode()
    message = stream.read(_read(stream, ">H")[0]).decode("utf-8", "replace")
    (count,) = _read(stream, ">i")
    return Refusal(name, message, list(_read(stream, f">{count}i")))


def _read_accepted(stream: BinaryIO) -> Accepted:
    return Accepted(_read_sized(stream), *_read(stream, ">q?q"))


# --- The comparison -------------------------------------------------------------------------------------------------------


def bare(header: BatchHeader) -> BatchHeader:
    """A header without what depends on how well a codec compresses."""
    return header._replace(position=0, size=0, crc=0)


def differences(case: Case, mine: ValidatedRecords | TidelogError, theirs: Accepted | Refusal) -> str | None:
    if isinstance(theirs, Refusal):
        if not isinstance(mine, TidelogError):
            return f"taken, which Kafka refuses: {theirs}"
        if theirs.name not in KAFKA_NAMES[type(mine)]:
            if is_into_old_format(case) and theirs.name in ("IllegalArgumentException", "InvalidRecordException"):
                # On purpose: of several faults, the header's are reported first, then the records', then what cannot be
                # converted. Without a codec, Kafka reads the records before, and converts each one as soon as it has been
                # checked.
                return None
            return f"{type(mine).__name__}: {mine}; Kafka: {theirs}"
        indexes = [error.batch_index for error in mine.record_errors] if isinstance(mine, RecordValidationError) else []
        return None if indexes == theirs.indexes else f"refused {indexes}, Kafka {theirs.indexes}"
    claims = case.records[16] > 0 and next(iter_headers(case.records)).timestamp_type == 1 and not theirs.size_may_have_changed
    if isinstance(mine, TidelogError):
        # On purpose: the times that a claim of LogAppendTime hid are stored as they are, so they must be within bounds.
        if claims and isinstance(mine, InvalidTimestampError):
            return None if any(is_out_of_bounds(case, record) for record in read_all(theirs.data)) else f"refused: {mine!r}"
        return f"refused, which Kafka takes: {mine!r}"
    config = LogConfig.from_properties(case.properties)
    codec = Codec(mine.headers[0].attributes & 7)
    is_default_level = codec is not Codec.LZ4 or config.compression_lz4_level == 9 or config.compression_type == "producer"
    if claims:
        # On purpose: the header says the largest time that is stored. Kafka leaves there what the producer claimed.
        if mine.max_timestamp != max(record.timestamp for record in read_all(mine.data)):
            return f"largest timestamp {mine.max_timestamp}"
        if undated(mine.data) != undated(theirs.data):
            return "other bytes than the time's and the checksum's"
        theirs = theirs._replace(max_timestamp=mine.max_timestamp)
    elif not mine.size_may_have_changed or (codec in (Codec.NONE, Codec.GZIP, Codec.LZ4) and is_default_level):
        if mine.data != theirs.data:
            return f"other bytes: {list(iter_headers(theirs.data))}, not {mine.headers}"
    else:
        if [bare(header) for header in iter_headers(theirs.data)] != [bare(header) for header in mine.headers]:
            return f"other headers: {list(iter_headers(theirs.data))}, not {mine.headers}"
        if read_all(mine.data) != read_all(theirs.data):
            return "other records"
    if config.magic == 0:
        # On purpose: v0 has no timestamps, so none is reported. Kafka reports the append time of what cannot tell it.
        theirs = theirs._replace(max_timestamp=-1)
    found = (mine.max_timestamp, mine.size_may_have_changed, mine.last_offset + 1)
    return None if found == theirs[1:] else f"{found}, Kafka {theirs[1:]}"


def damaged_differences(mine: ValidatedRecords | TidelogError, theirs: Accepted | Refusal) -> str | None:
    """Records that nobody meant: what is taken can be read, and Kafka takes it, too, as the same records.

    On purpose: what cannot be read is refused. Kafka takes some of it, of compressed batches, where it skips keys and values.
    Offsets that do not count 0, 1, 2... are put in order; Kafka stores them where there is no codec, and fails where there is.
    """
    if isinstance(mine, TidelogError):
        return None if isinstance(theirs, Refusal) or isinstance(mine, InvalidRecordError) else f"refused: {mine!r}"
    records = read_all(mine.data)
    if isinstance(theirs, Refusal):
        return None if theirs.name == "UnsupportedOperationException" else f"taken, which Kafka refuses: {theirs}"
    try:
        theirs_read = read_all(theirs.data)
    except TidelogError:
        return None
    return None if [r[1:] for r in records] == [r[1:] for r in theirs_read] else "other records"


def is_into_old_format(case: Case) -> bool:
    is_old = LogConfig.from_properties(case.properties).magic < 2
    return is_old and any(header.magic == 2 for header in iter_headers(case.records))


def is_out_of_bounds(case: Case, record: Record) -> bool:
    config = LogConfig.from_properties(case.properties)
    if record.timestamp == -1:
        return False
    return record.timestamp < NOW - config.timestamp_before_max_ms or record.timestamp > NOW + config.timestamp_after_max_ms


def undated(batch: bytes | bytearray | memoryview) -> bytes:
    """A batch without its largest timestamp and its checksum."""
    data = bytearray(batch)
    blank = ((17, 21), (35, 43)) if data[16] == 2 else ((12, 16), (18, 26))
    for start, end in blank:
        data[start:end] = bytes(end - start)
    return bytes(data)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Accepted | Refusal], list[bytes | Refusal]]:
    return judge(list(random_cases()), list(random_fetches()), tmp_path_factory.mktemp("judge"))


def test_validation(verdicts: tuple[list[Accepted | Refusal], list[bytes | Refusal]]) -> None:
    wrong: list[str] = []
    seen = Counter[str]()
    for number, (case, theirs) in enumerate(zip(random_cases(), verdicts[0], strict=True)):
        mine = ours(case)
        seen[theirs.name if isinstance(theirs, Refusal) else "taken"] += 1
        told = damaged_differences(mine, theirs) if case.kind == "damaged" else differences(case, mine, theirs)
        if told:
            wrong.append(f"{number} {case.kind} {dict(case.properties)} {list(iter_headers(case.records))[:2]}: {told}")
    assert all(seen[name] >= 20 for name in ("taken", *(names[0] for kind, names in KAFKA_NAMES.items() if kind in OFTEN))), seen
    assert not wrong, f"{len(wrong)} of {len(verdicts[0])}\n" + "\n".join(wrong[:15])


def test_down_conversion(verdicts: tuple[list[Accepted | Refusal], list[bytes | Refusal]]) -> None:
    wrong = []
    for number, (fetch, theirs) in enumerate(zip(random_fetches(), verdicts[1], strict=True)):
        mine = our_fetch(fetch)
        if isinstance(theirs, Refusal) or isinstance(mine, TidelogError):
            if not (isinstance(theirs, Refusal) and isinstance(mine, TidelogError)) or theirs.name not in KAFKA_NAMES[type(mine)]:
                wrong.append(f"{number} {fetch.magic} {fetch.first_offset}: {mine!r} {theirs!r}")
        elif mine != theirs and (
            [bare(header) for header in iter_headers(mine)] != [bare(header) for header in iter_headers(theirs)]
            or read_all(mine) != read_all(theirs)
        ):
            wrong.append(f"{number} {fetch.magic} {fetch.first_offset}: other records")
        else:
            sent = down_converted(fetch.records, 2, fetch.magic, fetch.first_offset).records[: len(mine)]
            if sent != mine[: len(sent)] or len(sent) < min(len(mine), len(fetch.records)):
                wrong.append(f"{number} {fetch.magic} {fetch.first_offset}: a broker sends other bytes")
    assert not wrong, f"{len(wrong)} of {len(verdicts[1])}\n" + "\n".join(wrong[:10])
