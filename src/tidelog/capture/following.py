"""Takes points continuously."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from tidelog.backup.manifest import Point
from tidelog.capture.capture import Capture
from tidelog.capture.figures import Figures
from tidelog.clock import Clock, steady
from tidelog.errors import BrokerError, BrokerUnreachableError, ProtocolError, StorageError

logger = logging.getLogger("tidelog.backup")

PASSING = (BrokerUnreachableError, BrokerError, ProtocolError, StorageError)
"""Errors after which the next attempt may succeed."""


def follow(capture: Capture, clock: Clock, every_ms: int, wait: Callable[[float], object], figures: Figures) -> Iterator[Point]:
    """Take and yield a point every `every_ms`, forever. `wait` waits for a number of seconds.

    If the brokers or the target do not respond, a warning is logged, and the next point is taken at its usual time. Other errors
    are raised.
    """
    passing = steady(clock)  # Not the machine's clock: if that clock were set back, the next point would be late by as much.
    if capture.last is not None:
        figures.known(capture.last)
    while True:
        began = passing.now_ms()
        try:
            point = capture.take()
        except PASSING as error:
            logger.warning("no point was taken: %s", error)
            figures.failed(clock.now_ms())
        else:
            yield figures.taken(point, clock.now_ms())
        wait(max(0, began + every_ms - passing.now_ms()) / 1000)
