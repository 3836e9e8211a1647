"""A whole broker, from the data folder to the sockets.

| | |
|---|---|
| start | properties are checked, the folder is loaded (and recovered after a crash), the listeners open |
| end | the listeners close, pending requests are answered, logs are flushed and closed, the clean-shutdown file is written |

`running` uses the caller's event loop: that of `tidelog serve` or `broker_thread`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api
from tidelog.broker.loop.event_loop import LoopThreads, LoopTimers, Ticker
from tidelog.broker.node import Node
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.server.bound_sockets import BoundSockets
from tidelog.broker.server.broker_server import BrokerServer
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import Clock
from tidelog.reader.missing.hole_search import HoleSearch
from tidelog.storage.log_manager import LogManager

logger = logging.getLogger("tidelog.serve")

GRACE_S = 5.0
"""How long, in seconds, a shutdown waits for pending requests."""


class ServingBroker:
    """A running broker. Use only on the event loop's thread."""

    def __init__(self, node: Node, server: BrokerServer, ticker: Ticker) -> None:
        self.node = node
        self.server = server
        self._ticker = ticker
        self.failure: asyncio.Future[None] | None = None
        """On a cluster member: a future that completes with the error after which the broker cannot continue."""

    async def until(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set. Raises the error after which the broker cannot continue, if one occurs before that."""
        if self.failure is None:
            await stop.wait()
            return
        stopping = asyncio.ensure_future(stop.wait())
        either: set[asyncio.Future[Any]] = {stopping, self.failure}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if self.failure.done():
            self.failure.result()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return self.server.listeners

    def tick(self) -> int:
        """Run the tasks that are due by the clock, and return how many ran. With the machine's clock this happens
        automatically.
        """
        return self._ticker.tick() + self.node.delays.tick()


def log_loaded(manager: LogManager, lasted_s: float) -> None:
    """Log how many partitions were loaded, and which could not be loaded."""
    logger.info(
        "node %d of cluster %s: %d partitions loaded in %.2f s%s",
        manager.owner.node_id,
        manager.owner.cluster_id,
        len(manager.logs),
        lasted_s,
        ", recovered after an unclean shutdown" if manager.logs and not manager.had_clean_shutdown else "",
    )
    for key, log in sorted(manager.logs.items()):
        if log.config.remote_storage_enable:
            logger.warning(
                "%s-%d is tiered (remote.storage.enable), and this broker has no remote storage: it serves only the records in "
                "its folder, from offset %d on; `tidelog cat --tier` reads all of them",
                *key,
                max(log.log_start_offset, min((segment.base_offset for segment in log.segments.values()), default=0)),
            )
    for key, reason in manager.offline_partitions().items():
        logger.error("%s-%d is offline: %s", *key, reason)


@asynccontextmanager
async def running(
    manager: LogManager,
    config: BrokerConfig,
    clock: Clock,
    *,
    apis: Iterable[Api] = APIS,
    plane: MetadataPlane | None = None,
    bound: BoundSockets | None = None,
    before_serving: Callable[[Node], Awaitable[None]] | None = None,
    node_type: type[Node] = Node,
) -> AsyncIterator[ServingBroker]:
    """Serve the logs of a started manager inside the `with` block. The caller must shut the manager down. Raises
    InvalidArgumentError for an invalid address.

    `plane` connects a member to its cluster; the caller must stop it. `bound` are sockets that already listen. Clients are served
    once `before_serving` has returned.
    """
    loop = asyncio.get_running_loop()
    threads = LoopThreads(loop, locked=manager.locked)
    heavy = LoopThreads(loop, 1, "tidelog-heavy", manager.locked)
    syncing = LoopThreads(loop, 4, "tidelog-syncing", manager.locked)
    manager.scheduler.elsewhere = syncing.run
    node = node_type(manager, config, clock, LoopTimers(loop), threads, heavy, plane)
    ticker = Ticker(loop, manager, clock, syncing, node.metrics.counters)
    server = BrokerServer(node, apis)
    search = HoleSearch(manager.directory)
    try:
        # Until the groups are loaded, requests about them get COORDINATOR_LOAD_IN_PROGRESS.
        node.groups.start()
        if not config.is_read_only:  # A read-only broker must not do this: it would write the missing markers.
            manager.settings.note_served(manager.directory, clock.now_ms())
            node.transactions.start()
        if before_serving is not None:
            await before_serving(node)
        await server.start(bound)
        node.topic_changes.finish_later(node.topics.finishing)
        ticker.start()
        search.start()
        yield ServingBroker(node, server, ticker)
    finally:
        search.stop()
        await server.stop(GRACE_S)
        node.stop_asking()
        node.delays.stop()
        ticker.stop()
        threads.close()
        heavy.close()
        syncing.close()
        node.wide_requests.close()
        node.topic_changes.stop()
        if node.peers is not None:
            node.peers.close()
        manager.scheduler.elsewhere = None
