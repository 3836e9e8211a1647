"""Which features of a cluster a member announces (KIP-584, KIP-1022).

A controller registers a broker only if it supports each finalized feature at its level. Announced is what does not change what
this broker does, and what it knows how to do:

| feature | announced | because |
|---|---|---|
| ``metadata.version`` | the levels that `metadata.versions` lists | the metadata is replayed here |
| ``kraft.version`` | 0 and 1 | who votes does not matter to a broker; addresses come with answers |
| ``transaction.version`` | 0 to 2 | producers have an epoch for each transaction, or none (KIP-890) |
| ``group.version``, ``share.version``, ``streams.version`` | the controller's | their APIs are not served here |
| ``eligible.leader.replicas.version`` | 0 and 1 | the controller keeps these; see KIP-966 |
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import UnsupportedVersionError
from tidelog.metadata.versions import KNOWN_LEVELS, METADATA_VERSION
from tidelog.wire.messages.broker_registration import Feature

KNOWN: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (KNOWN_LEVELS[0], KNOWN_LEVELS[-1]),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
}
"""Lowest and highest level by name."""

UNCONCERNED = frozenset({"group.version", "share.version", "streams.version"})
"""Features of APIs that are not served here: any level will do."""

FIRST_VERSION_FROM_0 = 4
"""The version of BrokerRegistration from which on a range may begin with 0 (KAFKA-17492)."""


def announced(supported: Mapping[str, tuple[int, int]], finalized: Mapping[str, int], registration_version: int) -> list[Feature]:
    """Return what to announce to a controller that supports and has finalized these features.

    Raises UnsupportedVersionError for a finalized one that is not known here, or at a level that is not.
    """
    for name, level in finalized.items():
        low, high = KNOWN.get(name, (1, 0))
        if level and name not in UNCONCERNED and not low <= level <= high:
            raise UnsupportedVersionError(
                f"the cluster has a feature that this broker does not know: {name}",
                found=f"level {level}",
                expected=f"level {low} to {high}" if high else "none of that name",
            )
    ranges = {name: known for name, known in KNOWN.items() if name in supported or name in finalized}
    ranges[METADATA_VERSION] = KNOWN[METADATA_VERSION]
    for name in UNCONCERNED & (supported.keys() | finalized.keys()):
        low, high = supported.get(name, (0, 0))
        ranges[name] = (low, max(high, finalized.get(name, 0)))
    return [
        Feature(name, low, high)
        for name, (low, high) in sorted(ranges.items())
        if low > 0 or registration_version >= FIRST_VERSION_FROM_0
    ]
