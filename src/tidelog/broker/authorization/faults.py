"""Requests that fail on demand, for tests of clients: `tidelog.Broker.fail` sets which requests fail, and how often.

A fault refuses a request, or the request's part for one topic, as if the client were not authorized, but with any of Kafka's
error codes. The refused part has no effect; everything else is answered as usual. `faulty_handler` applies the faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean
from tidelog.wire.error_codes import ErrorCode


class Fault:
    """An injected fault. `count` is how often it has occurred; `stop` ends it. Any thread may use it."""

    def __init__(self, api: str, code: ErrorCode | None, topic: str | None, times: int | None, ended: Callable[[], None]) -> None:
        self.api = api
        self.code = code
        """The error code of the response; None closes the connection without a response."""
        self.topic = topic
        """The topic whose requests fail; None for all requests."""
        self.count = 0
        self._left = times
        self._ended = ended

    def __repr__(self) -> str:
        about = "" if self.topic is None else f" of {self.topic!r}"
        left = "until it is stopped" if self._left is None else f"{self._left} times more"
        return f"<Fault {self.api}{about}: {'closed' if self.code is None else self.code.name}, {left}>"

    @property
    def is_over(self) -> bool:
        """Whether the fault has occurred as often as requested, or was stopped."""
        return self._left == 0

    def concerns(self, topic: str | None) -> bool:
        """Whether the fault applies to requests for this topic."""
        return self._left != 0 and (self.topic is None or topic == self.topic)

    def happened(self) -> None:
        """Count a request that failed because of this fault."""
        self.count += 1
        if self._left is not None and self._left > 1:
            self._left -= 1
        elif self._left:
            self.stop()

    def stop(self) -> None:
        """Answer requests as usual again, starting with the next one. Idempotent."""
        self._left = 0
        self._ended()


class Faults:
    """The current faults, by API. Use only on the event loop's thread; only `Fault.stop` may be called on any thread."""

    def __init__(self) -> None:
        self._by_api: dict[str, tuple[Fault, ...]] = {}
        self._with_topics: Mapping[str, bool] = {}
        self._changed: Callable[[], None] = dict[str, str]().clear

    def serve(self, with_topics: Mapping[str, bool], changed: Callable[[], None]) -> None:
        """Set the served APIs. `with_topics` maps each to whether it can fail for a single topic. `changed` is called when a
        fault is added or ends.
        """
        self._with_topics, self._changed = with_topics, changed

    def of(self, api: str) -> tuple[Fault, ...]:
        """Return the faults of an API, the oldest first."""
        return tuple(one for one in self._by_api.get(api, ()) if not one.is_over)

    def add(self, api: str, error: str | int | None, topic: str | None, times: int | None) -> Fault:
        """Add a fault. Raises InvalidArgumentError for one that can never occur."""
        if api not in self._with_topics:
            meant = did_you_mean(api, self._with_topics)
            raise InvalidArgumentError(
                "this broker does not serve this API", found=f"{api}{meant}", expected=_some(self._with_topics)
            )
        if topic is not None and not self._with_topics[api]:
            able = _some(name for name, is_able in self._with_topics.items() if is_able)
            raise InvalidArgumentError(f"{api} can only fail as a whole, not for one topic", found=topic, expected=able)
        if times is not None and times < 1:
            raise InvalidArgumentError("times is out of range", found=times, expected="1 or more, or None to fail until stopped")
        fault = Fault(api, None if error is None else _code(error), topic, times, self._changed)
        self._by_api[api] = (*self.of(api), fault)
        self._changed()
        return fault


def _code(error: str | int) -> ErrorCode:
    try:
        code = ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError):
        raise InvalidArgumentError(
            "unknown Kafka error", found=error, expected="the name of an error, such as NOT_LEADER_OR_FOLLOWER"
        ) from None
    if code == ErrorCode.NONE:
        raise InvalidArgumentError("a request cannot fail with a code that means success", found=code.name)
    return code


def _some(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
