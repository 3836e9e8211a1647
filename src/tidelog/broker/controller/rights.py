"""The authorization of requests that only brokers send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.broker.handling.access import Access, at_top, cluster, whole
from tidelog.security.acl import Operation
from tidelog.wire.codec import Message

BROKERS: Final = " brokers"
"""The job name under which changes of brokers run one at a time. It is not a valid topic name."""


def of_brokers(response: Callable[..., Message]) -> Access:
    """Return the check for a request that needs CLUSTER_ACTION on the cluster. `response` builds the response to a refused
    request.
    """
    return whole(cluster(Operation.CLUSTER_ACTION), refused=at_top(response))
