"""Names of a log's files and folders (spec §1).

======================================  ==============================================================
``<topic>-<partition>/``                one partition; the partition is after the last ``-``
``%020d.log .index .timeindex``         a segment, named by its base offset
``%020d.txnindex``                      aborted transactions of a segment, if there are any
``%020d.snapshot``                      producer state; the name is the next offset to be applied
``%020d.timemap``                       Tidelog's own: times of a segment, block by block; Kafka ignores it
``segments.summary``                    Tidelog's own: the facts that a search needs about each segment
``….deleted``                           awaiting removal (renamed at once, removed a minute later)
``….cleaned`` ``….swap``                the cleaner's output: unfinished; finished but not yet in place
``<topic>.<uuid>-delete -stray -future``  a partition folder that is being deleted, unclaimed, or being moved here
======================================  ==============================================================

These are plain functions on text. None of them uses a file.
"""

from __future__ import annotations

import re
import uuid
from functools import lru_cache

from tidelog.errors import CorruptDataError, InvalidArgumentError
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import MAX_OFFSET, TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
TIME_MAP_SUFFIX = ".timemap"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

DELETE_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"

SEGMENT_SUMMARY = "segments.summary"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

MAX_NAME_LENGTH = 255
_SUFFIXED_DIR = re.compile(r"^(\S+)-(\S+)\.(\S+)(-delete|-stray|-future)$")
_OFFSET = re.compile(r"[+-]?[0-9]+")
_DIGITS = 20
_LOG_FILE = re.compile(r"[0-9]+\.log(\.swap)?", re.ASCII)


def file_name(offset: int, suffix: str) -> str:
    """Return the name of a segment's file, `offset` padded to 20 digits."""
    return f"{offset:020d}{suffix}"


def offset_from_file_name(name: str) -> int:
    """Return the offset at the start of a file name, before its first dot.

    Raises InvalidArgumentError if the text there is not an int64.
    """
    text = name.split(".", 1)[0]
    if len(text) == _DIGITS and text[0] == "0" and text.isdecimal() and text.isascii():
        return int(text)
    if not _OFFSET.fullmatch(text) or not -MAX_OFFSET - 1 <= int(text) <= MAX_OFFSET:
        raise InvalidArgumentError("the file name has no offset", found=repr(name), expected="digits before the first dot")
    return int(text)


def base_offset_of_log(path: FilePath, ending: str = LOG_SUFFIX) -> int:
    """Return the base offset in the name of a segment's file. `ending` is what follows the offset.

    Raises CorruptDataError for a name that Kafka does not write. Kafka pads to 20 digits and always opens the padded name. Only
    some programs would read a file with a different name, and a segment with the padded name may exist next to it.
    """
    if is_padded(path.name, ending):
        return int(path.name.removesuffix(ending))
    expected = f"an offset of {_DIGITS} digits before {ending!r}"
    raise CorruptDataError("the file name is not that of a segment", path=path, found=path.name, expected=expected)


def is_padded(name: str, ending: str = LOG_SUFFIX) -> bool:
    """Return whether the text before `ending` is an offset of 20 digits."""
    text = name.removesuffix(ending)
    return len(text) == _DIGITS and text.isascii() and text.isdigit() and int(text) <= MAX_OFFSET


def is_log_file(name: str) -> bool:
    """Return whether a file has a segment's name, which consists of digits. `server.log` and `controller.log` are not segments.

    Names with a different number of digits also count: they are damaged, and `base_offset_of_log` reports them.
    """
    return _LOG_FILE.fullmatch(name) is not None


def is_suffixed_dir(name: str) -> bool:
    """Return whether a folder's name ends with ``-delete``, ``-stray`` or ``-future``."""
    return name.endswith((DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, FUTURE_DIR_SUFFIX))


@lru_cache(maxsize=8192)  # Called several times for each of thousands of folders at startup.
def parse_topic_partition_name(name: str | None) -> TopicPartition:
    """Return the topic and partition in the name of a partition's folder.

    The part after the last dot of a ``-delete``, ``-stray`` or ``-future`` folder is removed first. Raises
    InvalidArgumentError for an empty name, one without ``-``, an empty topic, or a partition that is not a number.
    """
    if not name or "-" not in name:
        raise _bad_dir_name(name)
    text = name
    if is_suffixed_dir(name):
        if not _SUFFIXED_DIR.match(name):
            raise _bad_dir_name(name)
        text = name[: name.rindex(".")]
    topic, _, partition = text.rpartition("-")
    # int() would accept underscores, blanks and digits of other scripts, which Kafka never writes.
    if not topic or not re.fullmatch(r"[0-9]{1,10}", partition) or int(partition) > 2**31 - 1:
        raise _bad_dir_name(name)
    return TopicPartition(topic, int(partition))


def log_dir_name(topic: str, partition: int) -> str:
    """Return the folder name of a partition."""
    return f"{topic}-{partition}"


def log_delete_dir_name(topic: str, partition: int, *, mark: str = "") -> str:
    """Return a new name for a folder that is to be deleted, at most 255 characters (the topic is shortened).

    An id of 32 hexadecimal digits stands before the ending ``-delete``; `mark` is the beginning of that id.
    """
    return _capped_dir_name(topic, partition, DELETE_DIR_SUFFIX, mark)


def log_stray_dir_name(topic: str, partition: int) -> str:
    """Return a new name for a folder that no controller claims, at most 255 characters."""
    return _capped_dir_name(topic, partition, STRAY_DIR_SUFFIX)


def _capped_dir_name(topic: str, partition: int, suffix: str, mark: str = "") -> str:
    tail = f"-{partition}.{mark}{uuid.uuid4().hex[len(mark) :]}{suffix}"
    return topic[: MAX_NAME_LENGTH - len(tail)] + tail


def _bad_dir_name(name: str | None) -> InvalidArgumentError:
    return InvalidArgumentError("the name is not that of a partition's folder", found=repr(name), expected="<topic>-<partition>")
