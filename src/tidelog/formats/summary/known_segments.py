"""Provides facts about a log's segments without reading the segments.

A search by time looks at every segment before the one it finds, because a record may be late. In a local folder that costs
little. In a bucket it costs some requests for each segment, while the summary costs one request for all segments.

| the log is in | source of the facts |
|---|---|
| a local folder | none: the segments are read |
| a bucket | the summary |
| a folder that has the facts itself, such as a backup in its manifests | the path's `segment_facts()` |

The summary is used for a log that has the listed size, is not newer than the summary, and does not reach into the next
segment. All other segments are read as if there were no summary. If the end of a segment is read, its last batch must be the one
in the summary; otherwise the summary is not used for that segment. Only this check detects a log that was replaced by one
of the same size before the summary was copied. `tidelog index verify` compares the summary with the logs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import cast

from tidelog.errors import CorruptIndexError, StorageError
from tidelog.formats import names
from tidelog.formats.files import Notices, read_whole
from tidelog.formats.paths.file_path import FilePath
from tidelog.formats.summary.segment_summary import SegmentFacts, decode_summary
from tidelog.model import MAX_OFFSET


class KnownSegments:
    """The facts about the segments in a partition's folder. Nothing is read before the first call to `of`."""

    def __init__(self, directory: FilePath, notices: Notices) -> None:
        self._directory = directory
        self._notices = notices
        self._written_ns = MAX_OFFSET

    def of(self, base_offset: int, next_base_offset: int | None, size_bytes: int, modified_ns: int) -> SegmentFacts | None:
        """Return the facts about the segment that was listed with these values; None if the segment must be read."""
        facts = self._by_base.get(base_offset)
        if facts is None or facts.size_bytes != size_bytes or modified_ns > self._written_ns:
            return None
        end = MAX_OFFSET if next_base_offset is None else next_base_offset
        return facts if base_offset <= facts.first_offset <= facts.next_offset <= end else None

    @cached_property
    def _by_base(self) -> dict[int, SegmentFacts]:
        known = getattr(self._directory, "segment_facts", None)
        if known is not None:
            return cast("Callable[[], dict[int, SegmentFacts]]", known)()
        with suppress(OSError):
            self._written_ns = (self._directory / names.SEGMENT_SUMMARY).stat().st_mtime_ns
        return read_summary(self._directory, self._notices)


def read_summary(directory: FilePath, notices: Notices) -> dict[int, SegmentFacts]:
    """Return the facts in a partition's summary, by base offset; empty if there is no summary, or if it is damaged, with a
    notice.
    """
    path = directory / names.SEGMENT_SUMMARY
    try:
        return {one.base_offset: one for one in decode_summary(read_whole(path), path)}
    except FileNotFoundError:
        return {}
    except (CorruptIndexError, StorageError) as error:
        notices.note(path, f"{error.message}; the segments are read instead")
        return {}
