"""Creates and connects the parts that get metadata in a ZooKeeper cluster and send requests to the controller.

| what | source |
|---|---|
| brokers, leaders, in-sync replicas | the controller's requests so far (`controller_requests`) |
| properties | ZooKeeper (`configs`); the broker that gets a change request writes it there (`config_writer`) |
| ISR changes | the controller, since inter-broker protocol 2.7; the partition's znode before |
| producer ids | ``/latest_producer_id_block``, as in Kafka's brokers and controllers |
| requests for the controller | the broker in ``/controller`` |
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from tidelog.broker.cluster.zookeeper.config_writer import ZookeeperConfigWriter
from tidelog.broker.cluster.zookeeper.configs import Configs
from tidelog.broker.cluster.zookeeper.controller_link import ControllerLink
from tidelog.broker.cluster.zookeeper.controller_requests import ControllerRequests
from tidelog.broker.cluster.zookeeper.isr_znodes import IsrZnodes
from tidelog.broker.cluster.zookeeper.session import RETRY_S, Session, Znode, ZookeeperError
from tidelog.broker.cluster.zookeeper.znode_values import (
    IDS,
    assignment_of,
    broker_znode,
    cluster_id_of,
    parsed,
)
from tidelog.broker.loop.owned_tasks import OwnedTasks
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.node import Node
from tidelog.broker.peers.channel import Channel
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.settings.cluster_config import ClusterConfig
from tidelog.broker.settings.zookeeper_config import ZookeeperConfig
from tidelog.clock import Clock
from tidelog.errors import BrokerUnreachableError, InvalidArgumentError, TidelogError, UnsupportedVersionError
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.metadata.assumed_topic_id import AssumedTopicId, known_topic_id
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.records import PartitionRecord, TopicRecord
from tidelog.security.access import Access
from tidelog.wire.fields import Bytes, Message
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

logger = logging.getLogger("tidelog.broker")

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
PRODUCER_IDS = "/latest_producer_id_block"

PRODUCER_ID_BLOCK = 1000

_FIRST_BY_ID = 2
"""The first version of AlterPartition that identifies topics by id only."""


class ZookeeperPlane:
    """Implements `MetadataPlane` in a ZooKeeper cluster. Use only on the event loop's thread."""

    def __init__(self, config: ClusterConfig, *, listeners: tuple[Listener, ...], rack: str | None, clock: Clock) -> None:
        assert config.zookeeper is not None
        self.node_id = config.node_id
        self.image = MetadataImage()
        self.broker_epoch = -1
        self.is_fenced = True
        """Whether the broker has no session and thus no registration."""
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes with the error after which the broker cannot continue."""
        self.tasks = OwnedTasks()
        self.cluster_id = ""
        self._config = config
        self._zookeeper: ZookeeperConfig = config.zookeeper
        self._listeners = listeners
        self._rack = rack
        self._clock = clock
        self._offset = 0
        self._named_controller = -1
        self._log = RetryLog(logger)
        self._session = Session(
            self._zookeeper.connect, self._zookeeper.session_timeout_ms / 1000, self._has_new_session, self._has_lost_session
        )
        self.requests = ControllerRequests(
            self.image, config.inter_broker_listener_name, lambda: self.broker_epoch, self._learn_topics
        )
        self._configs = Configs(self._session, self.image, self._publish_configs)
        self.config_writer = ZookeeperConfigWriter(self._session, self._zookeeper.protocol, self._configs.learn)
        self._isr = IsrZnodes(
            self._session, self.node_id, lambda key: self.requests.controller_epochs.get(key, self.requests.controller_epoch)
        )
        # Brokers before 0.10.0 do not know ApiVersions.
        knows_versions = self._zookeeper.protocol.is_at_least("0.10.0")
        timeout_s = config.request_timeout_ms / 1000
        connect = partial(
            Channel,
            client_id=str(self.node_id),
            timeout_s=timeout_s,
            versions=None if knows_versions else {ControlledShutdownRequest.API_KEY: (0, 1)},
            access=Access(config.inter_broker_access),
            connect_timeouts_s=config.connect_timeouts_s,
        )
        self._controller, self._forwards = (ControllerLink(self._where_controller, connect, timeout_s) for _ in range(2))

    # --- start and stop

    async def connect(self) -> None:
        """Open a session and read the cluster id. Raises BrokerUnreachableError, and ZookeeperError for a malformed znode."""
        timeout_s = self._zookeeper.connection_timeout_ms / 1000
        servers = self._session.servers
        await self._session.start(
            timeout_s,
            lambda: self._wait(f"no server of ZooKeeper ({servers}) answers yet; giving up after {timeout_s:g} s"),
        )
        await self._session.create("/brokers/ids", b"")
        while True:
            znode = await self._session.get(CLUSTER_ID)
            if znode is not None:
                self.cluster_id = parsed(CLUSTER_ID, znode.data, cluster_id_of)
                return
            fresh = json.dumps({"version": "1", "id": format_topic_id(uuid.uuid4())})
            await self._session.create(CLUSTER_ID, fresh.encode())

    async def load(self, topics: Collection[str]) -> None:
        """Read all properties, and the local replicas of these topics from their assignments. Raises what `connect` raises."""
        await self._configs.load()
        delta = MetadataDelta(self.image)
        paths = [f"/brokers/topics/{name}" for name in topics]
        found = await asyncio.gather(*(self._session.get(path) for path in paths))
        for name, path, znode in zip(topics, paths, found, strict=True):
            if znode is not None:
                assignment = parsed(path, znode.data, assignment_of)
                topic_id = assignment.topic_id or AssumedTopicId.new()
                delta.replay(TopicRecord(name, topic_id))
                for number, replicas in assignment.replicas.items():
                    delta.replay(PartitionRecord(number, topic_id, replicas))

    async def begin(self, node: Node) -> None:
        """Register, wait until the controller has sent the brokers and partitions, then follow changes."""
        self.requests.node = node
        self.tasks.begin(self._session.follow(CONTROLLER, self._controller_changed), "tidelog-controller-znode")
        self.tasks.begin(self._configs.follow(), "tidelog-configs")
        await self._register()
        while not self.requests.has_metadata.done():
            who = self._named_controller
            self._wait(
                "the cluster has no active controller; only a broker of Apache Kafka can become the controller"
                if who < 0
                else f"broker {who} is the controller, but has not sent the brokers and partitions yet"
            )
            await asyncio.wait({self.requests.has_metadata, self.failure}, timeout=RETRY_S, return_when="FIRST_COMPLETED")
            if self.failure.done():
                self.failure.result()
        self._move("RUNNING")

    async def shut_down_controlled(self) -> bool:
        """Ask the controller to move leadership to other brokers. Return whether this broker then leads no partition."""
        self._move("PENDING_CONTROLLED_SHUTDOWN")
        protocol = self._zookeeper.protocol
        request = ControlledShutdownRequest(self.node_id, self.broker_epoch)
        for attempt in range(self._zookeeper.controlled_shutdown_max_retries + 1):
            if attempt:
                await asyncio.sleep(self._zookeeper.controlled_shutdown_retry_backoff_ms / 1000)
            try:
                answer: ControlledShutdownResponse = await self._controller.call(
                    request, version=protocol.controlled_shutdown, timeout_s=self._config.controller_socket_timeout_ms / 1000
                )
            except TidelogError as error:
                logger.warning("the controlled shutdown failed: %s", error)
                continue
            left = answer.remaining_partitions
            if not answer.error_code and not left:
                return True
            logger.warning(
                "the controlled shutdown is incomplete (error %d); this broker still leads %d partitions",
                answer.error_code,
                len(left),
            )
        return False

    async def stop(self) -> None:
        """Stop all tasks and close the session. Idempotent."""
        self.tasks.cancel()
        self._controller.close()
        self._forwards.close()
        await self._session.close()
        self.is_fenced = True
        if not self.failure.done():
            self.failure.cancel()

    # --- registration

    async def _register(self) -> None:
        """Create the broker's znode; wait while another session owns one with this id."""
        path = f"{IDS}/{self.node_id}"
        version = self._zookeeper.protocol.registration
        while True:
            data = broker_znode(version, self._listeners, self._rack, self._clock.now_ms())
            try:
                await self._session.create(path, data, is_ephemeral=True)
                znode = await self._session.get(path)
            except BrokerUnreachableError as error:
                self._wait(str(error))
                await asyncio.sleep(RETRY_S)
                continue
            if znode is not None and znode.owner == self._session.session_id:
                break
            if znode is not None:
                self._wait(f"another broker with broker.id={self.node_id} is running, or its session has not expired yet")
            await asyncio.sleep(RETRY_S)
        self.broker_epoch = znode.czxid
        self.is_fenced = False
        self._offset += 1
        logger.info("registered as broker %d, epoch %d, protocol %s", self.node_id, self.broker_epoch, self._zookeeper.protocol)

    def _has_lost_session(self) -> None:
        self.is_fenced = True

    def _has_new_session(self) -> None:
        self.tasks.begin(self._return(), "tidelog-registration")

    async def _return(self) -> None:
        await self._register()
        while True:
            with contextlib.suppress(BrokerUnreachableError):
                await self._configs.load()
                return
            await asyncio.sleep(RETRY_S)

    # --- what is heard

    def _controller_changed(self, znode: Znode | None) -> None:
        try:
            controller = -1 if znode is None else parsed(CONTROLLER, znode.data, lambda value: int(value["brokerid"]))
        except ZookeeperError as error:
            self._log.failed("%s", error)
            controller = -1
        if controller != self._named_controller:
            logger.info("the controller is %s", "unknown" if controller < 0 else f"broker {controller}")
            self._named_controller = controller

    async def _learn_topics(self, names: list[str]) -> None:
        await self._configs.learn([("topics", name) for name in names])

    async def _publish_configs(self, delta: MetadataDelta) -> None:
        self._offset += 1
        await self.requests.publish(delta)

    # --- MetadataPlane

    @property
    def metadata_offset(self) -> int:
        """The number of registrations of this broker, plus the number of config changes, so far."""
        return self._offset

    @property
    def controller_id(self) -> int:
        return self._named_controller

    @property
    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        return self._controller.offered or self._forwards.offered

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """Empty, because features exist only in KRaft."""
        return {}

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.image.brokers

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may be added to an ISR: True for each live broker. In a ZooKeeper cluster, a broker does not know
        other brokers' epochs.
        """
        return broker_id in self.image.brokers

    def endpoint(self, broker_id: int, listener_name: str | None = None) -> tuple[str, int] | None:
        broker = self.image.brokers.get(broker_id)
        wanted = listener_name or self._config.inter_broker_listener_name
        for one in () if broker is None else broker.end_points:
            if one.name == wanted:
                return one.host, one.port
        return None

    async def call(self, request: Message, *, timeout_s: float | None = None) -> Any:
        """Send a request to the controller and return its response. Before inter-broker protocol 2.7, ISR changes are written
        to znodes instead.

        Raises what `MetadataPlane.call` raises.
        """
        if not isinstance(request, AlterPartitionRequest):
            return await self._controller.call(request, timeout_s=timeout_s)
        if self._zookeeper.protocol.has_alter_partition:
            return await self._alter_by_controller(request, timeout_s)
        return await self._isr.alter(request)

    async def _alter_by_controller(self, request: AlterPartitionRequest, timeout_s: float | None) -> AlterPartitionResponse:
        has_ids = all(known_topic_id(topic.topic_id) is not None for topic in request.topics)
        at_most = _FIRST_BY_ID if has_ids else _FIRST_BY_ID - 1
        try:
            answer: AlterPartitionResponse = await self._controller.call(request, at_most=at_most, timeout_s=timeout_s)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(
                f"inter.broker.protocol.version={self._zookeeper.protocol} is newer than the controller: {error.message}",
                path=error.path,
                found=error.found,
                expected=error.expected,
            ) from None
        ids = {topic.topic_name: topic.topic_id for topic in request.topics}
        for topic in answer.topics:
            # Before version 2 topics are identified by name.
            topic.topic_id = ids.get(topic.topic_name, topic.topic_id)
        return answer

    async def forward(
        self, frame: Bytes, *, client_host: str, principal: tuple[str, str], timeout_s: float | None = None
    ) -> bytes:
        return await self._forwards.forward(frame, timeout_s)

    async def producer_ids(self) -> range:
        """Allocate a block of producer ids for this broker. Raises BrokerUnreachableError and ZookeeperError."""
        while True:
            znode = await self._session.get(PRODUCER_IDS)
            first = 0 if znode is None else parsed(PRODUCER_IDS, znode.data, lambda value: int(value["block_end"])) + 1
            block = range(first, first + PRODUCER_ID_BLOCK)
            value = {"version": 1, "broker": self.node_id, "block_start": str(block[0]), "block_end": str(block[-1])}
            data = json.dumps(value).encode()
            if znode is None:
                if await self._session.create(PRODUCER_IDS, data):
                    return block
            elif await self._session.set(PRODUCER_IDS, data, znode.version) is not None:
                return block

    # --- inside

    def _where_controller(self) -> tuple[str, int] | None:
        if self._named_controller == self.node_id:
            raise InvalidArgumentError(
                "the cluster names this broker as its controller, but this broker cannot be a controller", found=self.node_id
            )
        return self.endpoint(self._named_controller)

    def _wait(self, reason: str) -> None:
        self._log.failed("broker %d waits: %s", self.node_id, reason)

    def _move(self, state: str) -> None:
        logger.info("broker %d is %s", self.node_id, state)
