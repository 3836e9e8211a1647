"""The features that a member announces when it registers (KIP-584, KIP-1022).

A controller registers a broker only if it supports each finalized feature at its level. The broker announces features that it
implements or that do not affect it:

| feature | announced | because |
|---|---|---|
| ``metadata.version`` | the levels that `metadata.versions` lists | the metadata is replayed here |
| ``kraft.version`` | 0 and 1 | the voters do not matter to a broker; responses carry the addresses |
| ``transaction.version`` | 0 to 2 | both producers with an epoch per transaction and others are served (KIP-890) |
| ``group.version`` | the controller's | as in Kafka 3.9.1, only the broker's own setting turns consumer groups on |
| ``share.version``, ``streams.version`` | the controller's | their APIs are not served here |
| ``eligible.leader.replicas.version`` | 0 and 1 | only the controller maintains them (KIP-966) |
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
"""Features that change nothing here, so any level is accepted."""

FIRST_VERSION_FROM_0 = 4
"""The first version of BrokerRegistration in which a range may start at 0 (KAFKA-17492)."""


def announced(supported: Mapping[str, tuple[int, int]], finalized: Mapping[str, int], registration_version: int) -> list[Feature]:
    """Return the features to announce to a controller with these supported and finalized features.

    Raises UnsupportedVersionError if a finalized feature or its level is not supported here.
    """
    for name, level in finalized.items():
        low, high = KNOWN.get(name, (1, 0))
        if level and name not in UNCONCERNED and not low <= level <= high:
            raise UnsupportedVersionError(
                f"the cluster uses a feature, or a level of it, that this broker does not support: {name}",
                found=f"level {level}",
                expected=f"level {low} to {high}" if high else "no such feature",
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
