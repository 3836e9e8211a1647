"""The start and shutdown of a member of a KRaft cluster.

| start | ends when |
|---|---|
| the folder is locked and its owner checked; the listeners' ports are bound, clients are refused | |
| it registers and follows the metadata | the controller reports that it has caught up |
| its logs are loaded according to the metadata, and recovered after an unclean shutdown; heartbeats continue | all are loaded |
| it becomes a follower or leader of each of its partitions; its coordinators load what they lead | |
| it asks to be unfenced; as in Kafka, clients are still refused | the controller and the local metadata say that it is unfenced |
| clients are served | |

At shutdown the controller moves leadership to other brokers and completes the controlled shutdown. The rest is as for a
standalone broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic

from tidelog.broker.cluster.kraft.kraft_plane import KraftPlane
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.slices import in_slices
from tidelog.broker.server.bound_sockets import bind
from tidelog.broker.serving_broker import ServingBroker, log_loaded, running
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import Clock
from tidelog.errors import CorruptCheckpointError
from tidelog.metadata.delta import MetadataDelta, difference
from tidelog.metadata.image import MetadataImage
from tidelog.storage.folder.meta_properties import META_PROPERTIES
from tidelog.storage.member_log_manager import MemberLogManager

SHUTDOWN_S = 60.0
"""How long (seconds) a shutdown waits for the controller. Kafka waits five minutes; here the whole shutdown may take two minutes.
"""


@asynccontextmanager
async def joined(
    manager: MemberLogManager, config: BrokerConfig, clock: Clock, *, apis: Iterable[Api] = APIS
) -> AsyncIterator[ServingBroker]:
    """Open and load a manager's folder, and join the cluster that `config` names. Yields the broker once it serves clients.

    The caller closes the manager. Raises InvalidArgumentError for an invalid address, and what `MemberLogManager` raises. If the
    metadata plane fails before clients are served, its error is raised, too. The caller must watch `KraftPlane.failure` for
    later failures.
    """
    assert config.cluster is not None
    manager.open()
    cluster_id, directory_id = manager.owner.cluster_id, manager.owner.directory_uuid
    if cluster_id is None or directory_id is None:
        raise CorruptCheckpointError("the folder has no cluster id or no directory id", path=manager.directory / META_PROPERTIES)
    bound = bind(config)
    plane = KraftPlane(
        config.cluster,
        cluster_id=cluster_id,
        directory_id=directory_id,
        data_dir=manager.directory,
        listeners=bound.listeners,
        rack=config.broker_rack,
        previous_broker_epoch=manager.previous_broker_epoch,
    )
    try:
        plane.start()
        await plane.until(plane.lifecycle.caught_up)
        async with AsyncExitStack() as stack, AsyncExitStack() as holding:
            await holding.enter_async_context(plane.held())
            began = monotonic()
            await asyncio.to_thread(manager.startup, plane)
            manager.broker_epoch = plane.broker_epoch
            log_loaded(manager, monotonic() - began)

            async def take_up(node: Node) -> None:
                """Apply the current metadata, start to follow its changes, and wait until clients may see this broker.

                A client that was served earlier could get metadata without any broker, and librdkafka then asks again only
                after `topic.metadata.refresh.interval.ms`.
                """
                assert node.replicas is not None
                stack.push_async_callback(node.replicas.stop)
                visible: asyncio.Future[None] = asyncio.get_running_loop().create_future()

                async def published(delta: MetadataDelta) -> None:
                    await _published(node, delta)
                    if plane.is_alive(plane.node_id) and not visible.done():
                        visible.set_result(None)

                plane.publish = published
                plane.lifecycle.unwritable = node.replicas.unwritable
                node.replicas.on_placed = plane.assignments.placed
                await plane.publish(difference(MetadataImage(), plane.image))
                node.replicas.start()
                await holding.aclose()
                plane.lifecycle.ready_to_unfence()
                await plane.until(plane.lifecycle.unfenced)
                await plane.until(visible)

            serving = running(manager, config, clock, apis=apis, plane=plane, bound=bound, before_serving=take_up)
            broker = await stack.enter_async_context(serving)
            broker.failure = plane.failure
            try:
                yield broker
            finally:
                if config.cluster.controlled_shutdown_enable and not plane.failure.done():
                    await plane.lifecycle.shut_down_controlled(SHUTDOWN_S)
                manager.broker_epoch = plane.broker_epoch
                if broker.node.replicas is not None:
                    await broker.node.replicas.stop()
    finally:
        bound.close()
        await plane.stop()


async def _published(node: Node, delta: MetadataDelta) -> None:
    """Apply a metadata change: first to what clients see, then to what this broker leads and follows."""
    assert node.replicas is not None
    await in_slices(node.metadata_changed(delta))
    await node.replicas.published(delta)
