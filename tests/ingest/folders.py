"""What lies in a partition's folder."""

from __future__ import annotations

from pathlib import Path

from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.records import Record, iter_records


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def headers(directory: Path) -> list[BatchHeader]:
    return [header for base in bases(directory) for header in iter_headers((directory / f"{base:020d}.log").read_bytes())]


def records(directory: Path) -> list[Record]:
    found = []
    for base in bases(directory):
        data = memoryview((directory / f"{base:020d}.log").read_bytes())
        for header in iter_headers(data):
            found += iter_records(header, data[header.position : header.end_position])
    return found
