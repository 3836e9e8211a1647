"""The start and shutdown of a member of a ZooKeeper cluster.

| start | ends when |
|---|---|
| the folder is locked; the listeners' ports are bound, clients are refused | |
| the cluster id is read from ZooKeeper; a new folder is assigned to that cluster | |
| logs are loaded according to ZooKeeper's assignments and properties | all are loaded |
| clients are served; they get retriable errors | |
| the broker registers | the controller has sent the brokers and partitions, and then assigns leaders and followers |

At shutdown the controller moves leadership to other brokers; then the session ends, and the registration with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic

from tidelog.broker.cluster.zookeeper.controller_apis import CONTROLLER_APIS
from tidelog.broker.cluster.zookeeper.zookeeper_plane import ZookeeperPlane
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.server.bound_sockets import bind
from tidelog.broker.serving_broker import ServingBroker, log_loaded, running
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import Clock
from tidelog.storage.folder.data_folder import list_contents
from tidelog.storage.zookeeper_log_manager import ZookeeperLogManager


@asynccontextmanager
async def joined(
    manager: ZookeeperLogManager, config: BrokerConfig, clock: Clock, *, apis: Iterable[Api] = APIS
) -> AsyncIterator[ServingBroker]:
    """Open and load the manager's folder, and join the cluster that `config` names.

    The caller closes the manager. Raises what `ZookeeperLogManager` raises, InvalidArgumentError for an address, and
    BrokerUnreachableError if ZooKeeper does not answer.
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
                assert node.replicas is not None
                stack.push_async_callback(node.replicas.stop)
                node.replicas.start()

            serving = running(
                manager, config, clock, apis=(*apis, *CONTROLLER_APIS), plane=plane, bound=bound, before_serving=take_up
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
                if broker.node.replicas is not None:
                    await broker.node.replicas.stop()
    finally:
        bound.close()
        await plane.stop()
