"""The three indexes of a segment, built anew from its `.log` without changing that: for folders that nobody is writing to.

The entries are those of a recovery (`log_scan`), so the files equal Kafka's byte for byte. Each appears whole: it is written
beside, synced, and renamed. Where the folder must not be written, the files go into another one.

| | |
|---|---|
| `.index`, `.timeindex` | always, of zero bytes where there is nothing to index |
| `.txnindex` | where transactions were aborted; one that stood there without any is removed |

What is behind the last valid batch of a log is not indexed, nor cut off; the answer says where that is and why.

Transactions reach over segments. A partition is therefore gone through in order with one `ProducerState`, which begins with
the snapshot at its first segment's base, or empty; walks may run ahead of it on several threads. `tidelog index rebuild` calls
this.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import CorruptDataError, CorruptSnapshotError, SegmentChangedError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import replace_file, sync_directory
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.formats.txn_index import AbortedTxn
from tidelog.reader.producer_state import ProducerState
from tidelog.records.batch import BatchHeader
from tidelog.records.control import EndTxnMarker
from tidelog.records.markers import end_txn_marker
from tidelog.storage.loading.log_scan import LogToScan, Progress, ScannedLog, read_producer_batch, scan_logs

logger = logging.getLogger("tidelog.storage")


class RebuiltIndexes(NamedTuple):
    """What one segment's log says."""

    log_path: Path
    scanned: ScannedLog
    aborted: list[AbortedTxn]

    @property
    def files(self) -> dict[str, bytes]:
        """The indexes by suffix; the transaction index is empty where there need be none."""
        return {
            names.INDEX_SUFFIX: self.scanned.offset_entries,
            names.TIME_INDEX_SUFFIX: self.scanned.time_entries,
            names.TXN_INDEX_SUFFIX: b"".join(txn.to_bytes() for txn in self.aborted),
        }


def rebuild_indexes(
    log_paths: Sequence[Path],
    index_interval_bytes: int,
    *,
    out_dir: Path | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Iterator[RebuiltIndexes]:
    """Write the indexes of segments that follow one another in one partition; yield each when its files are there.

    `out_dir`, which is there, takes the files; None stands for the logs' own folder. `progress` hears how many bytes more were
    walked, from the walking threads. Raises StorageError, SegmentChangedError for a log that goes or shrinks meanwhile.
    """
    for rebuilt in index_logs(log_paths, index_interval_bytes, threads=threads, progress=progress):
        write_indexes(rebuilt, rebuilt.log_path.parent if out_dir is None else out_dir)
        yield rebuilt


def index_logs(
    log_paths: Sequence[Path], index_interval_bytes: int, *, threads: int = 1, progress: Progress | None = None
) -> Iterator[RebuiltIndexes]:
    """The same, with nothing written: for whoever compares."""
    files = [ReadOnlyFile(path) for path in log_paths]
    logs = [
        LogToScan(file, file.size_bytes(), names.offset_from_file_name(file.path.name), index_interval_bytes) for file in files
    ]
    for file in files:
        file.close()
    state = state_at(log_paths[0]) if log_paths else ProducerState()
    for file, scanned in zip(files, scan_logs(logs, threads, progress=progress), strict=True):
        aborted = aborted_by(transaction_batches(file, scanned), state)
        file.close()
        yield RebuiltIndexes(file.path, scanned, aborted)


def write_indexes(rebuilt: RebuiltIndexes, directory: Path) -> None:
    """Put the indexes into `directory`, each one whole or not at all. Raises StorageError."""
    for suffix, data in rebuilt.files.items():
        path = directory / rebuilt.log_path.with_suffix(suffix).name
        if data or suffix != names.TXN_INDEX_SUFFIX:
            replace_file(path, data)
            continue
        try:
            path.unlink()
            sync_directory(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"cannot remove an index: {error.strerror or error}", path=path) from error


def state_at(log_path: Path) -> ProducerState:
    """Return the producers' state at a segment's base, as far as a snapshot tells it."""
    base_offset = names.offset_from_file_name(log_path.name)
    path = log_path.with_suffix(names.SNAPSHOT_SUFFIX)
    try:
        return ProducerState(read_snapshot(path), base_offset)
    except SegmentChangedError:
        pass  # There is none: nothing was known of producers, or the log begins here.
    except CorruptSnapshotError as error:
        logger.warning("%s: transactions that were open at %d count as begun later", error, base_offset)
    return ProducerState(map_end_offset=base_offset)


class ProducerBatch(NamedTuple):
    """A batch that opens or ends a transaction, or may; of the others nothing needs to be known."""

    header: BatchHeader
    marker: EndTxnMarker | None


def transaction_batches(file: ReadOnlyFile, scanned: ScannedLog) -> list[ProducerBatch]:
    """Return a segment's batches that the aborted transactions follow from, in order; few of them are large.

    A producer's batches outside of transactions open none, end none, and so change nothing here.
    """
    found = []
    for position in scanned.producer_positions:
        header, batch = read_producer_batch(file, position)
        marker = None
        if header.is_control:
            try:
                marker = end_txn_marker(header, batch, file.path)
            except CorruptDataError as error:
                logger.warning("%s: it ends no transaction", error)
        if header.is_control or header.is_transactional:
            found.append(ProducerBatch(header, marker))
    return found


def aborted_by(batches: Iterable[ProducerBatch], state: ProducerState) -> list[AbortedTxn]:
    """Bring the state over a segment's batches; return the transactions that were aborted in it."""
    before = len(state.aborted)
    for header, marker in batches:
        state.apply(header, marker)
    return state.aborted[before:]
