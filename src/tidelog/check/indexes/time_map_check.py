"""Whether a time map is right: built anew from the log, up to where it covers it, it must come out the same."""

from __future__ import annotations

from pathlib import Path

from tidelog.check.indexes.index_finding import Finding
from tidelog.errors import CorruptDataError, CorruptIndexError
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.time_map import TimeMap
from tidelog.formats.time_map_builder import TimeMapBuilder, add_batches
from tidelog.reader.time_map_file import check_agrees, read_time_map

_COLUMNS = (
    *("position", "first offset", "smallest timestamp", "largest timestamp", "distance to the last batch"),
    *(
        "digest of its batches",
        "records",
        "records without timestamp",
        "end of the holes",
        "timestamp before a hole",
        "timestamp behind a hole",
    ),
)


def check_time_map(path: Path, log: ReadOnlyFile, base_offset: int, end_position: int) -> list[Finding] | None:
    """Compare a file with the log whose batches end at `end_position`; None where there is none. Raises StorageError."""
    try:
        time_map = read_time_map(path)
        if time_map is None:
            return None
        check_agrees(time_map, log, base_offset, end_position, path)
        builder = TimeMapBuilder(base_offset, block_bytes=time_map.block_bytes)
        add_batches(builder, log, time_map.covered_bytes)
    except CorruptIndexError as error:
        found = None if error.found is None else str(error.found)
        return [Finding(path, error.message, found=found, expected=None if error.expected is None else str(error.expected))]
    except CorruptDataError as error:
        return [Finding(path, f"the log cannot be mapped: {error.message}", is_fault=False)]
    built = builder.build()
    return [] if built is None or built == time_map else [_difference(path, time_map, built)]


def _difference(path: Path, found: TimeMap, expected: TimeMap) -> Finding:
    for name, ours, theirs in zip(_COLUMNS, found.columns(), expected.columns(), strict=True):
        if len(ours) != len(theirs):
            return Finding(path, f"column {name!r} has another length", found=str(len(ours)), expected=str(len(theirs)))
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                return Finding(path, f"{name}, number {number}", found=str(one), expected=str(other))
    return Finding(path, "the header is not that of the log")
