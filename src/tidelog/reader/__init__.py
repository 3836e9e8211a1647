"""Reads any data folder: partitions, segments, transactions, the search by time, missing data, and salvage.

The package is synchronous and read-only. Another process may own the folder and write to it at the same time. Start at `Log` and
`LogDir`. `time_search.find_offset` finds the offset for a timestamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tidelog.reader.log import Log as Log
    from tidelog.reader.log_dir import LogDir as LogDir
    from tidelog.reader.missing.missing_offsets import MissingOffsets as MissingOffsets
    from tidelog.reader.time_map_file import rebuild_time_map as rebuild_time_map
    from tidelog.reader.time_map_file import remove_stale_time_maps as remove_stale_time_maps
    from tidelog.reader.time_search import FoundOffset as FoundOffset
    from tidelog.reader.time_search import find_offset as find_offset
    from tidelog.reader.trace import Trace as Trace
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tidelog.reader.log": ("Log",),
            "tidelog.reader.log_dir": ("LogDir",),
            "tidelog.reader.missing.missing_offsets": ("MissingOffsets",),
            "tidelog.reader.time_map_file": ("rebuild_time_map", "remove_stale_time_maps"),
            "tidelog.reader.time_search": ("FoundOffset", "find_offset"),
            "tidelog.reader.trace": ("Trace",),
        },
    )

__all__ = ["FoundOffset", "Log", "LogDir", "MissingOffsets", "Trace", "find_offset", "rebuild_time_map", "remove_stale_time_maps"]
