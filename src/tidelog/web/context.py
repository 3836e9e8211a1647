"""What every endpoint needs: the sources, the clock and the caches; and the JSON form of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.clock import Clock, SystemClock
from tidelog.decoding.decodings import DecodeTexts
from tidelog.web.source_pool import SourcePools
from tidelog.web.summaries import Summaries
from tidelog.web.time_maps import KnownMaps

EXACT_IN_BROWSERS = 2**53

Answer = dict[str, Any]


@dataclass
class Context:
    """The state of one server."""

    sources: SourcePools
    clock: Clock = field(default_factory=SystemClock)
    zone: str | None = None
    """The zone in which the page shows times; None for UTC."""
    decode: DecodeTexts = field(default_factory=DecodeTexts)
    """The decoding options of `tidelog ui`."""
    summaries: Summaries = field(default_factory=Summaries)
    maps: KnownMaps = field(default_factory=KnownMaps)

    @classmethod
    def of(cls, addresses: Sequence[str], **rest: Any) -> Context:
        """Return the context of a server for some addresses."""
        return cls(SourcePools(addresses), **rest)


def plain(number: int | None) -> int | str | None:
    """Return a number for JSON: as text if a browser could not represent it exactly."""
    return number if number is None or abs(number) < EXACT_IN_BROWSERS else str(number)


def known_ms(time_ms: int | None) -> int | str | None:
    """Return a timestamp, None for -1 (the record has none)."""
    return None if time_ms is None or time_ms == -1 else plain(time_ms)
