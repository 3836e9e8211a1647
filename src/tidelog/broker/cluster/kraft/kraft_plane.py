"""Creates and connects the parts that get metadata from Kafka's controllers and send requests to them.

There are three connections to the active controller. `metadata_fetcher` follows the metadata log, and thereby knows which
controller is active. One `ControllerChannel` sends the broker's requests, another its clients' requests. No connection waits
for another.
"""

from __future__ import annotations

import asyncio
import ipaddress
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any

from tidelog.broker.cluster.kraft.broker_lifecycle import BrokerLifecycle
from tidelog.broker.cluster.kraft.controller_channel import Channels, ControllerChannel
from tidelog.broker.cluster.kraft.directory_assignments import DirectoryAssignments
from tidelog.broker.cluster.kraft.features import KNOWN, announced
from tidelog.broker.cluster.kraft.metadata_copy import MetadataCopy
from tidelog.broker.cluster.kraft.metadata_fetcher import MetadataFetcher
from tidelog.broker.cluster.kraft.metadata_loader import MetadataLoader
from tidelog.broker.cluster.kraft.quorum import Quorum
from tidelog.broker.cluster.kraft.snapshot_fetcher import SnapshotFetcher
from tidelog.broker.peers.channel import Channel
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.settings.cluster_config import ClusterConfig
from tidelog.errors import BrokerError, InvalidArgumentError, UnsupportedVersionError
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.versions import DIRECTORIES_LEVEL, METADATA_VERSION
from tidelog.reader.metadata_log import METADATA_DIR
from tidelog.security.access import Access
from tidelog.security.client_config import SECURITY_PROTOCOLS
from tidelog.wire.codec import encode
from tidelog.wire.error_codes import ErrorCode, code_name
from tidelog.wire.fields import Bytes, Message
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest
from tidelog.wire.messages.broker_registration import Listener as RegisteredListener
from tidelog.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse

Publish = Callable[[MetadataDelta], Awaitable[None]]

_PRINCIPAL_VERSION = 0
_VERSION = Struct(">h")


