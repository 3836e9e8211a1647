"""Compares ``__remote_log_metadata`` with the remote segments' files in remote storage (KIP-405).

| segment | finding |
|---|---|
| copied, not being deleted | a fault if a file is missing or cannot be opened, or if its size differs from the metadata |
| copied, but its leader epochs differ from the log's from some offset on | a note: it is not read from that offset on |
| its copy was begun and not finished | a note: the segment is not read |
| being deleted, deleted | none |

Offsets that are neither local nor remote are missing. The batches of remote segments are not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidelog.check.finding import Finding, fault, note
from tidelog.errors import StorageError, TidelogError
from tidelog.formats import names
from tidelog.metadata.remote_log_records import SegmentState
from tidelog.reader.tiered.lineage import agreed_end
from tidelog.reader.tiered.remote_segments import RemoteSegment, TopicIdPartition
from tidelog.reader.tiered.tiered_log_dir import TieredLogDir
from tidelog.reader.tiered.tiered_path import TieredPath

_FILES = (
    *(names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.SNAPSHOT_SUFFIX),
    names.LEADER_EPOCH_CHECKPOINT,
)
"""The files that every copied segment has. Only segments with aborted transactions have a ``.txnindex``, too."""


def verify_remote(log_dir: TieredLogDir, topics: Collection[str]) -> list[Finding]:
    """Return the findings about the remote segments of `topics`, or of all topics if `topics` is empty. Raises the errors
    of reading folders.
    """
    found: list[Finding] = []
    for partition in sorted(log_dir.remote.partitions):
        key = partition.key
        if (topics and key.topic not in topics) or log_dir.partition_id(key) != partition:
            continue
        for segment in log_dir.remote.partitions[partition].values():
            if segment.state is SegmentState.COPY_SEGMENT_STARTED:
                found.append(
                    note(
                        log_dir.layout.path(segment),
                        f"{segment}: the copy to remote storage was not finished, so the segment is not read",
                        *key,
                    )
                )
            elif segment.state is SegmentState.COPY_SEGMENT_FINISHED:
                found += _verify(log_dir, segment)
        try:
            found += _read(log_dir, partition)
        except TidelogError as error:
            if not any(one.is_fault and (one.topic, one.partition) == key for one in found):  # It is not yet reported.
                found.append(Finding.of_error(error, log_dir.path, *key))
    return found


def _read(log_dir: TieredLogDir, partition: TopicIdPartition) -> list[Finding]:
    """Return the missing offsets, and a note for each segment that is read only in part or not at all."""
    key = partition.key
    with log_dir.log(*key) as log:
        missing = [one for one in log_dir.missing_of(log) if one.kind in ("head", "segment")]
        found = [Finding.of_missing(one, log.directory) for one in missing]
        if isinstance(log.directory, TieredPath):
            for segment in log_dir.remote.readable(partition):
                since = agreed_end(segment, log.directory.folder.epochs)
                if since <= segment.end_offset:
                    what = (
                        f"{segment}: not read from offset {since} on: a different leader wrote the records, or they were deleted"
                    )
                    found.append(note(log_dir.layout.path(segment), what, *key))
    return found


def _verify(log_dir: TieredLogDir, segment: RemoteSegment) -> Iterator[Finding]:
    path, key = log_dir.layout.path(segment), segment.partition.key
    for suffix in _FILES:
        try:
            handle = log_dir.layout.open(segment, suffix)
        except FileNotFoundError:
            yield fault(path, f"{segment}: the {suffix} file is missing in remote storage", *key)
            continue
        except OSError as error:
            cause = (
                error
                if isinstance(error, TidelogError)
                else StorageError(f"cannot read a remote file: {error.strerror}", path=path)
            )
            yield Finding.of_error(cause, path, *key)
            continue
        except TidelogError as error:
            yield Finding.of_error(error, path, *key)
            continue
        size = handle.stat().st_size
        handle.close()
        if suffix == names.LOG_SUFFIX and size != segment.size_bytes:
            what = f"{segment}: the size in remote storage differs from the metadata"
            yield fault(path, what, *key)._replace(found=str(size), expected=str(segment.size_bytes))
