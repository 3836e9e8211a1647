"""A column of times as epoch milliseconds, the unit of every Kafka timestamp.

=========================  ===================================================================
column                     is taken as
=========================  ===================================================================
timestamp s, ms, µs, ns    that instant; without a zone it is UTC; finer than ms is floored
date                       midnight UTC
integer                    epoch milliseconds
text                       ISO 8601, each value with or without a zone (without one it is UTC), or 12 digits and more:
                           epoch milliseconds
=========================  ===================================================================

Floored, not cut: one nanosecond before 1970 is -1 ms, which is before Kafka's time and refused.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.errors import InvalidArgumentError

_PER_MS = {"us": 1_000, "ns": 1_000_000}
_ZONE = r"(?i)[0-9](z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_FINER = r"(\.[0-9]{3})[0-9]+"
_DIGITS = r"^[0-9]{12,}$"  # fewer are more likely a date such as 20130101 than a moment before March 1973
_HAS_CLOCK = r"[0-9][T ][0-9]"


def epoch_ms(array: pa.Array, name: str, first_row: int) -> pa.Int64Array:
    """Return `array` in epoch milliseconds: int64, no nulls, none negative.

    `name` and `first_row` (1-based row of the file that `array` starts at) are for errors.
    Raises InvalidArgumentError: naming row and column for a null, negative or unreadable time, the column for a wrong type.
    """
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        row = pc.index(array.is_null(), True).as_py()
        raise InvalidArgumentError(f"row {first_row + row}: column {name!r} has no time (null)")
    times = _int64_ms(array, name, first_row)
    negative = pc.less(times, 0)
    if pc.any(negative).as_py():
        row = pc.index(negative, True).as_py()
        raise InvalidArgumentError(
            f"row {first_row + row}: column {name!r} is before 1970, which a Kafka timestamp cannot be",
            found=_shown(array[row], times[row].as_py()),
        )
    return times


def _int64_ms(array: pa.Array, name: str, first_row: int) -> pa.Int64Array:
    kind = array.type
    if pt.is_timestamp(kind):
        units = array.cast(pa.int64())
        if kind.unit == "ms":
            return units
        return _seconds(array, units, name, first_row) if kind.unit == "s" else _floored(units, _PER_MS[kind.unit])
    if pt.is_date(kind):
        return array.cast(pa.timestamp("ms")).cast(pa.int64())
    if pt.is_integer(kind):
        return _integers(array, name, first_row)
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return _texts(array.cast(pa.string()), name, first_row)
    raise InvalidArgumentError(
        f"column {name!r} cannot be a time",
        found=str(kind),
        expected="a timestamp, a date, integer epoch milliseconds or ISO 8601 text",
    )


def _floored(units: pa.Int64Array, per_ms: int) -> pa.Int64Array:
    """Divide toward minus infinity (Arrow's own division cuts toward zero)."""
    cut = pc.divide(units, per_ms)
    return pc.subtract(cut, pc.less(units, pc.multiply(cut, per_ms)).cast(pa.int64()))


def _seconds(array: pa.Array, seconds: pa.Int64Array, name: str, first_row: int) -> pa.Int64Array:
    try:
        return pc.multiply_checked(seconds, 1000)
    except pa.ArrowInvalid:
        limit = (2**63 - 1) // 1000
        far = pc.or_(pc.greater(seconds, limit), pc.less(seconds, -limit))
        row = pc.index(far, True).as_py()
        raise InvalidArgumentError(
            f"row {first_row + row}: column {name!r} is beyond 64 bits of milliseconds", found=f"{seconds[row]} s"
        ) from None


def _integers(array: pa.Array, name: str, first_row: int) -> pa.Int64Array:
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        row = pc.index(pc.greater(array, pa.scalar(2**63 - 1, array.type)), True).as_py()
        raise InvalidArgumentError(f"row {first_row + row}: column {name!r} is beyond 64 bits", found=array[row]) from None


def _texts(texts: pa.StringArray, name: str, first_row: int) -> pa.Int64Array:
    """Read ISO 8601 texts; one pass where all are of one kind, else each kind apart."""
    # Digits finer than a millisecond go first: cutting digits is flooring, before 1970 too, and Arrow's ms reach every year.
    texts = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), _FINER, r"\1")
    digits = pc.match_substring_regex(texts, _DIGITS)
    zoned = pc.and_(pc.match_substring_regex(texts, _ZONE), pc.match_substring_regex(texts, _HAS_CLOCK))
    whole: pa.Int64Array | None = None
    plain = pc.invert(pc.or_(zoned, digits))
    for mask, kind in ((plain, pa.timestamp("ms")), (zoned, pa.timestamp("ms", "UTC")), (digits, pa.int64())):
        if not pc.any(mask).as_py():
            continue
        some = pc.if_else(mask, texts, pa.scalar(None, pa.string()))
        part = _parsed(some, kind, name, first_row)
        whole = part if whole is None else pc.coalesce(whole, part)
    return pa.array([], pa.int64()) if whole is None else whole


def _parsed(texts: pa.StringArray, kind: pa.DataType, name: str, first_row: int) -> pa.Int64Array:
    try:
        return texts.cast(kind).cast(pa.int64())
    except pa.ArrowInvalid:
        row = next(i for i in range(len(texts)) if not _readable(texts.slice(i, 1), kind))
    raise InvalidArgumentError(
        f"row {first_row + row}: column {name!r} is not a time",
        found=repr(texts[row].as_py()),
        expected="ISO 8601, such as 2013-01-01T10:00:00Z",
    )


def _readable(text: pa.StringArray, kind: pa.DataType) -> bool:
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _shown(value: pa.Scalar, time_ms: int) -> str:
    try:
        return f"{value} ({time_ms} ms)"
    except (OverflowError, ValueError):  # a year that Python's datetime does not have
        return f"{time_ms} ms"
