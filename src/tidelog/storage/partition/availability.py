"""Whether a log accepts writes: it is online, offline after an I/O error, or closed (spec §5.3).

After an I/O error the state on disk is unknown. Later writes are refused: LogOfflineError, with the reason of the first error.
Acknowledged records can be read if the disk still returns them. To bring the log back, it must be loaded again, with recovery.

Each `PartitionLog` has an `Availability`; the log's parts check it before they write. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from tidelog.errors import LogOfflineError, StorageError
from tidelog.storage.partition.local_log import LocalLog
from tidelog.storage.segment.descriptors import ensure_spare

logger = logging.getLogger("tidelog.storage")


class Availability:
    """Tracks whether the log with the files `local` accepts writes. Calls `went_offline` once, when the log goes offline."""

    def __init__(self, local: LocalLog, went_offline: Callable[[], object]) -> None:
        self.offline_reason: str | None = None
        self._local = local
        self._went_offline = went_offline

    @property
    def is_offline(self) -> bool:
        """Whether an I/O error has ended writing."""
        return self.offline_reason is not None

    @property
    def is_writable(self) -> bool:
        """Whether the log is neither offline nor closed."""
        return self.offline_reason is None and not self._local.is_closed

    def check_writable(self) -> None:
        """Raise LogOfflineError if the log is offline or closed."""
        if self.offline_reason is not None:
            raise self._error()
        self._local.check_open()

    def go_offline(self, what: str, error: BaseException) -> LogOfflineError:
        """Take the log offline because of `error`, and return the error to raise. If the log is offline already, the first reason
        is kept.
        """
        self._local.has_failed = True
        if self.offline_reason is None:
            self.offline_reason = f"{what}: {error}"
            logger.error("%s: offline after an error: %s", self._local.directory, self.offline_reason)
            self._went_offline()
        return self._error()

    @contextlib.contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """A context that refuses writes to an offline or closed log, and takes the log offline after a disk error. `what` names
        the write in the reason.

        A shortage of descriptors does not take the log offline, because such writes are not started. Raises LogOfflineError, and
        StorageError for a shortage, after which the write may be retried.
        """
        self.check_writable()
        try:
            ensure_spare()
        except OSError as error:
            raise StorageError(
                f"{what}: the process has too many open files, retry later: {error}", path=self._local.directory
            ) from error
        try:
            yield
        except LogOfflineError:
            raise
        except OSError as error:
            raise self.go_offline(what, error) from error

    def _error(self) -> LogOfflineError:
        return LogOfflineError(f"the partition is offline: {self.offline_reason}", path=self._local.directory)
