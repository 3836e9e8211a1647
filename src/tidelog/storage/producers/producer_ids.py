"""Producer ids for the idempotent and transactional producers of one data folder (KIP-98, KIP-360).

An id must never be handed out twice: a new producer would take over the sequences of an old one, and its records would be
dropped as duplicates. Kafka counts up from 0, and a folder that Kafka has counted in continues from there; in a new one counting
starts at a random place above 2^40, so that a folder that is brought to a Kafka cluster, or beside another one, clashes with
nobody.

Ids are taken by blocks of 1000, as Kafka's brokers take them: a ProducerIdsRecord in the metadata log says where the next one
begins, before the first id of a block is used. What a crash leaves of a block is lost.
"""

from __future__ import annotations

import random

from tidelog.metadata.records import ProducerIdsRecord
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.steps import Steps

BLOCK_SIZE = 1000
LOWEST_ID = 2**40 + 1
"""First id of a new folder: above anything that Kafka's own counting reaches."""
HIGHEST_ID = 2**62 - 1

_NO_BROKER_EPOCH = -1


class ProducerIds:
    """Hands out ids; no two of one folder are the same, whatever happens in between. One thread at a time."""

    def __init__(self, store: MetadataStore, *, rng: random.Random | None = None) -> None:
        """Nothing is written before the first id is asked for. `rng` gives a new folder's place (the system's by default)."""
        self._store = store
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

    def has(self, count: int) -> bool:
        """Whether so many ids can be handed out without waiting for a disk."""
        return self._end - self._next >= count

    def reserving(self, count: int) -> Steps[None]:
        """Ensure that so many can. Raises StorageError. What is left of a smaller block is never handed out."""
        if not self.has(count):
            start, end, record = self._block()
            yield self._store.append([record])
            self._next, self._end = start, end

    def _reserve(self) -> None:
        start, end, record = self._block()
        self._store.commit([record])
        self._next, self._end = start, end

    def _block(self) -> tuple[int, int, ProducerIdsRecord]:
        start = self._store.image.next_producer_id
        if start <= 0 or start + BLOCK_SIZE - 1 > HIGHEST_ID:
            start = self._rng.randint(LOWEST_ID, HIGHEST_ID // 2)
        end = start + BLOCK_SIZE
        return start, end, ProducerIdsRecord(self._store.node_id, _NO_BROKER_EPOCH, end)
