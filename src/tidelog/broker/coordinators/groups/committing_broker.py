"""The parts of the broker that a commit of offsets uses. `Node` provides them."""

from __future__ import annotations

from typing import Protocol

from tidelog.broker.coordinators.groups.groups import Groups
from tidelog.broker.coordinators.transactions.transactions import Transactions
from tidelog.broker.peers.broker_channels import BrokerChannels
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import Clock
from tidelog.storage.log_manager import LogManager


class CommittingBroker(Protocol):
    """A broker as `offset_commits` sees it."""

    clock: Clock
    config: BrokerConfig
    groups: Groups
    manager: LogManager
    peers: BrokerChannels | None
    transactions: Transactions
