"""The file formats that can be imported, determined by the file's extension or chosen by the caller.

===========  ==========================================  ==========================================================
format       extensions                                  reader
===========  ==========================================  ==========================================================
parquet      .parquet .pq                                `parquet_source`: row groups, page by page
csv          .csv .tsv, also with .gz .bz2 .zst .lz4     `csv_source`: types are determined over the whole file first
jsonl        .jsonl .ndjson .json, also compressed       `json_lines_source`: one object per line; the line itself is the row
===========  ==========================================  ==========================================================
"""

from __future__ import annotations

from pathlib import Path

from tidelog.errors import InvalidArgumentError
from tidelog.ingest.progress import ProgressMaker, silent
from tidelog.ingest.source import Source, Wanted

_FORMATS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
}
FORMATS = tuple(_FORMATS)
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


def open_source(
    path: Path,
    wanted: Wanted,
    file_format: str | None = None,
    *,
    as_text: bool = False,
    delimiter: str | None = None,
    progress: ProgressMaker = silent,
) -> Source:
    """Open the file at `path` for an import. Its format is `file_format`, or by default determined by the extension.

    `as_text` and `delimiter` are for CSV: `as_text` reads every column as text, and `delimiter` is the character between fields.
    `progress` reports the passes over a CSV file before its first row.

    Raises InvalidArgumentError for an unknown format, for a pipe that would have to be read twice, and for a requested column
    that does not exist; CorruptDataError for a file in a different format.
    """
    kind = file_format or format_of(path)
    if kind != "csv" and (as_text or delimiter is not None):
        raise InvalidArgumentError("text columns and a delimiter apply only to CSV", path=path, found=kind)
    if kind != "jsonl" and path.exists() and not (path.is_file() or path.is_dir()):
        raise InvalidArgumentError(f"a pipe or device cannot be read as {kind}, because that takes more than one pass", path=path)
    # Import each reader on use: Arrow's CSV, JSON and Parquet modules are separate and large.
    if kind == "parquet":
        from tidelog.ingest.parquet_source import ParquetSource

        return ParquetSource(path, wanted)
    if kind == "csv":
        from tidelog.ingest.csv_source import CsvSource

        return CsvSource(path, wanted, as_text=as_text, delimiter=delimiter, progress=progress)
    if kind == "jsonl":
        from tidelog.ingest.json_lines_source import JsonLinesSource

        return JsonLinesSource(path, wanted)
    raise InvalidArgumentError("unknown file format", found=kind, expected=", ".join(FORMATS))


def format_of(path: Path) -> str:
    """Return the format for the file's extension."""
    name = path.name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    for kind, endings in _FORMATS.items():
        if name.endswith(endings):
            return kind
    known = " ".join(ending for endings in _FORMATS.values() for ending in endings)
    raise InvalidArgumentError("the file's format cannot be determined from its extension", path=path, expected=known)
