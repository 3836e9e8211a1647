"""The timestamp column of an import. Its numbers are interpreted as milliseconds only if that is plausible.

A number does not show its unit, and the wrong unit shifts a log by thousands of years without an error. Unless the unit is given,
a number is judged by the time that it would mean in milliseconds:

| number (digits) | as milliseconds | result |
|---|---|---|
| below 10^8 (up to 8) | the first day of 1970 | accepted with a notice: it may be a test value, or may not be a time |
| 10^8 to 10^11 (9 to 11) | January 1970 to March 1973 | refused: in seconds it would be 1973 to 5138 |
| 10^11 to 10^14 (12 to 14) | 1973 to 5138 | accepted |
| 10^14 to 10^17 (15 to 17) | after 5138 | refused: in microseconds it would be 1973 to 5138 |
| from 10^17 (18, 19) | after 5138 | refused: in nanoseconds it would be after 1973 |
| 20130710, 201307100930, 20130710093000 | 1970, 1976, 2607 | refused: these are the digits of a date |

Text that consists of digits is judged like a number. If the unit is given, all numbers are accepted.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.errors import InvalidArgumentError
from tidelog.ingest.timestamps import UNITS, epoch_ms, has_no_zone, is_text
from tidelog.times import format_time

_SECONDS = 10**8
_MILLIS = 10**11
_MICROS = 10**14
_NANOS = 10**17
_CALENDAR = (
    r"^(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])"  # a date
    r"(([01][0-9]|2[0-3])[0-5][0-9]([0-5][0-9])?)?$"  # with hours and minutes, and possibly seconds
)
_DIGITS = r"^[0-9]{1,18}$"
_NANOS_DIGITS = r"^[0-9]{19}$"


class TimeColumn:
    """Converts a column to epoch milliseconds, chunk by chunk, and collects notices."""

    def __init__(self, name: str, unit: str | None) -> None:
        if unit is not None and unit not in UNITS:
            raise InvalidArgumentError("unknown unit of timestamps", found=repr(unit), expected=", ".join(UNITS))
        self._name = name
        self._unit = unit
        self._smallest: int | None = None
        self._without_zone = False

    def epoch_ms(self, array: pa.Array, first_row: int) -> pa.Int64Array:
        """Return a chunk in epoch ms. `first_row` is the number in the file of the chunk's first row.

        Raises InvalidArgumentError for values that `timestamps.epoch_ms` refuses, and for a number that is probably in a
        different unit.
        """
        if pt.is_dictionary(array.type):
            array = array.dictionary_decode()
        if self._unit is None and not array.null_count:
            self._check_numbers(array, first_row)
        self._without_zone = self._without_zone or has_no_zone(array)
        return epoch_ms(array, self._name, first_row, self._unit)

    def notices(self) -> list[str]:
        """Return the assumptions that were made, one line each."""
        notices = []
        if self._smallest is not None:
            notices.append(
                f"column {self._name!r}: numbers are interpreted as epoch milliseconds, of which the smallest is "
                f"{self._smallest} ({format_time(self._smallest)}); for a different unit, use --timestamp-unit"
            )
        if self._without_zone:
            notices.append(f"column {self._name!r}: times without a time zone are interpreted as UTC")
        return notices

    def _check_numbers(self, array: pa.Array, first_row: int) -> None:
        """Raise InvalidArgumentError for the first number that is not plausible as milliseconds."""
        if is_text(array.type):
            texts = pc.utf8_trim_whitespace(array.cast(pa.string()))
            self._refuse(pc.match_substring_regex(texts, _NANOS_DIGITS), texts, "ns", first_row)
            array = pc.if_else(pc.match_substring_regex(texts, _DIGITS), texts, pa.scalar(None, pa.string())).cast(pa.int64())
        elif not pt.is_integer(array.type):
            return
        span = pc.min_max(array).as_py()
        smallest, largest = span["min"], span["max"]
        if smallest is None:
            return
        if smallest < _MILLIS or largest >= _MICROS or _spans_calendar(smallest, largest):
            texts = array.cast(pa.string())
            self._refuse(pc.fill_null(pc.match_substring_regex(texts, _CALENDAR), False), array, "", first_row)
            seconds = pc.and_(pc.greater_equal(array, _SECONDS), pc.less(array, _MILLIS))
            micros = pc.and_(pc.greater_equal(array, _MICROS), pc.less(array, _NANOS))
            for unit, mask in (("s", seconds), ("us", micros), ("ns", pc.greater_equal(array, _NANOS))):
                self._refuse(mask, array, unit, first_row)
        if 0 <= smallest < _SECONDS:
            self._smallest = smallest if self._smallest is None else min(self._smallest, smallest)

    def _refuse(self, mask: pa.BooleanArray, array: pa.Array, unit: str, first_row: int) -> None:
        """Raise InvalidArgumentError for the first row that is true in `mask`, if there is one. Its number is probably in `unit`,
        or has the digits of a date.
        """
        row = pc.index(mask, True).as_py()
        if row < 0:
            return
        number = int(array[row].as_py())
        meant = (
            f", as {unit} {format_time(epoch_ms(pa.array([number]), '', 1, unit)[0].as_py())}" if unit and number < 2**63 else ""
        )
        raise InvalidArgumentError(
            f"row {first_row + row}: column {self._name!r} does not look like epoch milliseconds",
            found=f"{number} (as ms {format_time(number)}{meant})",
            expected=f"--timestamp-unit {unit}, or ms if the numbers are milliseconds"
            if unit
            else "--timestamp-unit if it is a number, or text such as 2013-07-10T09:30:00Z if it is a date",
        )


def _spans_calendar(smallest: int, largest: int) -> bool:
    """Return whether a number between `smallest` and `largest` could be the 12 or 14 digits of a date from 1900 to 2099."""
    return any(smallest <= 2100 * scale and largest >= 1900 * scale for scale in (10**8, 10**10))
