"""Messages of v0 and v1 taken by columns are taken, and refused, as those that are taken one by one."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.errors import InvalidTimestampError, RecordValidationError, TidelogError
from tidelog.records import validation
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, iter_headers
from tidelog.records.compression import Codec, compress
from tidelog.records.legacy import build_message_set, encode_message
from tidelog.records.records import Record
from tidelog.records.validation import ValidationRules, validate_and_assign_offsets
from tidelog.records.validation_rules import MAX_RECORD_ERRORS

NOW_MS = 1_700_000_000_000
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]

records_to_send = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.sampled_from([-1, NOW_MS - 5000, NOW_MS - 500, NOW_MS, NOW_MS + 5000]),
        st.just(CREATE_TIME),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=40),
        st.just(()),
    ),
    min_size=1,
    max_size=8,
)
rules_of_topics = st.builds(
    ValidationRules,
    timestamp_type=st.sampled_from([CREATE_TIME, LOG_APPEND_TIME]),
    before_max_ms=st.sampled_from([2**63 - 1, 1000]),
    after_max_ms=st.sampled_from([2**63 - 1, 1000]),
    is_compacted=st.booleans(),
    target_codec=st.sampled_from([None, *Codec]),
    magic=st.sampled_from([0, 1, 2]),
    leader_epoch=st.just(3),
)


def outcome(sent: bytes, rules: ValidationRules) -> Any:
    """What becomes of records: everything that is passed them, or the error."""
    buffer = bytearray(sent)
    try:
        done = validate_and_assign_offsets(buffer, list(iter_headers(buffer)), rules, base_offset=100, now_ms=NOW_MS)
    except RecordValidationError as error:
        return type(error), error.message, error.record_errors
    except TidelogError as error:
        return type(error), error.message
    return bytes(done.data), *done[1:]


def both(sent: bytes, rules: ValidationRules) -> tuple[Any, Any]:
    by_columns = outcome(sent, rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "_assign_wrapped", lambda *_: None)
        patch.setattr(validation, "_convert_messages", lambda *_: None)
        return by_columns, outcome(sent, rules)


@examples(60)
@given(records=records_to_send, magic=st.sampled_from([0, 1]), codec=st.sampled_from(CODECS), rules=rules_of_topics)
def test_like_one_by_one(records: list[Record], magic: int, codec: Codec, rules: ValidationRules) -> None:
    """Bytes, headers, offsets and times; or the error with its records."""
    numbered = [record._replace(offset=i, timestamp=record.timestamp if magic else -1) for i, record in enumerate(records)]
    by_columns, one_by_one = both(bytes(build_message_set(numbered, magic, codec=codec)), rules)
    assert by_columns == one_by_one


@examples(60)
@given(
    offsets=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    damage=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=3),
    rules=rules_of_topics,
)
def test_odd_offsets_and_damage(offsets: list[int], damage: list[tuple[int, int]], rules: ValidationRules) -> None:
    """Whatever stands inside a wrapper that is sound."""
    inside = bytearray(b"".join(encode_message(1, offset, NOW_MS, b"key", b"value") for offset in offsets))
    for at, value in damage:
        if at < len(inside):
            inside[at] = value
    by_columns, one_by_one = both(wrapped(bytes(inside)), rules)
    assert by_columns == one_by_one


def wrapped(inside: bytes, magic: int = 1) -> bytes:
    return bytes(encode_message(magic, 0, NOW_MS, None, bytes(compress(Codec.GZIP, inside)), codec=Codec.GZIP))


def many(change: Callable[[bytearray], None] = lambda message: None) -> bytes:
    """A wrapper of a few kilobytes that holds 100,000 messages."""
    message = bytearray(encode_message(1, 0, NOW_MS - 5000, None, None))
    change(message)
    struct.pack_into(">I", message, 12, zlib.crc32(bytes(message[16:])))
    return wrapped(bytes(message) * 100_000)


def test_a_million_messages_in_a_few_bytes_cost_little(kernel: Any) -> None:
    """No more than a few are listed one by one, none becomes an object, and a fault is reported at once."""
    if not kernel.COMPILED:
        return
    started = time.process_time()
    kind, message, told = outcome(many(), ValidationRules(before_max_ms=1000))
    assert (len(told), "99999 more" in message) == (MAX_RECORD_ERRORS, True)
    assert kind is InvalidTimestampError
    assert len(outcome(many(), ValidationRules(is_compacted=True))[2]) == MAX_RECORD_ERRORS
    assert outcome(many(lambda message: message.__setitem__(16, 0)), ValidationRules())[0].__name__ == "InvalidRecordError"
    assert len(outcome(many(), ValidationRules())[1]) == 1
    assert time.process_time() - started < 5
