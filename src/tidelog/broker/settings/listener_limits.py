"""A listener's connection limits, from its properties: see `server.connection_limits`, which enforces them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidelog.broker.requests.listeners import Listener
from tidelog.config import INT32_MAX
from tidelog.errors import InvalidArgumentError

MAX_CONNECTIONS: Final = "max.connections"
CREATION_RATE: Final = "max.connection.creation.rate"

UNLIMITED: Final = INT32_MAX

_OF_A_LISTENER = re.compile(rf"listener\.name\.[^.]+\.(?:{re.escape(MAX_CONNECTIONS)}|{re.escape(CREATION_RATE)})")


def is_limit(name: str) -> bool:
    """Whether a property limits the connections of a listener."""
    return _OF_A_LISTENER.fullmatch(name) is not None


def limit_of(listener: Listener, given: Mapping[str, str], name: str) -> int:
    """Return a listener's limit. Raises InvalidArgumentError for an invalid value."""
    full = f"listener.name.{listener.name.lower()}.{name}"
    text = given.get(full, "").strip()
    if not text:
        return UNLIMITED
    if not text.isdecimal() or int(text) > UNLIMITED:
        raise InvalidArgumentError(f"{full} is out of range", found=repr(text), expected=f"0 to {UNLIMITED}")
    return int(text)
