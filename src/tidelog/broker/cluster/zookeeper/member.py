"""A member of a ZooKeeper cluster, from its folder to its sockets and back.

| start | ends when |
|---|---|
| the folder is locked; the listeners' sockets listen, and nobody is served yet | |
| ZooKeeper says which cluster it is: a new folder becomes that cluster's | |
| logs are loaded, by the assignments and properties that ZooKeeper has | all are loaded |
| clients are served: they get errors after which they ask again | |
| the broker registers | the controller has told which brokers and partitions there are, and leads it through its replicas |

At the end the controller moves its leaders elsewhere; then the session ends, and with it the registration.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic

from tidelog.broker.api import Api
from tidelog.broker.cluster.zookeeper.controller_apis import CONTROLLER_APIS
from tidelog.broker.cluster.zookeeper.zookeeper_plane import ZookeeperPlane
from tidelog.broker.node import Node
from tidelog.broker.server.bound_sockets import bind
from tidelog.broker.server.dispatcher import APIS
from tidelog.broker.serving_broker import GRACE_S, ServingBroker, log_loaded, running
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import Clock
from tidelog.storage.folder.data_folder import list_contents
from tidelog.storage.zookeeper_log_manager import ZookeeperLogManager


@asynccontextmanager
async def joined(
    manager: ZookeeperLogManager, config: BrokerConfig, clock: Clock, *, grace_s: float = GRACE_S, apis: Iterable[Api] = APIS
) -> AsyncIterator[ServingBroker]:
    """Be a member of the cluster that `config` names, with the folder of a manager, which is opened and loaded here.

    The manager's end stays the caller's. Raises what `ZookeeperLogManager` raises, InvalidArgumentError for an address,
    BrokerUnreachableError where ZooKeeper does not answer.
    """
    assert config.cluster is not None
    manager.open()
    bound = bind(config)
    plane = ZookeeperPlane(config.cluster, listeners=bound.listeners, rack=config.broker_rack, clock=clock)
    try:
        await plane.connect()
        manager.claim(plane.cluster_id)
        await plane.load(sorted({key.topic for key in list_contents(manager.directory).partitions}))
        began = monotonic()
        await asyncio.to_thread(manager.startup, plane)
        log_loaded(manager, monotonic() - began)
        async with AsyncExitStack() as stack:

            async def take_up(node: Node) -> None:
                stack.push_async_callback(_stop_replicas, node)
                assert node.replicas is not None and node.fetchers is not None
                node.fetchers.start()
                node.replicas.start()

            serving = running(
                manager,
                config,
                clock,
                grace_s=grace_s,
                apis=(*apis, *CONTROLLER_APIS),
                plane=plane,
                bound=bound,
                before_serving=take_up,
            )
            broker = await stack.enter_async_context(serving)
            broker.failure = plane.failure
            await plane.begin(broker.node)
            manager.broker_epoch = plane.broker_epoch
            try:
                yield broker
            finally:
                if config.cluster.controlled_shutdown_enable and not plane.failure.done():
                    await plane.shut_down_controlled()
                manager.broker_epoch = plane.broker_epoch
                await _stop_replicas(broker.node)
    finally:
        bound.close()
        await plane.stop()


async def _stop_replicas(node: Node) -> None:
    assert node.replicas is not None and node.fetchers is not None
    await node.fetchers.stop()
    await node.replicas.stop()
