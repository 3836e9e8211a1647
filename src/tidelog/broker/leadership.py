"""The epoch in which this broker leads its partitions (KIP-101, KIP-320): one number for all of them.

A leader's epoch tells followers and consumers whether the log that they know may have been cut since. Kafka's controller counts
them for each partition. Here one broker leads everything, so one number will do, as long as it never goes back:

| start | the epoch is the largest of |
|---|---|
| clean | what the file says; the newest epoch that any log knows |
| unclean, with logs that hold something | the same, and one more: records behind the recovery point may be gone |

A partition that comes back from being offline without records that were acknowledged makes it one more as well.

``tidelog-leader-epoch.json``, replaced atomically; without it the number is 0::

    {"version": 1, "leader_epoch": 3}

In Kafka a leader notes its epoch in each log as soon as it leads it, at the log's end. Here a log notes it with the first append,
so that a start writes nothing; answers about epochs (`end_offset_for_epoch`, `epoch_at_start`) are as they are after such a note.

It is written before the first request is answered, and only when the number changes: a folder that was never left uncleanly,
and has no epochs from elsewhere, has no such file. A log's own epochs are not enough to tell: they go with its last record.
"""

from __future__ import annotations

import contextlib
import logging

from tidelog.config import INT32_MAX
from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.log.json_files import read_json, write_json
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog

logger = logging.getLogger("tidelog.broker")

LEADER_EPOCH_FILE = "tidelog-leader-epoch.json"
VERSION = 1


class Leadership:
    """See the module. `epoch` is what goes into batches, metadata and answers."""

    def __init__(self, manager: LogManager) -> None:
        """Begin to lead the logs of a manager that has started. Raises StorageError."""
        self.path = manager.directory / LEADER_EPOCH_FILE
        written = self._read()
        for log in manager.logs.values():
            # Nobody else has to have the records: where a checkpoint is behind, all that is there counts.
            log.update_high_watermark(log.log_end_offset_metadata)
        known = [log.leader_epochs.latest_epoch for log in manager.logs.values()]
        epoch = max([written, *(epoch for epoch in known if epoch is not None)])
        if not manager.had_clean_shutdown and any(log.log_end_offset > 0 for log in manager.logs.values()):
            epoch = min(epoch + 1, INT32_MAX)
        if epoch != written:
            write_json(self.path, VERSION, {"leader_epoch": epoch}, indent=None)
        self.epoch = epoch
        manager.offline.returned = self._on_return

    def end_offset_for_epoch(self, log: PartitionLog, epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) of a log's last epoch at or below `epoch`, None if that is not known (spec §14)."""
        if epoch < 0 or log.config.magic < 2:
            return None
        latest = log.leader_epochs.latest
        if latest is None:
            return (epoch, log.log_end_offset) if epoch <= self.epoch else None
        if latest.epoch < epoch <= self.epoch:
            # Between the two nothing was written.
            return (epoch if epoch == self.epoch else latest.epoch), log.log_end_offset
        return log.end_offset_for_epoch(epoch)

    def epoch_at_start(self, log: PartitionLog, known: int) -> int:
        """Return the epoch that the log start is in; `known` is what the log knows, -1 if it does not."""
        if known < 0 and log.config.magic > 1 and log.leader_epochs.latest is None and log.log_end_offset <= log.log_start_offset:
            return self.epoch
        return known

    def _on_return(self, log: PartitionLog, has_lost: bool) -> None:
        """Lead a partition that was offline again; a new epoch tells consumers where its disk has lost its end."""
        log.update_high_watermark(log.log_end_offset_metadata)
        if has_lost and self.epoch < INT32_MAX:
            self.epoch += 1
            try:
                write_json(self.path, VERSION, {"leader_epoch": self.epoch}, indent=None)
            except StorageError as error:
                logger.error("%s", error)

    def _read(self) -> int:
        epoch: object = None
        with contextlib.suppress(CorruptCheckpointError):
            content = read_json(self.path, VERSION, "the leader epoch")
            if content is None:
                return 0
            epoch = content.get("leader_epoch")
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= INT32_MAX:
            logger.warning("%s: no leader epoch in it: the newest that a log knows is taken", self.path)
            return 0
        return epoch
