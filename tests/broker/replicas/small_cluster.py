"""A few brokers in one process, on one loop, over real sockets, under a controller that is a few lines long.

::

    async with SmallCluster(tmp_path, 3) as cluster:
        await cluster.create_topic("orders", [1, 2, 3])
        answer = await cluster.produce("orders", b"value")

The controller does what Kafka's does with brokers that come and go, and with AlterPartition; it elects from the ISR only.
Each broker's plane gets its records in order, one after the other.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.patience import PATIENCE_S
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.loop.event_loop import LoopThreads, LoopTimers
from tidelog.broker.node import Node
from tidelog.broker.peers.channel import Channel
from tidelog.broker.requests.slices import in_slices
from tidelog.broker.server.broker_server import BrokerServer
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.clock import SystemClock
from tidelog.metadata import records as r
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import MetadataImage
from tidelog.model import TopicPartition
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.folder.meta_properties import MetaProperties, write_meta_properties
from tidelog.storage.member_log_manager import MemberLogManager
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message
from tidelog.wire.messages import produce as wire_produce
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionDataResult,
    TopicDataResult,
)
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

LONG_MS = 600_000
"""Of timeouts that are not to run out."""

CLUSTER_ID = "cluster-of-the-tests--"


class Controller:
    """Writes the metadata, and hands each record to every plane."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.records: list[Message] = []
        self.planes: dict[int, FakePlane] = {}
        self.epochs = 100
        self.alters: list[PartitionData] = []
        """What was asked for."""

    def write(self, record: Message) -> None:
        self.records.append(copy.deepcopy(record))
        self.image.replay(copy.deepcopy(record))
        for plane in self.planes.values():
            plane.incoming.put_nowait(copy.deepcopy(record))

    def register(self, plane: FakePlane, port: int, rack: str | None) -> None:
        """A broker comes: unclean, so it leaves the ISRs that others are in, and is unfenced at once."""
        self.fence(plane.node_id)
        self.epochs += 1
        plane.broker_epoch = self.epochs
        self.write(
            r.RegisterBrokerRecord(
                plane.node_id,
                broker_epoch=self.epochs,
                rack=rack,
                end_points=[r.BrokerEndpoint("PLAINTEXT", "127.0.0.1", port, 0)],
            )
        )
        self.write(r.UnfenceBrokerRecord(plane.node_id, self.epochs))
        for topic in self.image.topics.values():
            for partition in topic.partitions.values():
                if partition.leader == r.NO_LEADER and plane.node_id in partition.isr:
                    self.write(r.PartitionChangeRecord(partition.partition_id, topic.topic_id, leader=plane.node_id))

    def fence(self, broker_id: int) -> None:
        """A broker is dead: others lead, and it leaves the ISRs that others are in."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return
        self.write(r.FenceBrokerRecord(broker_id, broker.broker_epoch))
        for topic in self.image.topics.values():
            for partition in list(topic.partitions.values()):
                if broker_id in partition.isr:
                    isr = [one for one in partition.isr if one != broker_id] or [broker_id]
                    leader = r.NO_LEADER_CHANGE
                    if partition.leader == broker_id:
                        leader = next((one for one in isr if not self.image.brokers[one].fenced), r.NO_LEADER)
                    self.write(r.PartitionChangeRecord(partition.partition_id, topic.topic_id, isr, leader))

    def elect(self, key: TopicPartition, leader: int) -> None:
        topic = self.image.topics[key.topic]
        assert leader in topic.partitions[key.partition].isr
        self.write(r.PartitionChangeRecord(key.partition, topic.topic_id, leader=leader))

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        results = []
        for topic in request.topics:
            done = [self._alter(request.broker_id, topic.topic_id, one) for one in topic.partitions]
            results.append(TopicDataResult("", topic.topic_id, done))
        return AlterPartitionResponse(topics=results)

    def _alter(self, sender: int, topic_id: uuid.UUID, wanted: PartitionData) -> PartitionDataResult:
        self.alters.append(wanted)
        partition = self.image.topics_by_id[topic_id].partitions[wanted.partition_index]
        code = ErrorCode.NONE
        if wanted.leader_epoch < partition.leader_epoch or partition.leader != sender:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif wanted.partition_epoch != partition.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(self._is_ineligible(one.broker_id, one.broker_epoch) for one in wanted.new_isr_with_epochs):
            code = ErrorCode.INELIGIBLE_REPLICA
        if code:
            return PartitionDataResult(wanted.partition_index, code)
        self.write(
            r.PartitionChangeRecord(wanted.partition_index, topic_id, isr=[one.broker_id for one in wanted.new_isr_with_epochs])
        )
        return PartitionDataResult(
            wanted.partition_index, 0, partition.leader, partition.leader_epoch, list(partition.isr), 0, partition.partition_epoch
        )

    def create(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Topics, each partition on all brokers that are alive: each broker leads some."""
        brokers = sorted(one.broker_id for one in self.image.brokers.values() if not one.fenced)
        for topic in request.topics:
            topic_id = uuid.uuid4()
            self.write(r.TopicRecord(topic.name, topic_id))
            for config in topic.configs:
                self.write(r.ConfigRecord(r.TOPIC_RESOURCE, topic.name, config.name, config.value))
            for number in range(topic.num_partitions):
                replicas = [brokers[(number + i) % len(brokers)] for i in range(topic.replication_factor)]
                self.write(
                    r.PartitionRecord(
                        number, topic_id, replicas, list(replicas), leader=replicas[0], leader_epoch=0, partition_epoch=0
                    )
                )
        return CreateTopicsResponse(topics=[CreatableTopicResult(topic.name) for topic in request.topics])

    def producer_ids(self) -> range:
        start = self.image.next_producer_id
        self.write(r.ProducerIdsRecord(-1, -1, start + 10))
        return range(start, start + 10)

    def _is_ineligible(self, broker_id: int, epoch: int) -> bool:
        broker = self.image.brokers[broker_id]
        return broker.fenced or epoch not in (-1, broker.broker_epoch)


