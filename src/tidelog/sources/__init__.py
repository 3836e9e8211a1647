"""Reads exact time or offset ranges of one or many partitions from folders and brokers as Arrow, in parallel if needed.

`tidelog.scan` is the entry point (`stream`). Behind it:

| module | |
|---|---|
| `opening` | the table of source kinds, and the only place that determines an address's kind |
| `source`, `offset_source` | the interface of every kind of source: topics, ends, find, plan, splits, groups |
| `split`, `reader_resources` | a piece of a log that any process can read, and the resources for reading such pieces |
| `plan`, `scan_plan` | a scan's request, and the splits that cover the requested records |
| `split_reader`, `arrow`, `schema`, `chunks` | from a split's batches to Arrow batches |
| `files/`, `brokers/` | the two kinds of source |

The package is not named `scan`, so that `tidelog.scan` stays a function (docs/decisions/0006).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tidelog.sources.lookups import find_offsets as find_offsets
    from tidelog.sources.opening import open_source as open_source
    from tidelog.sources.scan_plan import ScanPlan as ScanPlan
    from tidelog.sources.scan_report import ScanReport as ScanReport
    from tidelog.sources.source import Source as Source
    from tidelog.sources.split import Split as Split
    from tidelog.sources.split_reader import read_split as read_split
    from tidelog.sources.stream import scan as scan
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tidelog.sources.lookups": ("find_offsets",),
            "tidelog.sources.opening": ("open_source",),
            "tidelog.sources.split_reader": ("read_split",),
            "tidelog.sources.scan_report": ("ScanReport",),
            "tidelog.sources.scan_plan": ("ScanPlan",),
            "tidelog.sources.source": ("Source",),
            "tidelog.sources.split": ("Split",),
            "tidelog.sources.stream": ("scan",),
        },
    )

__all__ = ["ScanPlan", "ScanReport", "Source", "Split", "find_offsets", "open_source", "read_split", "scan"]
