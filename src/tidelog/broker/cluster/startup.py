"""Chooses the kind of broker by its configuration: standalone, or a member of a cluster (``process.roles=broker`` or
``zookeeper.connect``).

manager = manager_of(folder, clock, config, properties)
if not isinstance(manager, MemberLogManager):
    manager.startup()                                      # a member loads its logs when it joins
async with serving(manager, config, clock) as broker: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tidelog.broker.cluster.kraft.member import joined
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api
from tidelog.broker.serving_broker import ServingBroker, running
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import Clock
from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from
from tidelog.storage.loading.loader import RecoveryProgress
from tidelog.storage.log_manager import LogManager, Progress
from tidelog.storage.member_log_manager import MemberLogManager
from tidelog.storage.zookeeper_log_manager import ZookeeperLogManager


def manager_of(
    folder: str | Path,
    clock: Clock,
    config: BrokerConfig,
    properties: Mapping[str, PropertyValue],
    *,
    progress: Progress | None = None,
    recovery_progress: Callable[[RecoveryProgress], None] | None = None,
) -> LogManager:
    """Return the folder's log manager, not started. Raises InvalidArgumentError for a read-only member."""
    if config.cluster is not None and config.is_read_only:
        raise InvalidArgumentError("a member of a cluster cannot be read-only", found="process.roles=broker or zookeeper.connect")
    cluster = config.cluster
    kind = LogManager if cluster is None else MemberLogManager if cluster.zookeeper is None else ZookeeperLogManager
    manager = kind(folder, clock, properties=properties, progress=progress, recovery_progress=recovery_progress)
    if isinstance(manager, ZookeeperLogManager) and cluster is not None and cluster.zookeeper is not None:
        protocol = cluster.zookeeper.protocol
        manager.newest_magic = protocol.newest_magic if protocol.has_message_formats else None
    return manager


def serving(
    manager: LogManager, config: BrokerConfig, clock: Clock, *, apis: Iterable[Api] = APIS
) -> AbstractAsyncContextManager[ServingBroker]:
    """Serve clients inside the `with` block: see `serving_broker` and `joined`."""
    if isinstance(manager, ZookeeperLogManager):
        with imported_from("zookeeper", "kazoo"):
            from tidelog.broker.cluster.zookeeper import member
        return member.joined(manager, config, clock, apis=apis)
    if isinstance(manager, MemberLogManager):
        return joined(manager, config, clock, apis=apis)
    return running(manager, config, clock, apis=apis)
