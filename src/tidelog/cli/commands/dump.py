"""`tidelog dump FILE`: one file of a log, entry by entry, as it is on disk.

| file | kind | rows |
|---|---|---|
| `*.log`, `*.checkpoint` (KRaft) | log | `batch`, and with --records `record` and `control` (`dump_log`) |
| `*.index` | offset_index | `offset` |
| `*.timeindex` | time_index | `time` |
| `*.txnindex` | transaction_index | `aborted_transaction` |
| `*.snapshot` | producer_snapshot | `producer` |
| `*-offset-checkpoint` | offset_checkpoint | `checkpoint` |
| `leader-epoch-checkpoint` | leader_epoch_checkpoint | `leader_epoch` |
| `partition.metadata`, `meta.properties` | properties | `property` |

Temporary files have a second ending after that of their kind: `.deleted`, `.cleaned`, `.swap` or `.tmp`. Numbers
are shown as stored, including -1 for "none".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

import click

from tidelog.cli.client_options import bucket_options, reached
from tidelog.cli.options import json_option
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_time, table
from tidelog.cli.printing.output import print_lines
from tidelog.errors import CorruptCheckpointError, InvalidArgumentError, NotFoundError, StorageError
from tidelog.folder_path import folder_path
from tidelog.formats import names
from tidelog.formats.checkpoints import parse_number, read_lines, read_offset_checkpoint
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.index_entries import IndexEntries
from tidelog.formats.offset_index import OffsetIndex
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.formats.paths.file_path import FilePath
from tidelog.formats.producer_snapshot import ProducerEntry, parse_snapshot
from tidelog.formats.time_index import TimeIndex
from tidelog.formats.txn_index import AbortedTxn, TxnIndex
from tidelog.objects.address import is_object_address
from tidelog.objects.object_path import object_folder

TEMPORARY_SUFFIXES = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX, ".tmp")

KINDS = (
    (names.LOG_SUFFIX, "log"),
    (".checkpoint", "log"),
    (names.TIME_INDEX_SUFFIX, "time_index"),
    (names.TXN_INDEX_SUFFIX, "transaction_index"),
    (names.INDEX_SUFFIX, "offset_index"),
    (names.SNAPSHOT_SUFFIX, "producer_snapshot"),
    ("-offset-checkpoint", "offset_checkpoint"),
    (names.LEADER_EPOCH_CHECKPOINT, "leader_epoch_checkpoint"),
    (names.PARTITION_METADATA, "properties"),
    ("meta.properties", "properties"),
)
"""The ending of a file's name → the kind of file."""

TIME_COLUMNS = frozenset({"timestamp"})
"""Columns that are shown as times in the output for people."""

Row = dict[str, object]


@dataclass
class Dump:
    """A file's content: facts about the whole file, and rows of one type, possibly many."""

    facts: Row
    row_type: str
    rows: Iterable[Row]
    notes: list[str] = field(default_factory=list)


@click.command()
@click.argument("file", metavar="FILE", callback=reached)
@click.option("--records", "with_records", is_flag=True, help="Also show the records of each batch (.log, .checkpoint).")
@json_option
@bucket_options
def command(file: str, with_records: bool, as_json: bool) -> None:
    """Show one file of a log, entry by entry, as it is on disk.

    FILE is a .log, .index, .timeindex, .txnindex, .snapshot, a checkpoint, a snapshot of KRaft's metadata (.checkpoint),
    partition.metadata or meta.properties, possibly with the suffix .deleted, .cleaned or .swap: a path, or an address in object
    storage.
    """
    path = (
        object_folder(file) if is_object_address(file) else folder_path(file, "a file: a path, file:///path or s3://bucket/key")
    )
    kind = kind_of(path)
    if with_records and kind != "log":
        raise click.UsageError("--records is for .log and .checkpoint files: other files hold no records.")
    check_file(path)
    if kind == "log":
        from tidelog.cli.commands.dump_log import dump_log

        dump_log(path, with_records=with_records, as_json=as_json)
        return
    show(path, kind, read(path, kind), as_json=as_json)


def kind_of(path: FilePath) -> str:
    """Return the kind of a file by its name. Raises InvalidArgumentError for an unknown name."""
    name = path.name
    for suffix in TEMPORARY_SUFFIXES:
        name = name.removesuffix(suffix)
    for ending, kind in KINDS:
        if name.endswith(ending):
            return kind
    endings = ", ".join(ending for ending, _ in KINDS)
    raise InvalidArgumentError(f"this kind of file cannot be dumped: expected a name that ends in {endings}", path=path)


def check_file(path: FilePath) -> None:
    """Raise NotFoundError or InvalidArgumentError unless `path` is a file. Denied access is reported when the file is opened."""
    try:
        if path.is_dir():
            raise InvalidArgumentError("this is a folder, not a file: for folders, run `tidelog stat`", path=path)
        if not path.exists():
            raise NotFoundError("no such file", path=path)
    except OSError as error:
        raise StorageError(f"cannot stat the file: {error.strerror}", path=path) from error


def base_offset_of(path: FilePath) -> int:
    """Return the base offset in a file's name. If there is none, print a note and return 0, so that relative offsets are
    shown unchanged.
    """
    try:
        return names.offset_from_file_name(path.name)
    except InvalidArgumentError:
        notices.note(f"{path}: the file name has no base offset, so the offsets shown are relative to the segment's")
        return 0


