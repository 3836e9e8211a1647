"""Single v2 records: what Kafka's DefaultRecordTest establishes. Each record stands in a batch with a right checksum."""

from __future__ import annotations

import pytest

from tests.records.helpers import raw_batch_v2, read_all
from tidelog.errors import InvalidRecordError
from tidelog.records.builder import build_batch_v2, encode_varint
from tidelog.records.records import Record

HEADERS = (("foo", b"value"), ("bar", None), ('"A\\u00ea\\u00f1\\u00fcC"', b"value"))


def record_bytes(*fields: bytes | int, length: int | None = None) -> bytes:
    """Return a record whose body is attributes 0, then the fields: integers as varints, bytes as they are."""
    body = b"\x00" + b"".join(encode_varint(field) if isinstance(field, int) else field for field in fields)
    return encode_varint(len(body) if length is None else length) + body


def read(section: bytes, count: int = 1) -> list[Record]:
    return read_all(raw_batch_v2(section, count))


def test_basic_serde() -> None:
    """DefaultRecordTest.testBasicSerde: keys, values and headers, null and empty ones too, come back as they were."""
    records = [
        Record(10, 50, 0, b"hi", b"there"),
        Record(11, 80, 0, None, b"there"),
        Record(12, 20, 0, b"hi", None),
        Record(13, 50, 0, None, None),
        Record(14, 50, 0, b"", b""),
        Record(15, 50, 0, b"hi", b"there", HEADERS),
        Record(16, 50, 0, None, None, (("", b""), ("", None))),
        Record(1 << 20, 1 << 40, 0, b"k" * 300, b"v" * 70_000, HEADERS * 50),
    ]
    assert read_all(build_batch_v2(records)) == records


def test_serde_no_sequence() -> None:
    """DefaultRecordTest.testSerdeNoSequence: a batch without a base sequence reads the same."""
    batch = raw_batch_v2(record_bytes(57, 10, 3, b"key", 5, b"value", 0), 1, last_offset_delta=10)
    assert read_all(batch) == [Record(10, 57, 0, b"key", b"value")]


def test_negative_lengths_are_null() -> None:
    """Spec §10.1: null is -1; readers take any negative length as it."""
    assert read(record_bytes(0, 0, -1, -9, 1, 1, b"h", -3)) == [Record(0, 0, 0, None, None, (("h", None),))]


def test_basic_serde_invalid_header_count_too_high() -> None:
    """DefaultRecordTest.testBasicSerdeInvalidHeaderCountTooHigh: a header that is not there."""
    with pytest.raises(InvalidRecordError):
        read(record_bytes(0, 0, 1, b"k", 1, b"v", 2, 1, b"h", 1, b"x"))


def test_basic_serde_invalid_header_count_too_low() -> None:
    """DefaultRecordTest.testBasicSerdeInvalidHeaderCountTooLow: bytes after the last header counted."""
    with pytest.raises(InvalidRecordError, match="record size differs from its fields"):
        read(record_bytes(0, 0, 1, b"k", 1, b"v", 1, 1, b"h", 1, b"x", 1, b"h", 1, b"x"))


def test_invalid_key_size() -> None:
    """DefaultRecordTest.testInvalidKeySize: a key longer than its record."""
    with pytest.raises(InvalidRecordError, match="key longer than its record"):
        read(record_bytes(0, 0, 105, b"abc"))


def test_invalid_value_size() -> None:
    """DefaultRecordTest.testInvalidValueSize: a value longer than its record."""
    with pytest.raises(InvalidRecordError, match="value longer than its record"):
        read(record_bytes(0, 0, -1, 105, b"abc"))


@pytest.mark.parametrize("count", [-1, 10_000, 2**31 - 1, -(2**31)])
def test_invalid_num_headers(count: int) -> None:
    """DefaultRecordTest.testInvalidNumHeaders: negative, or more than the bytes left could hold."""
    with pytest.raises(InvalidRecordError, match="impossible number of headers"):
        read(record_bytes(0, 0, -1, -1, count, b"abc"))


def test_invalid_header_key() -> None:
    """DefaultRecordTest.testInvalidHeaderKey: a header key longer than its record."""
    with pytest.raises(InvalidRecordError, match="header key"):
        read(record_bytes(0, 0, -1, -1, 1, 105, b"abc"))


def test_null_header_key() -> None:
    """DefaultRecordTest.testNullHeaderKey: header keys are never null."""
    with pytest.raises(InvalidRecordError, match="header key"):
        read(record_bytes(0, 0, -1, -1, 1, -1, b"abc"))


