"""A metadata plane without controllers: an image that the test fills, and answers to forwarded requests that it gives.

`members` starts brokers with one, each on a folder of its own: as in a cluster, but for the replicas, which `LogManager` has.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker
from tidelog.broker.serving_broker import running
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.records import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord
from tidelog.storage.log_manager import LogManager
from tidelog.wire.fields import Bytes, Message

Forwarded = tuple[bytes, str]


class FakePlane:
    """`MetadataPlane` of broker 1. `answer` is called with each forwarded frame, and returns the response's or raises."""

    def __init__(self) -> None:
        self.node_id = 1
        self.image = MetadataImage()
        self.broker_epoch = 7
        self.is_fenced = False
        self.metadata_offset = 0
        self.forwarded: list[Forwarded] = []
        self.called: list[Message] = []
        self.answer: Callable[[bytes], Any] = lambda frame: self._never()
        self.answer_call: Callable[[Message], Any] = lambda request: self._never()
        self.controller_id: int | None = None
        self.config_writer = None
        self.controller_versions: Mapping[int, tuple[int, int]] | None = None
        self.supported_features: Mapping[str, tuple[int, int]] = {"metadata.version": (1, 21), "kraft.version": (0, 1)}

    async def _never(self) -> Any:
        await asyncio.get_running_loop().create_future()

    def is_alive(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        return self.is_alive(broker_id)

    def endpoint(self, broker_id: int, listener_name: str | None = None) -> tuple[str, int] | None:
        return None

    async def call(self, request: Message, *, timeout_s: float | None = None) -> Any:
        self.called.append(request)
        return await _awaited(self.answer_call(request))

    async def forward(
        self, frame: Bytes, *, client_host: str, principal: tuple[str, str], timeout_s: float | None = None
    ) -> bytes:
        self.forwarded.append((bytes(frame), client_host))
        answer = await _awaited(self.answer(bytes(frame)))
        assert isinstance(answer, bytes)
        return answer

    async def producer_ids(self) -> range:
        return range(1000, 2000)


async def _awaited(value: Any) -> Any:
    if isinstance(value, BaseException):
        raise value
    return await value if asyncio.iscoroutine(value) or isinstance(value, asyncio.Future) else value


class Member(RunningBroker):
    """A running broker with a `FakePlane`."""

    def __init__(self, *args: Any, **properties: Any) -> None:
        self.plane = FakePlane()
        super().__init__(*args, **properties)

    async def _serve(self) -> None:
        sorted_ones = sort_properties(self.properties, topic_names=True)
        manager = LogManager(self.data_dir, self.clock, properties=sorted_ones.manager)
        manager.startup()
        try:
            async with running(manager, sorted_ones.config, self.clock, apis=self.apis, plane=self.plane) as broker:
                self.running = broker
                self.is_started.set()
                await self._stop.wait()
        finally:
            self.is_clean = manager.shutdown()

    def replay(self, *records: Message) -> MetadataDelta:
        """Let the cluster's metadata change."""

        def replayed() -> MetadataDelta:
            delta = MetadataDelta(self.plane.image)
            for record in records:
                delta.replay(record)
            for _ in self.node.metadata_changed(delta):
                pass
            return delta

        return self.on_loop(replayed)


@pytest.fixture
def member(tmp_path: Any) -> Iterator[Member]:
    """Broker 1 of a cluster that is empty yet."""
    broker = Member(tmp_path / "data")
    yield broker
    broker.stop()


def registered(
    broker_id: int,
    *listeners: str,
    port: int = 9000,
    rack: str | None = None,
    fenced: bool = False,
    log_dirs: tuple[uuid.UUID, ...] = (),
) -> RegisterBrokerRecord:
    """A broker that is in the cluster, with listeners of these names."""
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=uuid.uuid4(),
        broker_epoch=broker_id,
        end_points=[BrokerEndpoint(name, f"host{broker_id}", port, 0) for name in listeners or ("PLAINTEXT",)],
        rack=rack,
        fenced=fenced,
        log_dirs=list(log_dirs),
    )


def topic(name: str, *partitions: tuple[list[int], list[int], int], topic_id: uuid.UUID | None = None) -> list[Message]:
    """A topic's records; each partition is its replicas, its ISR and its leader."""
    topic_id = topic_id or uuid.uuid4()
    return [
        TopicRecord(name, topic_id),
        *(
            PartitionRecord(number, topic_id, replicas, isr, leader=leader, leader_epoch=5, partition_epoch=9)
            for number, (replicas, isr, leader) in enumerate(partitions)
        ),
    ]
