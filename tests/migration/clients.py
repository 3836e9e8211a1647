"""Producers and consumers that go on while brokers change: each speaks one version, as clients of a release did.

They say of each record when it came and with which time; Kafka's own clients run beside them (`java_clients`).
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from time import sleep

from tests.broker.produce_helpers import answer, message_set, produce_request
from tests.broker.raw import RawClient
from tests.kafka.old_wire import FETCH, MAX_BYTES, PRODUCE, records_of
from tests.patience import PATIENCE_S
from tidelog.clock import SystemClock
from tidelog.records.batch import CREATE_TIME
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

Place = tuple[int, int]
"""Partition and offset."""

RELEASES = {0: "0.9.0", 1: "0.10.0", 2: "0.11.0"}
"""By the newest message format that it knows."""

PAUSE_S = 0.03
REQUEST_TIMEOUT_MS = 10_000


class Client:
    """Does one thing with each partition in turn, on a thread of its own, until it is closed. `where` is a leader's port."""

    def __init__(self, name: str, topic: str, partitions: int, where: Callable[[int], int]) -> None:
        self.name = name
        self.topic = topic
        self.error: BaseException | None = None
        """What has ended it."""
        self._partitions = partitions
        self._where = where
        self._ports: dict[int, int] = {}
        self._connections: dict[int, RawClient] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    @abstractmethod
    def step(self, partition: int) -> ErrorCode | int:
        """Do it once; an error has the leader looked for again."""

    def ask(self, partition: int) -> RawClient:
        """Return a connection to the leader, as it was known last."""
        port = self._ports.get(partition)
        if port is None:
            port = self._ports[partition] = self._where(partition)
        if port not in self._connections:
            self._connections[port] = RawClient(("127.0.0.1", port), client_id=self.name, timeout_s=2 * REQUEST_TIMEOUT_MS / 1000)
        return self._connections[port]

    def stop(self) -> None:
        """Have it end soon. Idempotent."""
        self._is_over.set()

    def close(self) -> None:
        """End it, and wait until all that it has begun is answered."""
        self.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                for partition in range(self._partitions):
                    if not self._done(partition):
                        sleep(PAUSE_S)
                sleep(PAUSE_S)
        except BaseException as error:
            self.error = error
        finally:
            for connection in self._connections.values():
                connection.close()

    def _done(self, partition: int) -> bool:
        try:
            is_done = not self.step(partition)
        except OSError:
            connection = self._connections.pop(self._ports.get(partition, -1), None)
            if connection is not None:
                connection.close()
            is_done = False
        if not is_done:
            self._ports.pop(partition, None)
        return is_done


class Writer(Client):
    """A producer with acks=all that sends a batch again as often as it takes: twice is allowed, lost is not."""

    def __init__(
        self, magic: int, topic: str, partitions: int, where: Callable[[int], int], *, codec: Codec = Codec.NONE, size: int = 20
    ) -> None:
        self.acknowledged: dict[Place, bytes] = {}
        self._magic = magic
        self._codec = codec
        self._size = size
        self._number = 0
        self._unsent: dict[int, list[bytes]] = {}
        self._clock = SystemClock()
        super().__init__(f"producer of {RELEASES[magic]}", topic, partitions, where)

    def step(self, partition: int) -> int:
        """Append a batch."""
        values = self._unsent.get(partition)
        if values is None:
            values = self._unsent[partition] = [f"{self.name} {self._number + i}".encode().ljust(self._size) for i in range(3)]
            self._number += 3
        at_ms = self._clock.now_ms()
        records = [Record(i, at_ms, CREATE_TIME, None, value) for i, value in enumerate(values)]
        request = produce_request([(self.topic, partition, message_set(self._magic, self._codec, records))])
        request.timeout_ms = REQUEST_TIMEOUT_MS
        got = answer(self.ask(partition).ask(request, PRODUCE[self._magic]))
        if not got.error_code:
            for i, value in enumerate(values):
                self.acknowledged[partition, got.base_offset + i] = value
            del self._unsent[partition]
        return got.error_code

    def counts(self) -> list[int]:
        """Return how many records of each partition are acknowledged."""
        counts = [0] * self._partitions
        for partition, _ in list(self.acknowledged):
            counts[partition] += 1
        return counts


class Reader(Client):
    """A consumer that reads all from the beginning."""

    def __init__(self, magic: int, topic: str, partitions: int, where: Callable[[int], int]) -> None:
        self.read: dict[Place, bytes] = {}
        self.times: dict[Place, int] = {}
        self.wrong: list[str] = []
        self.next = [0] * partitions
        self._magic = magic
        super().__init__(f"consumer of {RELEASES[magic]}", topic, partitions, where)

    def step(self, partition: int) -> int:
        """Read on."""
        offset = self.next[partition]
        wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
        request = FetchRequest(max_wait_ms=50, min_bytes=1, topics=[FetchTopic(self.topic, partitions=[wanted])])
        (got,) = self.ask(partition).ask(request, FETCH[self._magic]).responses[0].partitions
        if got.error_code:
            return int(got.error_code)
        for record in records_of(bytes(got.records or b"")):
            if record.offset < offset:
                continue
            if record.offset != self.next[partition]:
                self.wrong.append(f"{partition}: offset {record.offset} comes where {self.next[partition]} was to come")
            self.next[partition] = record.offset + 1
            self.read[partition, record.offset] = record.value or b""
            self.times[partition, record.offset] = record.timestamp
        return 0
