"""Message sizes in bytes in each format: the options' formats and Kafka's v0, v1 and v2, as their encoders write them.

Each measurement takes a produce request of `MESSAGES` messages without keys, after the broker has set its fields. The values are
words, so that they compress like text; CreateTimes are `STEP_MS` apart. Option 2's applications need CreateTime in the payload,
which is a separate row. v2 is measured with both timestamp types, and also in batches of a single record, because the records of
a batch share its header.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from studies.case import Case, Measurement
from studies.options.formats import OPTIONS, Message, Option, assign, encode_set
from studies.workload import EPOCH_MS
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record

PART = "sizes"

SEED = 3202
MESSAGES = 100
STEP_MS = 7
APPEND_MS = EPOCH_MS + MESSAGES * STEP_MS + 25
VALUE_BYTES = (0, 16, 64, 100, 256, 1024)
CODECS = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "lz4": Codec.LZ4}

PAYLOAD = "option 2, CreateTime in the payload"
V2 = "v2, CreateTime"
V2_LOG_APPEND_TIME = "v2, LogAppendTime"
V2_SINGLE = "v2, batches of one"


def cases(scale: float) -> list[Case]:
    """Return the only case; the sizes are the same at every scale."""
    return [Case(PART, "all formats", {"messages": MESSAGES, "seed": SEED})]


def measure(case: Case) -> Iterator[Measurement]:
    """Measure every format at every value size with each codec; each codec is a case."""
    for codec_name, codec in CODECS.items():
        for value_bytes in VALUE_BYTES:
            times, values = content(value_bytes)
            sizes = {name: len(build(times, values, codec)) / MESSAGES for name, build in FORMATS.items()}
            for name, size in sizes.items():
                overhead = 100 * (size - sizes["v0"]) / sizes["v0"]
                yield Measurement(PART, codec_name, name, f"bytes a message, {value_bytes} B", size, "bytes")
                yield Measurement(PART, codec_name, name, f"over v0, {value_bytes} B", overhead, "%")


def content(value_bytes: int) -> tuple[list[int], list[bytes]]:
    """Return the CreateTimes and values of a request."""
    chosen = random.Random(SEED + value_bytes)
    words = [bytes(chosen.choices(b"abcdefghijklmnopqrstuvwxyz", k=chosen.randint(2, 9))) for _ in range(200)]
    values = []
    for _ in range(MESSAGES):
        text = b" ".join(chosen.choices(words, k=value_bytes // 3 + 1))
        values.append(text[:value_bytes])
    return [EPOCH_MS + STEP_MS * i for i in range(MESSAGES)], values


Builder = Callable[[Sequence[int], Sequence[bytes], Codec], bytes | bytearray]


def _option(option: Option) -> Builder:
    def build(times: Sequence[int], values: Sequence[bytes], codec: Codec) -> bytearray:
        messages = [
            Message(i, time, NO_TIMESTAMP, None, value) for i, (time, value) in enumerate(zip(times, values, strict=True))
        ]
        data = bytearray(encode_set(option, messages, codec))
        assign(option, data, 0, APPEND_MS)
        return data

    return build


def _with_payload_time(times: Sequence[int], values: Sequence[bytes], codec: Codec) -> bytes | bytearray:
    told = [time.to_bytes(8, "big") + value for time, value in zip(times, values, strict=True)]
    return _option(Option.APPEND_TIME)(times, told, codec)


def records(times: Sequence[int], values: Sequence[bytes]) -> list[Record]:
    return [Record(i, time, CREATE_TIME, None, value) for i, (time, value) in enumerate(zip(times, values, strict=True))]


def _legacy(magic: int) -> Builder:
    return lambda times, values, codec: build_message_set(records(times, values), magic, codec=codec)


def _v2(timestamp_type: int) -> Builder:
    append_time = APPEND_MS if timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP
    return lambda times, values, codec: build_batch_v2(
        records(times, values), codec=codec, timestamp_type=timestamp_type, append_time=append_time
    )


def _v2_single(times: Sequence[int], values: Sequence[bytes], codec: Codec) -> bytes:
    return b"".join(build_batch_v2([record], codec=codec) for record in records(times, values))


FORMATS: dict[str, Builder] = {
    "v0": _legacy(0),
    **{option.value: _option(option) for option in OPTIONS},
    PAYLOAD: _with_payload_time,
    "v1": _legacy(1),
    V2: _v2(CREATE_TIME),
    V2_LOG_APPEND_TIME: _v2(LOG_APPEND_TIME),
    V2_SINGLE: _v2_single,
}
