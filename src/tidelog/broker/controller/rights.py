"""The access check of requests that only brokers send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.handling.access import Access, at_top, cluster, whole
from tidelog.security.acl import Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.wire.codec import Message

BROKERS: Final = " brokers"
"""The job name under which changes of brokers run one at a time. It is not a valid topic name."""


def of_brokers(response: Callable[..., Message]) -> Access:
    """Return the access check of a request that needs the right of a broker; `response` makes the refusal."""
    return whole(cluster(Operation.CLUSTER_ACTION), refused=at_top(response))
