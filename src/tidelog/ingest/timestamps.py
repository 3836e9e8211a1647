"""Converts a column of times to epoch milliseconds, the unit of every Kafka timestamp.

=========================  ===================================================================
column                     interpretation
=========================  ===================================================================
timestamp s, ms, µs, ns    that instant; without a zone UTC; floored to ms
date                       midnight UTC
integer                    units since 1970; milliseconds unless a unit is given
float, decimal             the same, but only with a given unit: a fraction suggests seconds
text                       ISO 8601, each value with or without a zone (without a zone UTC); or a number: in the given
                           unit; without a unit, in milliseconds if it has 12 digits or more
=========================  ===================================================================

Times are floored, not truncated: one nanosecond before 1970 is -1 ms, which is refused because Kafka's timestamps begin in 1970.
A floating-point number is first rounded to the nearest microsecond, because 1373414400.123 s as a double is 122.99999 ms after
the full second.

`time_column` decides whether numbers without a unit are milliseconds.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.errors import InvalidArgumentError

UNITS = ("s", "ms", "us", "ns")
"""The units that numbers may have."""

_PER_MS = {"us": 1_000, "ns": 1_000_000}
_MICROS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_ZONE = r"(?i)[0-9](z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_FINER = r"(\.[0-9]{3})[0-9]+"
_DIGITS = r"^[0-9]{12,}$"  # A number with fewer digits is more likely a date such as 20130101 than a time before March 1973.
_HAS_CLOCK = r"[0-9][T ][0-9]"
_INTEGER = r"^[+-]?[0-9]+$"
_FRACTION = r"^[+-]?[0-9]+\.[0-9]*$"


def epoch_ms(array: pa.Array, name: str, first_row: int, unit: str | None = None) -> pa.Int64Array:
    """Return `array` in epoch milliseconds, as int64 without nulls or negative values.

    Errors show the column's `name` and the row; `first_row` is the number (from 1) in the file of the array's first row. `unit`
    is the unit of numbers, one of `UNITS`, or None. Raises InvalidArgumentError, with row and column for a null, negative or
    unreadable time, and with the column for a wrong type.
    """
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        row = pc.index(array.is_null(), True).as_py()
        raise InvalidArgumentError(f"row {first_row + row}: column {name!r} has no time (null)")
    times = _int64_ms(array, name, first_row, unit)
    negative = pc.less(times, 0)
    if pc.any(negative).as_py():
        row = pc.index(negative, True).as_py()
        raise InvalidArgumentError(
            f"row {first_row + row}: column {name!r} is before 1970, but Kafka timestamps begin in 1970",
            found=_shown(array[row], times[row].as_py()),
        )
    return times


def has_no_zone(array: pa.Array) -> bool:
    """Return whether a value is a time without a zone, which is interpreted as UTC."""
    kind = array.type
    if pt.is_timestamp(kind):
        return kind.tz is None and len(array) > 0
    if not is_text(kind):
        return False
    texts = pc.utf8_trim_whitespace(array.cast(pa.string()))
    clocks = pc.match_substring_regex(texts, _HAS_CLOCK)
    return bool(pc.any(pc.and_(clocks, pc.invert(pc.match_substring_regex(texts, _ZONE)))).as_py())


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is text, in any layout."""
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _int64_ms(array: pa.Array, name: str, first_row: int, unit: str | None) -> pa.Int64Array:
    kind = array.type
    if pt.is_timestamp(kind):
        return _units(array.cast(pa.int64()), kind.unit, name, first_row)
    if pt.is_date(kind):
        return array.cast(pa.timestamp("ms")).cast(pa.int64())
    if pt.is_integer(kind):
        return _units(_integers(array, name, first_row), unit or "ms", name, first_row)
    if unit is not None and (pt.is_floating(kind) or pt.is_decimal(kind)):
        return _fractions(array, unit, name, first_row)
    if is_text(kind):
        return _texts(array.cast(pa.string()), name, first_row, unit)
    is_number = pt.is_floating(kind) or pt.is_decimal(kind)
    raise InvalidArgumentError(
        f"column {name!r} cannot be a time" + (" without a unit" if is_number else ""),
        found=str(kind),
        expected=f"--timestamp-unit {'|'.join(UNITS)}, the unit of the column's numbers"
        if is_number
        else "a timestamp, a date, integer epoch milliseconds or ISO 8601 text",
    )


def _units(numbers: pa.Int64Array, unit: str, name: str, first_row: int) -> pa.Int64Array:
    if unit == "ms":
        return numbers
    return _seconds(numbers, name, first_row) if unit == "s" else _floored(numbers, _PER_MS[unit])


