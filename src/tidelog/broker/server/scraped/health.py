"""Whether a broker's process is alive, and whether it serves: for `/healthz`, which `metrics_server` answers.

| phase | live | ready |
|---|---|---|
| starting: logs are loaded or recovered, a cluster is joined | yes | no |
| serving | if the event loop answers within `ANSWER_S` | the same, and the controllers have not fenced the broker |
| stopping | yes: a shutdown that hangs ends by itself | no |

A process that is not live probably hangs: restart it. A process that is not ready should get no clients for now.
"""

from __future__ import annotations

from collections.abc import Callable

ANSWER_S = 10.0
"""How long, in seconds, the event loop may take to answer."""

STARTING, STOPPING = "the broker is starting", "the broker is stopping"


class Health:
    """The state of a broker's process. Any thread may ask for it; `serving` and `stopping` are called once each."""

    def __init__(self) -> None:
        self._not_serving: str | None = STARTING
        self._ask: Callable[[], str | None] = lambda: None

    def serving(self, ask: Callable[[], str | None]) -> None:
        """Record that clients are served. `ask` returns why the broker is not ready, or None; it may raise TimeoutError."""
        self._ask = ask
        self._not_serving = None

    def stopping(self) -> None:
        """Record that the broker is shutting down."""
        self._not_serving = STOPPING

    def why_not_live(self) -> str | None:
        """Return why the process should be restarted, or None if it should not."""
        if self._not_serving is None:
            try:
                self._ask()
            except TimeoutError:
                return f"the event loop has not answered for {ANSWER_S:.0f} s"
            except Exception:  # The loop ends at this moment.
                return None
        return None

    def why_not_ready(self) -> str | None:
        """Return why no clients should be sent to the broker, or None if it is ready."""
        if self._not_serving is not None:
            return self._not_serving
        try:
            return self._ask()
        except TimeoutError:
            return f"the event loop has not answered for {ANSWER_S:.0f} s"
        except Exception:  # The loop ends at this moment.
            return STOPPING
