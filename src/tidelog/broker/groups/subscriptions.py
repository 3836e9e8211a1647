"""Which topics a group of consumers subscribes to, as its members' metadata say.

Members bring bytes that only they understand, but consumers' begin alike in all versions: with the topics. So Kafka, too, reads
them by version 0, whatever version they are of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.errors import ProtocolError
from tidelog.wire.codec import decoder
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription

if TYPE_CHECKING:
    from tidelog.broker.groups.group import Group

_VERSION_BYTES: Final = 2


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Return all topics that members subscribe to; None if unknown: no consumers, no protocol yet, other bytes."""
    if group.protocol_type != PROTOCOL_TYPE or not group.members or group.protocol_name is None:
        return None
    topics: set[str] = set()
    read = decoder(ConsumerProtocolSubscription, 0, exact=False)
    for member in group.members.values():
        metadata = member.protocols.get(group.protocol_name)
        if metadata is None:
            return None
        try:
            topics.update(read(memoryview(metadata), _VERSION_BYTES, len(metadata)).topics)
        except ProtocolError:
            return None
    return frozenset(topics)
