"""One partition's log, written and kept: the offsets, the segments and the state beside them (spec §5, §8).

Under construction: the constructor stands, so that the loader can be written against it.
"""

from __future__ import annotations

import random
import uuid
from pathlib import Path

from tidelog.clock import Clock
from tidelog.config import LogConfig
from tidelog.storage.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.offset_metadata import LoadedLogOffsets
from tidelog.storage.producer_state_manager import ProducerStateManager
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segments import LogSegments


class PartitionLog:
    """Made by `loader.load`, which hands in what it loaded; `segments` holds at least the active one."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        clock: Clock,
        scheduler: Scheduler,
        *,
        segments: LogSegments,
        producer_state: ProducerStateManager,
        leader_epochs: LeaderEpochCache,
        offsets: LoadedLogOffsets,
        topic_id: uuid.UUID | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        """`topic_id` is what the caller takes the topic's id to be; partition.metadata is read here and written lazily.

        `jitter` is where new segments take their part of segment.jitter.ms from. The high watermark starts at the log
        start; whoever has the checkpoint calls `update_high_watermark`. Raises InconsistentTopicIdError.
        """
