"""What an offset index entry says of its batch, and by whose rule (spec §4.2).

Each entry must point at the start of a batch. What its offset is depends on who wrote it:

| form | the offset is | written by |
|---|---|---|
| `BATCH` | the batch's last | Kafka 3.9.1 and Tidelog for every batch; older ones where one batch was appended by itself |
| `SET` | the last of a later batch: several were appended at once | Kafka 2.0 to 3.9.0, followers, and messages of v0 and v1 |
| `FIRST` | the batch's first | Kafka up to 1.1 |
| `KEPT` | that of the last record that compaction left in the batch, or in a later one appended with it | Kafka up to 3.9.0 |

An entry of no form is wrong. One of the lower three forms may be right or may be damage that happens to look like it; that shows
in the company it keeps (`FormSurvey`), and in the time index, which gets an entry with it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Set
from struct import iter_unpack
from typing import NamedTuple

from tidelog.check.indexes.batch_table import BatchTable
from tidelog.errors import CorruptDataError
from tidelog.formats.files import ReadOnlyFile
from tidelog.records.batch import HEADER_BYTES, BatchHeader, read_header
from tidelog.records.compression import Codec
from tidelog.records.kernel import Rows
from tidelog.records.scanner import scan_batch


class Form(enum.Enum):
    """See the module."""

    BATCH = "for every batch"
    SET = "for several batches appended at once"
    FIRST = "with first offsets"
    KEPT = "with the last offset that compaction left"


class OffsetEntry(NamedTuple):
    """An entry with what it is taken for."""

    slot: int
    relative: int
    position: int
    form: Form | None
    """None: it is wrong."""
    batch: int
    """The batch that it points at; -1 if it points at none's start."""
    last_batch: int
    """The last one that was appended with it, as far as is known."""


def read_entries(data: bytes, table: BatchTable, log: ReadOnlyFile) -> list[OffsetEntry]:
    """Return the entries of an offset index, each with its form. Raises StorageError."""
    entries = []
    for slot, (relative, position) in enumerate(iter_unpack(">ii", data)):
        batch = table.at(position)
        if batch is None:
            entries.append(OffsetEntry(slot, relative, position, None, -1, -1))
        elif table.last_offsets[batch] == relative:
            entries.append(OffsetEntry(slot, relative, position, Form.BATCH, batch, batch))
        else:
            form, last = _older_form(table, log, batch, relative)
            entries.append(OffsetEntry(slot, relative, position, form, batch, last))
    return entries


def _older_form(table: BatchTable, log: ReadOnlyFile, batch: int, relative: int) -> tuple[Form | None, int]:
    holding = table.holding(relative)
    if holding < batch or holding == len(table):
        return None, batch
    if table.last_offsets[holding] == relative:
        return Form.SET, holding
    offsets = _offsets_of(log, table.positions[holding])
    if offsets is None:
        return None, batch
    if holding == batch and relative + table.base_offset == offsets[0]:
        return Form.FIRST, batch
    return (Form.KEPT, holding) if relative + table.base_offset == offsets[1] else (None, batch)


def _offsets_of(log: ReadOnlyFile, position: int) -> tuple[int, int] | None:
    """Return the first and the last offset of the records in a batch; its header's first where that tells one."""
    rows = Rows()
    try:
        header = read_header(log.read(position, HEADER_BYTES), 0, position, log.path)
        count, _ = scan_batch(rows, header, log.read(position, header.size), path=log.path)
    except CorruptDataError:
        return None
    if count == 0:
        return None
    offsets = rows.column("offset")
    return header.base_offset if header.magic == 2 else offsets[0], offsets[-1]


class FormSurvey:
    """What forms the indexes of a partition have; `accepted` says which of them are somebody's rule."""

    def __init__(self) -> None:
        self.counts: Counter[Form] = Counter()
        self._confirmed = self._of_messages = 0

    def add(self, entries: list[OffsetEntry], table: BatchTable, times: Set[int], log: ReadOnlyFile) -> None:
        """Take the entries of one segment; `times` are the timestamps in its time index."""
        self.counts.update(entry.form for entry in entries if entry.form is not None)
        for entry in entries:
            if entry.form is Form.SET:
                self._confirmed += set_verdict(entry, table, times) is True
                self._of_messages += _is_plain_message(log, entry.position)

    @property
    def is_older(self) -> bool:
        """Whether some are by the rules of older releases only."""
        return any(self.counts[form] for form in self.accepted if form is not Form.BATCH)

    @property
    def accepted(self) -> frozenset[Form]:
        """Return the forms that count as right."""
        found = {Form.BATCH, Form.KEPT}
        total = sum(self.counts.values())
        sets, firsts = self.counts[Form.SET], self.counts[Form.FIRST]
        # Once may be damage. Sets of single messages are how v0 and v1 were written before 3.9.1.
        if self._confirmed or self._of_messages or (sets >= 3 and 50 * sets >= total):
            found.add(Form.SET)
        if firsts >= 3 and 5 * firsts >= total:
            found.add(Form.FIRST)
        return frozenset(found)


def set_verdict(entry: OffsetEntry, table: BatchTable, times: Set[int]) -> bool | None:
    """Say what the time index holds of an entry that stands for several batches: it confirms, contradicts, or says nothing.

    Had only the first been appended, the largest timestamp up to there would be noted.
    """
    alone, together = table.rise_up_to(entry.batch), table.rise_up_to(entry.last_batch)
    if alone == together:
        return None
    if table.timestamps[together] not in times:
        return False
    return True if alone < 0 or table.timestamps[alone] not in times else None


def _is_plain_message(log: ReadOnlyFile, position: int) -> bool:
    header: BatchHeader = read_header(log.read(position, HEADER_BYTES), 0, position, log.path)
    return header.magic < 2 and header.codec is Codec.NONE
