"""The search by time behind `tidelog.find_offset`, which warns about missing data that could change the answer.

`reader.time_search` searches without warnings. Commands and Spark use it, and report missing data in their own ways.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from tidelog.errors import CorruptDataError, IncompleteLogWarning, SegmentChangedError
from tidelog.model import LATEST, MAX_TIMESTAMP, Isolation
from tidelog.reader import time_search
from tidelog.reader.log import Log
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.time_search import FoundOffset
from tidelog.reader.trace import Trace


def find_offset(
    log: Log, timestamp: int, isolation: Isolation = "read_uncommitted", trace: Trace | None = None
) -> FoundOffset | None:
    """Return the offset for `timestamp` (ms, or one of the special values), or None if no record is at or after that time.

    Issues an `IncompleteLogWarning` for each missing range of offsets that could change the answer. `log.missing()` returns all
    missing ranges.

    Raises UnsupportedForMessageFormatError in a v0 topic for anything but EARLIEST and LATEST, UnsupportedVersionError for
    an unknown negative value, and what reading the log raises (CorruptDataError, SegmentChangedError).
    """
    found = time_search.find_offset(log, timestamp, isolation, trace)
    warn_of(lambda: missing_for(log, timestamp, isolation, found))
    return found


def warn_of(missing: Callable[[], list[MissingOffsets]]) -> None:
    """Issue an `IncompleteLogWarning` for each item that `missing` returns, attributed to the caller's caller."""
    try:
        texts = [str(one) for one in missing()]
    except CorruptDataError as error:
        texts = [f"cannot determine what is missing: {error}"]
    except SegmentChangedError:
        texts = []  # The log's owner is removing segments.
    for text in texts:
        warnings.warn(text, IncompleteLogWarning, stacklevel=3)


def missing_for(log: Log, timestamp: int, isolation: Isolation, found: FoundOffset | None) -> list[MissingOffsets]:
    """Return the missing offsets that could change an answer: those before the answer and, if the answer depends on the log's
    end, those at the end.

    Raises what `Log.missing` raises.
    """
    if timestamp == LATEST and isolation == "read_uncommitted":
        return log.missing(log.log_end_offset)
    if timestamp in (LATEST, MAX_TIMESTAMP) or found is None or found.offset < 0:
        return log.missing()
    return log.missing(0, found.offset)
