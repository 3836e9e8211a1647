"""The topics that a consumer group subscribes to, read from its members' metadata.

Members may put anything into their metadata, but in all versions of the consumer protocol it begins with the topics. So it is
read as version 0, as in Kafka, even if its version is higher.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.coordinators.groups.group import Group
from tidelog.errors import ProtocolError
from tidelog.wire.codec import decoder
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription

_VERSION_BYTES: Final = 2

_SHORT_BYTES: Final = 8192
"""The most bytes of metadata, of all members together, that are read on the event loop's thread. A member's metadata may be a
megabyte with 300,000 topics, and take 0.2 s to read on the thread for heavy work.
"""


def subscriptions(group: Group) -> list[bytes] | None:
    """Return the metadata of all members. Return None if they are not consumers or the group has no protocol yet, so that the
    subscription is unknown.
    """
    if group.protocol_type != PROTOCOL_TYPE or not group.members or group.protocol_name is None:
        return None
    found = [member.protocols.get(group.protocol_name) for member in group.members.values()]
    return None if None in found else found  # type: ignore[return-value]


def is_short(metadata: list[bytes]) -> bool:
    """Whether `topics_in` takes only a millisecond or two, and may be called on the event loop's thread."""
    return sum(map(len, metadata)) <= _SHORT_BYTES


def topics_in(metadata: list[bytes]) -> frozenset[str] | None:
    """Return all topics to which members subscribe. Return None if any member's metadata is not a consumer's. Any thread may
    call this.
    """
    topics: set[str] = set()
    read = decoder(ConsumerProtocolSubscription, 0, exact=False)
    for one in metadata:
        try:
            topics.update(read(memoryview(one), _VERSION_BYTES, len(one)).topics)
        except ProtocolError:
            return None
    return frozenset(topics)
