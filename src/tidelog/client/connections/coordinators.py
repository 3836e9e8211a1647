"""Finds the coordinator of a group or transactional id (FindCoordinator), and sends requests to it with retries.

| code | action |
|---|---|
| COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE | retry: the coordinator is being elected, or is loading |
| NOT_COORDINATOR | find the coordinator again |
| others | left to the caller |

Callers with many requests cache coordinators (`Known`); an outdated entry is looked up again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.failures import RetryTimer, error_for
from tidelog.errors import BrokerUnreachableError
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

M = TypeVar("M", bound=Message)

GROUP = 0
TRANSACTION = 1
"""The types of keys: group id, transactional id."""

Known = dict[tuple[int, str], BrokerAddress]
"""Type and key → the coordinator's last known address."""

PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)

FIRST_PAUSE_MS = 2
"""The first wait before a retry: a coordinator that is ending a producer's last transaction needs only a few milliseconds."""

_NEWEST = 3
"""The newest version of FindCoordinator that has a single key, which is enough here."""


def find_coordinator(cluster: Cluster, key: str, timer: RetryTimer, key_type: int = GROUP) -> BrokerAddress:
    """Return the coordinator of a group or transactional id.

    Raises BrokerError, BrokerUnreachableError, UnsupportedVersionError.
    """
    while True:
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        oldest = 0 if key_type == GROUP else 1
        answer = cluster.ask_any(request, FindCoordinatorResponse, newest=_NEWEST, oldest=oldest)
        if not answer.error_code:
            return BrokerAddress(answer.host, answer.port)
        error = error_for(answer.error_code, f"coordinator of {_named(key, key_type)}", cluster, answer.error_message)
        if answer.error_code not in PASSING:
            raise error
        timer.wait(error)


def ask_coordinator(
    cluster: Cluster,
    key: str,
    message: Message,
    response: type[M],
    codes: Callable[[M], Iterable[int]],
    *,
    newest: int,
    oldest: int = 0,
    key_type: int = GROUP,
    passing: Collection[int] = PASSING,
    known: Known | None = None,
) -> M:
    """Return the coordinator's response. `codes` extracts the response's error codes; those in `passing` are retried.

    The request may be sent more than once. Raises BrokerError, BrokerUnreachableError, UnsupportedVersionError, ProtocolError.
    """
    timer = RetryTimer(cluster.timeout_ms, first_pause_ms=FIRST_PAUSE_MS)
    known = {} if known is None else known
    while True:
        address = known.get((key_type, key))
        if address is None:
            address = known[key_type, key] = find_coordinator(cluster, key, timer, key_type)
        try:
            with cluster.connection_to(address) as connection:
                version = connection.version(type(message), newest=newest, oldest=oldest)
                answer = connection.ask(message, version, response)
        except BrokerUnreachableError as error:
            known.pop((key_type, key), None)
            timer.wait(error)
            continue
        code = next((code for code in codes(answer) if code in passing), None)
        if code is None:
            return answer
        if code in PASSING:
            known.pop((key_type, key), None)
        timer.wait(error_for(code, f"{message.API_NAME} of {_named(key, key_type)}", address))


def _named(key: str, key_type: int) -> str:
    return f"{'group' if key_type == GROUP else 'transactional id'} {key!r}"