def show(path: FilePath, kind: str, dump: Dump, *, as_json: bool) -> None:
    """Print a dump: for scripts, a line for the file and a line for each row; for people, a line of facts and a table."""
    for text in dump.notes:
        notices.note(text)
    if as_json:
        print_lines([json_line({"type": "file", "path": str(path), "kind": kind, **dump.facts})])
        print_lines(json_line({"type": dump.row_type, **row}) for row in dump.rows)
        return
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in dump.facts.items())
    print_lines([one_line(f"{path}: {kind.replace('_', ' ')}, {facts}")])
    rows = iter(dump.rows)
    first = next(rows, None)
    if first is None:
        return
    header = [name.replace("_", " ") for name in first]
    print_lines(table(header, map(_for_people, chain([first], rows))))


def read(path: FilePath, kind: str) -> Dump:
    """Read a file of any kind except a log. Raises the CorruptDataError of its kind, StorageError."""
    if kind == "offset_index":
        return _offset_index(path)
    if kind == "time_index":
        return _time_index(path)
    if kind == "transaction_index":
        return _transaction_index(path)
    if kind == "producer_snapshot":
        return _producer_snapshot(path)
    if kind == "offset_checkpoint":
        offsets = read_offset_checkpoint(path)
        rows: list[Row] = [{**key._asdict(), "offset": offset} for key, offset in sorted(offsets.items())]
        return Dump({"entries": len(rows)}, "checkpoint", rows)
    if kind == "leader_epoch_checkpoint":
        return _leader_epochs(path)
    return _properties(path)


def _for_people(row: Row) -> list[object]:
    return [show_time(value) if name in TIME_COLUMNS and isinstance(value, int) else value for name, value in row.items()]


def _index_facts(path: FilePath, index: IndexEntries) -> tuple[Row, list[str]]:
    partial_bytes = index.length_bytes % index.entry_bytes
    padding_bytes = index.length_bytes - partial_bytes - index.size_bytes
    facts: Row = {
        "base_offset": index.base_offset,
        "entries": index.entries,
        "bytes": index.length_bytes,
        "padding_bytes": padding_bytes,
    }
    notes = []
    if padding_bytes:
        notes.append(f"{path}: {padding_bytes} bytes of zeros after the entries: preallocated, not used")
    if partial_bytes:
        notes.append(f"{path}: the length is not a whole number of entries; the last {partial_bytes} bytes were left out")
    return facts, notes


def _offset_index(path: FilePath) -> Dump:
    return _index(path, OffsetIndex, "offset")


def _time_index(path: FilePath) -> Dump:
    return _index(path, TimeIndex, "time")


def _index(path: FilePath, kind: type[OffsetIndex | TimeIndex], row_type: str) -> Dump:
    with ReadOnlyFile(path, fallbacks=()) as file:
        index = kind.open(file, base_offset_of(path))
        facts, notes = _index_facts(path, index)
        entries = kind.from_bytes(index.base_offset, index.to_bytes())
    rows = ({"entry": slot, **entries.entry(slot)._asdict()} for slot in range(entries.entries))
    return Dump(facts, row_type, rows, notes)


def _transaction_index(path: FilePath) -> Dump:
    with ReadOnlyFile(path, fallbacks=()) as file:
        index = TxnIndex.open(file, base_offset_of(path))
    facts: Row = {"base_offset": index.base_offset, "entries": len(index.aborted)}
    return Dump(facts, "aborted_transaction", [dict(zip(AbortedTxn._fields, txn, strict=True)) for txn in index.aborted])


def _producer_snapshot(path: FilePath) -> Dump:
    with ReadOnlyFile(path, fallbacks=()) as file:
        entries = parse_snapshot(file.read(0, file.size_bytes()), path)
    rows: list[Row] = [dict(zip(ProducerEntry._fields, entry, strict=True)) for entry in sorted(entries)]
    return Dump({"next_offset": base_offset_of(path), "entries": len(rows)}, "producer", rows)


def _leader_epochs(path: FilePath) -> Dump:
    rows: list[Row] = []
    for number, fields in enumerate(read_lines(path), start=3):
        if len(fields) != 2:
            raise CorruptCheckpointError(
                f"line {number} has the wrong number of fields", path=path, found=len(fields), expected="2 fields"
            )
        epoch, start_offset = (parse_number(text, path, number) for text in fields)
        rows.append({"epoch": epoch, "start_offset": start_offset})
    return Dump({"entries": len(rows)}, "leader_epoch", rows)


def _properties(path: FilePath) -> Dump:
    if names.PARTITION_METADATA in path.name:
        # Parse the file only to check it: its text is shown unchanged.
        read_topic_id(path)
    with ReadOnlyFile(path, fallbacks=()) as file:
        data = file.read(0, file.size_bytes())
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError("the file is not UTF-8 text", path=path, position=error.start) from None
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        separators = [line.index(separator) for separator in "=:" if separator in line]
        if not separators:
            raise CorruptCheckpointError(f"line {number} is not a property", path=path, found=repr(line), expected="key=value")
        at = min(separators)
        rows.append({"key": line[:at].strip(), "value": line[at + 1 :].strip()})
    return Dump({"entries": len(rows)}, "property", rows)
