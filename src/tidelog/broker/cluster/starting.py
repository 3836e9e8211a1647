"""Which broker a configuration asks for: one that is alone, or a member of a cluster (``process.roles=broker``).

manager = manager_of(folder, clock, config, properties)
if not is_member(manager):
    manager.startup()                                      # a member's is loaded by its cluster's metadata
async with serving(manager, config, clock) as broker: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeGuard

from tidelog.broker.api import Api
from tidelog.broker.cluster.kraft.member import joined
from tidelog.broker.running import Running, running
from tidelog.broker.server.dispatch import APIS
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import Clock
from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError
from tidelog.storage.loading.loader import RecoveryProgress
from tidelog.storage.log_manager import LogManager, Progress
from tidelog.storage.member_log_manager import MemberLogManager


def manager_of(
    folder: str | Path,
    clock: Clock,
    config: BrokerConfig,
    properties: Mapping[str, PropertyValue],
    *,
    progress: Progress | None = None,
    recovery_progress: Callable[[RecoveryProgress], None] | None = None,
) -> LogManager:
    """Return what looks after the folder, not started. Raises InvalidArgumentError for a member that is to be read-only."""
    if config.cluster is not None and config.is_read_only:
        raise InvalidArgumentError("a member of a cluster is not read-only", found="process.roles=broker")
    kind = LogManager if config.cluster is None else MemberLogManager
    return kind(folder, clock, properties=properties, progress=progress, recovery_progress=recovery_progress)


def is_member(manager: LogManager) -> TypeGuard[MemberLogManager]:
    """Whether the folder is that of a member of a cluster."""
    return isinstance(manager, MemberLogManager)


def serving(
    manager: LogManager, config: BrokerConfig, clock: Clock, *, apis: Iterable[Api] = APIS
) -> AbstractAsyncContextManager[Running]:
    """Serve clients as long as it is entered: see `running` and `joined`."""
    if is_member(manager):
        return joined(manager, config, clock, apis=apis)
    return running(manager, config, clock, apis=apis)
