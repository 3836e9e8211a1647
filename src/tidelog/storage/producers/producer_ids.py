"""Producer ids for the idempotent and transactional producers of one data folder (KIP-98, KIP-360).

An id must never be handed out twice: a new producer would take over the sequences of an old one, and its records would be
dropped as duplicates. Kafka counts up from 0; here counting starts at a random place above 2^40, so that a folder that is
brought to a Kafka cluster, or beside another one, clashes with nobody.

``tidelog-producer-ids.json``, replaced atomically::

    {"version": 1, "next": 2305843009213694000}

`next` is above every id that was handed out. It is moved on by a block of 1000 before the first id of the block is used;
what a crash leaves of a block is lost. Without a sound file counting starts at a new random place.
"""

from __future__ import annotations

import contextlib
import logging
import random
from pathlib import Path

from tidelog.errors import CorruptCheckpointError
from tidelog.log.json_files import read_json, write_json

logger = logging.getLogger("tidelog.storage")

PRODUCER_IDS_FILE = "tidelog-producer-ids.json"
VERSION = 1
BLOCK_SIZE = 1000
LOWEST_ID = 2**40 + 1
"""First id that may be handed out: above anything that Kafka's own counting reaches."""
HIGHEST_ID = 2**62 - 1


class ProducerIds:
    """Hands out ids; no two of one folder are the same, whatever happens in between. One thread at a time."""

    def __init__(self, directory: Path, *, rng: random.Random | None = None) -> None:
        """Keep the file in the data folder `directory`; nothing is read or written before the first id is asked for.

        `rng` gives the first block's place (the system's random source by default).
        """
        self.path = directory / PRODUCER_IDS_FILE
        self._rng: random.Random = random.SystemRandom() if rng is None else rng
        self._next = 0
        self._end = 0

    def next_id(self) -> int:
        """Return an id that was never handed out. Raises StorageError if that cannot be made sure of."""
        if self._next == self._end:
            self._reserve()
        producer_id = self._next
        self._next += 1
        return producer_id

    def _reserve(self) -> None:
        start = self._read() if self._end == 0 else self._end
        if start is None or start + BLOCK_SIZE - 1 > HIGHEST_ID:
            start = self._rng.randint(LOWEST_ID, HIGHEST_ID // 2)
        end = start + BLOCK_SIZE
        write_json(self.path, VERSION, {"next": end}, indent=None)
        self._next, self._end = start, end

    def _read(self) -> int | None:
        """Return where the last reserved block ended, None if nobody knows."""
        following: object = None
        with contextlib.suppress(CorruptCheckpointError):
            content = read_json(self.path, VERSION, "the producer ids")
            if content is None:
                return None
            following = content.get("next")
        if isinstance(following, bool) or not isinstance(following, int) or not LOWEST_ID <= following <= HIGHEST_ID + 1:
            logger.warning("%s: no producer ids in it: they start at a new random place", self.path)
            return None
        return following