class KraftPlane:
    """Implements `MetadataPlane` with the controllers of Apache Kafka. Use only on the event loop's thread."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        cluster_id: str,
        directory_id: uuid.UUID,
        data_dir: Path,
        listeners: tuple[Listener, ...],
        rack: str | None,
        previous_broker_epoch: int = -1,
    ) -> None:
        self.node_id = config.node_id
        self.image = MetadataImage()
        """Updated in place; it stays the same object."""
        self.publish: Publish | None = None
        """Called and awaited for each change, before the next change is applied. None until a subscriber sets it."""
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes with the error that ended the metadata plane, after which the broker cannot continue."""
        self._config = config
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._listeners = listeners
        self._rack = rack
        self._previous_broker_epoch = previous_broker_epoch
        connect_s, longest_s = config.connect_timeouts_s
        request_s = config.controller_quorum_request_timeout_ms / 1000
        self._quorum = Quorum({voter.node_id: (voter.host, voter.port) for voter in config.voters}, config.bootstrap_servers)
        access = Access(config.controller_access)
        timeouts_s = min(request_s, connect_s), longest_s
        raft_id = f"raft-client-{self.node_id}"
        self._raft = Channels(
            partial(Channel, client_id=raft_id, timeout_s=request_s, connect_timeouts_s=timeouts_s, access=access)
        )
        connect = partial(
            Channel,
            client_id=str(self.node_id),
            timeout_s=config.controller_socket_timeout_ms / 1000,
            connect_timeouts_s=config.connect_timeouts_s,
            access=access,
        )
        # Controllers answer a connection in order. Clients' requests may take long, so heartbeats have their own connection.
        self._controller, self._forwards = (
            ControllerChannel(self._quorum, Channels(connect), config.request_timeout_ms / 1000) for _ in range(2)
        )
        self._loader = MetadataLoader(self.image, self._published)
        self._fetcher = MetadataFetcher(
            self._quorum,
            self._raft,
            self._loader,
            SnapshotFetcher(data_dir / METADATA_DIR, self.node_id, cluster_id),
            node_id=self.node_id,
            cluster_id=cluster_id,
            directory_id=directory_id,
            retry_s=config.controller_quorum_retry_backoff_ms / 1000,
            moved=self._moved,
        )
        self._copy = MetadataCopy(data_dir / METADATA_DIR, self._fetcher, self._loader)
        self.lifecycle = BrokerLifecycle(
            self.node_id,
            call=lambda request, timeout_s: self.call(request, timeout_s=timeout_s),
            register=self._registration,
            metadata_offset=lambda: self._fetcher.end_offset - 1,
            heartbeat_s=config.broker_heartbeat_interval_ms / 1000,
            session_s=config.broker_session_timeout_ms / 1000,
            registration_timeout_s=config.initial_broker_registration_timeout_ms / 1000,
        )
        self.assignments = DirectoryAssignments(self, directory_id)
        self._tasks: list[asyncio.Task[None]] = []

    # --- start and stop

    def start(self) -> None:
        """Start following the metadata, and register."""
        for name, work in (
            ("metadata", self._follow()),
            ("lifecycle", self.lifecycle.run()),
            ("copy", self._copy.run()),
            ("assignments", self.assignments.run()),
        ):
            task = asyncio.get_running_loop().create_task(work, name=f"tidelog-{name}")
            task.add_done_callback(self._over)
            self._tasks.append(task)

    def held(self) -> asyncio.Lock:
        """Return the lock that guards the image: inside `async with` the image does not change."""
        return self._fetcher.replaying

    async def until(self, event: asyncio.Future[None]) -> None:
        """Wait for an event of the lifecycle. Raises the metadata plane's error if the plane fails first."""
        await asyncio.wait({event, self.failure}, return_when=asyncio.FIRST_COMPLETED)
        if self.failure.done():
            self.failure.result()

    async def stop(self) -> None:
        """Stop all tasks and close all connections. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await self._copy.write()
        self._controller.close()
        self._forwards.close()
        self._raft.close()
        self.lifecycle.end()
        if not self.failure.done():
            self.failure.cancel()

    async def _follow(self) -> None:
        await self._copy.load()
        await self._fetcher.run()

    def _over(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)
            self.failure.exception()  # The caller may have been cancelled.

    # --- MetadataPlane

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    @property
    def is_fenced(self) -> bool:
        return self.lifecycle.is_fenced

    @property
    def metadata_offset(self) -> int:
        return self._fetcher.end_offset

    @property
    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        return self._controller.offered

    @property
    def controller_id(self) -> int | None:
        """None: controllers are not brokers."""
        return None

    @property
    def config_writer(self) -> None:
        """None: only the controllers change properties."""

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """The features that clients see (`features`)."""
        return KNOWN

    def is_alive(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return broker_epoch in (-1, broker.broker_epoch)

    def endpoint(self, broker_id: int, listener_name: str | None = None) -> tuple[str, int] | None:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        wanted = listener_name or self._config.inter_broker_listener_name
        for one in broker.end_points:
            if one.name == wanted:
                return one.host, one.port
        return None

    async def call(self, request: Message, *, timeout_s: float | None = None) -> Any:
        """Send a request to the active controller and return its response: see `ControllerChannel.call`."""
        return await self._controller.call(request, timeout_s=timeout_s)

    async def forward(
        self, frame: Bytes, *, client_host: str, principal: tuple[str, str], timeout_s: float | None = None
    ) -> bytes:
        response = await self._forwards.call(envelope(frame, principal, client_host), timeout_s=timeout_s)
        return unwrapped(response, str(self._quorum.leader))

    async def producer_ids(self) -> range:
        answer: AllocateProducerIdsResponse = await self.call(AllocateProducerIdsRequest(self.node_id, self.broker_epoch))
        if answer.error_code:
            raise BrokerError(
                "the controller allocated no producer ids", error_code=answer.error_code, found=code_name(answer.error_code)
            )
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    # --- inside

    async def _registration(self, incarnation_id: uuid.UUID, timeout_s: float) -> BrokerRegistrationRequest:
        channel = await self._controller.connected(timeout_s)
        version = channel.version_of(BrokerRegistrationRequest)
        return BrokerRegistrationRequest(
            self.node_id,
            self._cluster_id,
            incarnation_id,
            [
                RegisteredListener(one.name, one.advertised_host, one.advertised_port, SECURITY_PROTOCOLS.index(one.protocol))
                for one in self._listeners
            ],
            announced(channel.supported_features, channel.finalized_features, version),
            self._rack,
            log_dirs=[self._directory_id],
            previous_broker_epoch=self._previous_broker_epoch,
        )

    async def _published(self, delta: MetadataDelta) -> None:
        if self.node_id in delta.brokers or METADATA_VERSION in delta.features:
            self._check_own_registration()
        if METADATA_VERSION in delta.features:
            self.assignments.metadata_version_changed()
        if self.publish is not None:
            await self.publish(delta)

    def _check_own_registration(self) -> None:
        """End the metadata plane with an error if another process has registered with this broker's id: two brokers that lead the
        same partitions would lose records.

        A registration made before 3.7-IV2 has no directories, so the broker registers again once the cluster reaches that level
        (KAFKA-16162).
        """
        broker = self.image.brokers.get(self.node_id)
        if broker is None or self.broker_epoch < 0:
            return
        if broker.incarnation_id == self.lifecycle.incarnation_id:
            if not broker.log_dirs and self.image.metadata_version >= DIRECTORIES_LEVEL:
                self.lifecycle.register_again()
            return
        if broker.broker_epoch > self.broker_epoch:
            self._fail(
                InvalidArgumentError("another broker has registered with this node.id: this broker stops", found=self.node_id)
            )

    def _moved(self) -> None:
        self.lifecycle.hurry()


# --- envelopes


def envelope(frame: Bytes, principal: tuple[str, str], client_host: str) -> EnvelopeRequest:
    """Wrap a client's request that only the controller can answer, unchanged (KIP-590): its frame, with its header and without
    the size. `principal` is a type and a name, `client_host` an IP address.
    """
    kind, name = principal
    data = b"".join(encode(DefaultPrincipalData(kind, name), _PRINCIPAL_VERSION))
    # An IPv6 socket address includes a scope id, which is valid on this machine only.
    address = ipaddress.ip_address(client_host.partition("%")[0])
    return EnvelopeRequest(bytes(frame), _VERSION.pack(_PRINCIPAL_VERSION) + data, address.packed)


def unwrapped(response: EnvelopeResponse, place: str) -> bytes:
    """Return the frame for the client, including its header. Raises UnsupportedVersionError if the controller does not support
    the version of the client's request, BrokerError for any other error.
    """
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise UnsupportedVersionError("the controller does not support the version of the client's request", path=place)
    if response.error_code or response.response_data is None:
        try:
            name = ErrorCode(response.error_code).name
        except ValueError:
            name = str(response.error_code)
        message = "the controller refuses to answer a client's request"
        raise BrokerError(message, error_code=response.error_code, path=place, found=name)
    return response.response_data
