"""Producer ids for the idempotent and transactional producers of one data folder (KIP-98, KIP-360).

An id must never be used twice: otherwise a new producer would continue the sequences of an old one, and its records would be
dropped as duplicates. Kafka counts from 0; in a folder that Kafka has used, ids continue from Kafka's. A new folder starts at a
random number above 2^40, so that its ids do not collide if the folder is moved into a Kafka cluster, or merged with another
folder.

Ids are reserved in blocks of 1000, as in Kafka's brokers: a ProducerIdsRecord in the metadata log stores the start of the next
block before the first id of a block is used. After a crash the rest of a block is lost.
"""

from __future__ import annotations

import random

from tidelog.metadata.records import ProducerIdsRecord
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.steps import Steps

BLOCK_SIZE = 1000
LOWEST_ID = 2**40 + 1
"""The lowest first id of a new folder: above any number that Kafka's counting reaches."""
HIGHEST_ID = 2**62 - 1

_NO_BROKER_EPOCH = -1


class ProducerIds:
    """Allocates producer ids. Each id is returned only once per folder, even after crashes. Not thread-safe."""

    def __init__(self, store: MetadataStore, *, rng: random.Random | None = None) -> None:
        """Nothing is written before the first id is requested. `rng` chooses a new folder's first id; the default is the system's
        generator.
        """
        self._store = store
        self._rng: random.Random = random.SystemRandom() if rng is None else rng
        self._next = 0
        self._end = 0

    def next_id(self) -> int:
        """Return an id that was never returned before. Raises StorageError if that cannot be ensured."""
        if self._next == self._end:
            self._reserve()
        producer_id = self._next
        self._next += 1
        return producer_id

    def has(self, count: int) -> bool:
        """Whether this many ids are available without waiting for the disk."""
        return self._end - self._next >= count

    def reserving(self, count: int) -> Steps[None]:
        """Ensure that this many ids are available. If the current block has fewer, its remaining ids are not used. Raises
        StorageError.
        """
        if not self.has(count):
            start, end, record = self._block()
            yield self._store.append([record])
            self._next, self._end = start, end

    def keep_clear(self) -> None:
        """Allocate ids from a range that Kafka's own allocation never reaches. Call this after records were copied into the
        folder: their producer ids were allocated elsewhere.

        Raises StorageError.
        """
        if self._store.image.next_producer_id < LOWEST_ID:
            self._next = self._end = 0
            start = self._rng.randint(LOWEST_ID, HIGHEST_ID // 2)
            self._store.commit([ProducerIdsRecord(self._store.node_id, _NO_BROKER_EPOCH, start)])

    def block_for(self, broker_id: int, broker_epoch: int) -> Steps[range]:
        """Reserve a block of ids for another broker (KIP-730). Raises StorageError."""
        start, end, record = self._block()
        record.broker_id, record.broker_epoch = broker_id, broker_epoch
        yield self._store.append([record])
        return range(start, end)

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