def test_invalid_header_value() -> None:
    """DefaultRecordTest.testInvalidHeaderValue: a header value longer than its record."""
    with pytest.raises(InvalidRecordError, match="header value"):
        read(record_bytes(0, 0, -1, -1, 1, 1, b"h", 105, b"abc"))


@pytest.mark.parametrize("length", [-1, 0, 3, 40, 2**31 - 1, -(2**31)])
def test_invalid_size_of_body_in_bytes(length: int) -> None:
    """DefaultRecordTest.testInvalidSizeOfBodyInBytes: a record that says it is longer, or shorter, than it is."""
    with pytest.raises(InvalidRecordError):
        read(record_bytes(0, 0, 1, b"k", 1, b"v", 0, length=length))


def test_underflow_reading_timestamp() -> None:
    """DefaultRecordTest.testUnderflowReadingTimestamp: a record that ends in front of its timestamp."""
    with pytest.raises(InvalidRecordError):
        read(record_bytes() + bytes(10))


def test_underflow_reading_varlong() -> None:
    """DefaultRecordTest.testUnderflowReadingVarlong: a record that ends inside of a varlong."""
    with pytest.raises(InvalidRecordError, match="record cut off"):
        read(record_bytes(b"\x9c") + bytes(10))


def test_invalid_varlong() -> None:
    """DefaultRecordTest.testInvalidVarlong: more than ten bytes for an int64."""
    with pytest.raises(InvalidRecordError, match="varint longer than its type"):
        read(record_bytes(b"\x9c" * 11))
    with pytest.raises(InvalidRecordError, match="varint longer than its type"):
        read(record_bytes(b"\x9c" * 10 + b"\x00"))


def test_invalid_varint() -> None:
    """Spec §10.1: more than five bytes for an int32, wherever one may stand."""
    long = b"\x80\x80\x80\x80\x80\x00"
    for fields in (
        (0, long),
        (0, 0, long),
        (0, 0, -1, long),
        (0, 0, -1, -1, long),
        (0, 0, -1, -1, 1, long),
        (0, 0, -1, -1, 1, 0, long),
    ):
        with pytest.raises(InvalidRecordError, match="varint longer than its type"):
            read(record_bytes(*fields) + bytes(10))
    with pytest.raises(InvalidRecordError, match="varint longer than its type"):
        read(long + bytes(10))


def test_longest_varints() -> None:
    """Spec §10.1: five and ten bytes are allowed, even where fewer would do."""
    five, ten = b"\x80\x80\x80\x80\x00", b"\x80" * 9 + b"\x00"
    body = b"\x00" + ten + five + five + five + five
    length = bytes((len(body) * 2 | 0x80, 0x80, 0x80, 0x80, 0x00))
    assert read(length + body) == [Record(0, 0, 0, b"", b"")]


@pytest.mark.parametrize(("base", "delta"), [(1, 2**63 - 1), (-2, -(2**63)), (2**63 - 1, 1)])
def test_timestamps_beyond_int64(base: int, delta: int) -> None:
    """A delta that carries a timestamp out of int64 is an error, not another time."""
    batch = raw_batch_v2(record_bytes(delta, 0, -1, -1, 0), 1, base_timestamp=base)
    with pytest.raises(InvalidRecordError, match="timestamp beyond int64"):
        read_all(batch)


@pytest.mark.parametrize(("base", "delta"), [(0, 2**63 - 1), (0, -(2**63)), (-1, 0), (2**63 - 1, -1), (2**40, -(2**39))])
def test_extreme_timestamps(base: int, delta: int) -> None:
    """The ends of int64 themselves are times like others."""
    batch = raw_batch_v2(record_bytes(delta, 0, -1, -1, 0), 1, base_timestamp=base)
    assert [record.timestamp for record in read_all(batch)] == [base + delta]


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (0, -1), (5, -6), (0, 1), (7, -1), (7, 2**31 - 1)])
def test_offset_out_of_range(base: int, delta: int) -> None:
    """An offset outside of what the batch's header says is an error: the reader of a range would pass it over in silence."""
    batch = raw_batch_v2(record_bytes(0, delta, -1, -1, 0), 1, base_offset=base)
    with pytest.raises(InvalidRecordError, match="offset out of range"):
        read_all(batch)


def test_error_names_the_record() -> None:
    """The position in an error is that of the record which breaks the format, in the file."""
    good = record_bytes(0, 0, 1, b"k", 1, b"v", 0)
    batch = raw_batch_v2(good + good + record_bytes(0, 0, 105, b"k"), 3)
    with pytest.raises(InvalidRecordError) as caught:
        read_all(batch)
    assert caught.value.position == 61 + 2 * len(good)