class FakePlane:
    """A broker's `MetadataPlane`."""

    def __init__(self, controller: Controller, node_id: int) -> None:
        self.node_id = node_id
        self.broker_epoch = -1
        self.image = MetadataImage()
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.publish: Callable[[MetadataDelta], Awaitable[None]] | None = None
        self.metadata_offset = 0
        self.controller_id: int | None = None
        self.config_writer = None
        self.controller_versions: Mapping[int, tuple[int, int]] | None = None
        self.supported_features: Mapping[str, tuple[int, int]] = {}
        self.can_call = asyncio.Event()
        self.can_call.set()
        self._controller = controller
        self._task: asyncio.Task[None] | None = None

    @property
    def is_fenced(self) -> bool:
        return not self.is_alive(self.node_id)

    def is_alive(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        return self.is_alive(broker_id) and broker_epoch in (-1, self.image.brokers[broker_id].broker_epoch)

    def endpoint(self, broker_id: int, listener_name: str | None = None) -> tuple[str, int] | None:
        if not self.is_alive(broker_id):
            return None
        one = self.image.brokers[broker_id].end_points[0]
        return one.host, one.port

    async def call(self, request: Message, *, timeout_s: float | None = None) -> Any:
        await self.can_call.wait()
        if isinstance(request, CreateTopicsRequest):
            return self._controller.create(request)
        assert isinstance(request, AlterPartitionRequest)
        return self._controller.alter(request)

    async def forward(self, frame: Any, **_: Any) -> bytes:
        raise AssertionError

    async def producer_ids(self) -> range:
        return self._controller.producer_ids()

    def catch_up(self) -> None:
        """Read all that there is, before anybody is interested."""
        for record in self._controller.records:
            self.image.replay(copy.deepcopy(record))
        self._controller.planes[self.node_id] = self

    def start(self, publish: Callable[[MetadataDelta], Awaitable[None]]) -> None:
        self.publish = publish
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        self._controller.planes.pop(self.node_id, None)
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            delta = MetadataDelta(self.image)
            delta.replay(await self.incoming.get())
            while not self.incoming.empty():
                delta.replay(self.incoming.get_nowait())
            assert self.publish is not None
            await self.publish(delta)


class Member:
    """One broker."""

    def __init__(self, controller: Controller, node_id: int, folder: Path, properties: dict[str, Any]) -> None:
        self.controller = controller
        self.node_id = node_id
        self.folder = folder
        self.properties = {
            "process.roles": "broker",
            "node.id": str(node_id),
            "controller.quorum.voters": "99@127.0.0.1:1",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "replica.fetch.wait.max.ms": "50",
            "replica.fetch.backoff.ms": "20",
            **properties,
        }
        if not folder.exists():
            folder.mkdir()
            write_meta_properties(folder, MetaProperties(node_id, CLUSTER_ID, None))
        self.port = 0

    async def start(self) -> Self:
        loop = asyncio.get_running_loop()
        found = sort_properties(self.properties, topic_names=True)
        self.plane = FakePlane(self.controller, self.node_id)
        self.plane.catch_up()
        self.manager = MemberLogManager(self.folder, SystemClock(), properties=found.manager)
        self.manager.startup(self.plane)
        self.threads = [LoopThreads(loop), LoopThreads(loop, 1)]
        self.manager.scheduler.elsewhere = self.threads[0].run
        self.node = Node(self.manager, found.config, SystemClock(), LoopTimers(loop), *self.threads, plane=self.plane)
        self.server = BrokerServer(self.node, APIS)
        await self.server.start()
        self.port = self.server.listeners[0].port
        replicas = self.node.replicas
        assert replicas is not None
        self.node.groups.start()
        self.node.transactions.start()
        everything = MetadataDelta(self.plane.image)
        for topic in self.plane.image.topics.values():
            everything.partitions[topic.topic_id] = set(topic.partitions)
        await self._published(everything)
        self.plane.start(self._published)
        replicas.start()
        self.controller.register(self.plane, self.port, self.node.config.broker_rack)
        return self

    async def _published(self, delta: MetadataDelta) -> None:
        assert self.node.replicas is not None
        await in_slices(self.node.metadata_changed(delta))
        await self.node.replicas.published(delta)

    async def stop(self, *, is_clean: bool = True) -> None:
        assert self.node.replicas is not None
        self.plane.stop()
        await self.node.replicas.stop()
        for connection in tuple(self.server.connections.values()):
            connection.close()
        await self.server.stop(0.1)
        self.node.delays.stop()
        assert self.node.peers is not None
        self.node.peers.close()
        self.manager.scheduler.elsewhere = None
        for threads in self.threads:
            threads.close()
        if is_clean:
            self.manager.shutdown()
        else:
            self.manager.abort()

    def log(self, key: TopicPartition) -> PartitionLog:
        return self.manager.logs[key]


class SmallCluster:
    """Brokers 1 to `count`."""

    def __init__(self, folder: Path, count: int, **properties: Any) -> None:
        named = {name.replace("_", "."): str(value) for name, value in properties.items()}
        self.controller = Controller()
        self._folder = folder
        self._properties = named
        self.members: dict[int, Member] = {}
        self._count = count
        self._channels: dict[int, Channel] = {}

    async def __aenter__(self) -> Self:
        for node_id in range(1, self._count + 1):
            await self.start(node_id)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for channel in self._channels.values():
            channel.close()
        for member in tuple(self.members.values()):
            await member.stop()

    async def start(self, node_id: int, **properties: str) -> Member:
        rack = {"broker.rack": f"rack-{node_id}"}
        member = Member(self.controller, node_id, self._folder / f"broker-{node_id}", {**rack, **self._properties, **properties})
        self.members[node_id] = member
        return await member.start()

    async def kill(self, node_id: int, *, is_noticed: bool = True) -> None:
        """End a broker; if `is_noticed` the controller elects others."""
        channel = self._channels.pop(node_id, None)
        if channel is not None:
            channel.close()
        await self.members.pop(node_id).stop(is_clean=False)
        if is_noticed:
            self.controller.fence(node_id)

    async def create_topic(self, name: str, *assignments: list[int], **settings: str) -> None:
        topic_id = uuid.uuid4()
        self.controller.write(r.TopicRecord(name, topic_id))
        for setting, value in settings.items():
            self.controller.write(r.ConfigRecord(r.TOPIC_RESOURCE, name, setting.replace("_", "."), value))
        for number, replicas in enumerate(assignments):
            self.controller.write(
                r.PartitionRecord(
                    number, topic_id, list(replicas), list(replicas), leader=replicas[0], leader_epoch=0, partition_epoch=0
                )
            )
        for number, replicas in enumerate(assignments):
            key = TopicPartition(name, number)
            await self.until(lambda key=key, leader=replicas[0]: self.leads(leader, key))  # type: ignore[misc]
            await self.until(lambda key=key, there=replicas: all(key in self.members[one].manager.logs for one in there))  # type: ignore[misc]

    # --- asking

    def record(self, key: TopicPartition) -> r.PartitionRecord:
        return self.controller.image.topics[key.topic].partitions[key.partition]

    def leads(self, node_id: int, key: TopicPartition) -> bool:
        return self.members[node_id].node.leadership.epoch_of(key) >= 0

    def leader(self, key: TopicPartition) -> Member:
        return self.members[self.record(key).leader]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.002)

    async def until_isr(self, key: TopicPartition, *broker_ids: int) -> None:
        await self.until(lambda: set(self.record(key).isr) == set(broker_ids))

    async def ask(self, node_id: int, request: Message, version: int | None = None) -> Any:
        member = self.members[node_id]
        channel = self._channels.get(node_id)
        if channel is None:
            channel = self._channels[node_id] = Channel("127.0.0.1", member.port, client_id="test", timeout_s=PATIENCE_S)
        return await channel.call(request, version=version)

    async def produce(
        self,
        key: TopicPartition,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = LONG_MS,
        node_id: int | None = None,
        version: int = 10,
    ) -> wire_produce.ProduceResponse:
        node_id = self.record(key).leader if node_id is None else node_id
        return await self.ask(node_id, produce_request(key, *values, acks=acks, timeout_ms=timeout_ms), version)  # type: ignore[no-any-return]


def produce_request(
    key: TopicPartition, *values: bytes, acks: int = -1, timeout_ms: int = LONG_MS
) -> wire_produce.ProduceRequest:
    batch = build_batch_v2([Record(index, 1_700_000_000_000, 0, None, value) for index, value in enumerate(values)])
    data = wire_produce.PartitionProduceData(key.partition, bytes(batch))
    topic = wire_produce.TopicProduceData(key.topic, partition_data=[data])
    return wire_produce.ProduceRequest(None, acks, timeout_ms, [topic])


def only(response: wire_produce.ProduceResponse) -> wire_produce.PartitionProduceResponse:
    return response.responses[0].partition_responses[0]