def _fractions(array: pa.Array, unit: str, name: str, first_row: int) -> pa.Int64Array:
    micros = pc.round(pc.multiply(array.cast(pa.float64()), _MICROS[unit]))
    fits = pc.and_(pc.is_finite(micros), pc.less(pc.abs(micros), 2.0**63))
    if not pc.all(fits).as_py():
        row = pc.index(fits, False).as_py()
        raise InvalidArgumentError(f"row {first_row + row}: column {name!r} is not a time", found=f"{array[row]} {unit}")
    return _floored(micros.cast(pa.int64()), 1_000)


def _floored(units: pa.Int64Array, per_ms: int) -> pa.Int64Array:
    """Return the quotients, rounded toward minus infinity. Arrow's own division truncates."""
    cut = pc.divide(units, per_ms)
    return pc.subtract(cut, pc.less(units, pc.multiply(cut, per_ms)).cast(pa.int64()))


def _seconds(seconds: pa.Int64Array, name: str, first_row: int) -> pa.Int64Array:
    try:
        return pc.multiply_checked(seconds, 1000)
    except pa.ArrowInvalid:
        limit = (2**63 - 1) // 1000
        far = pc.or_(pc.greater(seconds, limit), pc.less(seconds, -limit))
        row = pc.index(far, True).as_py()
        raise InvalidArgumentError(
            f"row {first_row + row}: column {name!r} has a value that does not fit in an int64 in milliseconds",
            found=f"{seconds[row]} s",
        ) from None


def _integers(array: pa.Array, name: str, first_row: int) -> pa.Int64Array:
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        row = pc.index(pc.greater(array, pa.scalar(2**63 - 1, array.type)), True).as_py()
        raise InvalidArgumentError(
            f"row {first_row + row}: column {name!r} has a value that does not fit in an int64", found=array[row]
        ) from None


def _texts(texts: pa.StringArray, name: str, first_row: int, unit: str | None) -> pa.Int64Array:
    """Convert texts, which are ISO 8601 times or numbers. If all texts are of the same kind, this takes one pass; otherwise each
    kind is converted separately.
    """
    texts = pc.utf8_trim_whitespace(texts)
    nothing = pa.scalar(None, pa.string())
    digits = pc.match_substring_regex(texts, _DIGITS if unit is None else _INTEGER)
    fractions = pc.and_(pc.match_substring_regex(texts, _FRACTION), unit is not None)
    zoned = pc.and_(pc.match_substring_regex(texts, _ZONE), pc.match_substring_regex(texts, _HAS_CLOCK))
    plain = pc.invert(pc.or_(pc.or_(zoned, digits), fractions))
    whole: pa.Int64Array | None = None
    for mask, kind in (
        (plain, pa.timestamp("ms")),
        (zoned, pa.timestamp("ms", "UTC")),
        (digits, pa.int64()),
        (fractions, pa.float64()),
    ):
        if not pc.any(mask).as_py():
            continue
        some = pc.if_else(mask, texts, nothing)
        if pt.is_timestamp(kind):
            # Remove digits after the milliseconds first. This floors, also before 1970, and Arrow's milliseconds cover every
            # year.
            some = pc.replace_substring_regex(some, _FINER, r"\1")
        part = _parsed(some, kind, name, first_row)
        if pt.is_floating(kind):
            part = pc.if_else(
                mask, _fractions(pc.fill_null(part, 0.0), unit or "ms", name, first_row), pa.scalar(None, pa.int64())
            )
        elif pt.is_integer(kind):
            part = pc.if_else(mask, _units(pc.fill_null(part, 0), unit or "ms", name, first_row), pa.scalar(None, pa.int64()))
        else:
            part = part.cast(pa.int64())
        whole = part if whole is None else pc.coalesce(whole, part)
    return pa.array([], pa.int64()) if whole is None else whole


def _parsed(texts: pa.StringArray, kind: pa.DataType, name: str, first_row: int) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        row = next(i for i in range(len(texts)) if not _readable(texts.slice(i, 1), kind))
    raise InvalidArgumentError(
        f"row {first_row + row}: column {name!r} is not a time",
        found=repr(texts[row].as_py()),
        expected="ISO 8601, such as 2013-01-01T10:00:00Z, or for numbers --timestamp-unit",
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
    except (OverflowError, ValueError):  # The year is outside the range of `datetime`.
        return f"{time_ms} ms"
