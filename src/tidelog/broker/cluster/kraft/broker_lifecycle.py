"""A broker's lifecycle in a KRaft cluster: registration, heartbeats, fencing and controlled shutdown (Kafka's
BrokerLifecycleManager, KIP-631, KIP-866).

Every state change follows from a heartbeat or from a call by the owner; `TRANSITIONS` lists the changes. A fenced broker leads no
partition, is in no ISR, and is hidden from clients. The controller fences a broker that sends no heartbeat within the session
timeout, and unfences it when heartbeats resume.

A broker that cannot write partitions that it leads asks to be fenced, so that other brokers take over. It stays fenced until its
disk works again, for at most `LEFT_S`. Kafka's broker shuts down when its only log directory fails.

| the controller answers | |
|---|---|
| DUPLICATE_BROKER_REGISTRATION | another process uses the node id, or used it until recently: retried until the deadline |
| INCONSISTENT_CLUSTER_ID, UNSUPPORTED_VERSION, INVALID_REGISTRATION | a retry cannot help: the broker stops with an error |
| STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED on a heartbeat | the broker registers again, in a new epoch |
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from enum import Enum
from time import monotonic

from tidelog.broker.loop.retry_log import RetryLog
from tidelog.errors import BrokerUnreachableError, InvalidArgumentError, UnsupportedVersionError
from tidelog.model import TopicPartition
from tidelog.transitions import Transitions, checked
from tidelog.wire.error_codes import ErrorCode, code_name
from tidelog.wire.fields import Message
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

logger = logging.getLogger("tidelog.broker")

SOON_S = 0.05
"""Seconds between heartbeats while the broker waits for a state change: until it is first unfenced, and during shutdown."""

RETRY_S = 0.2
MAX_RETRY_S = 2.0
LEFT_S = 30.0
"""The longest time in seconds that a broker with a failed disk stays fenced. After that it serves what it can."""

PATIENCE_S = 3.0
"""If a broker that has asked to be unfenced is still fenced after this many seconds, it logs that."""


class BrokerState(Enum):
    """Kafka's broker states by name; None means NOT_RUNNING."""

    STARTING = "STARTING"
    RECOVERY = "RECOVERY"
    RUNNING = "RUNNING"
    PENDING_CONTROLLED_SHUTDOWN = "PENDING_CONTROLLED_SHUTDOWN"
    SHUTTING_DOWN = "SHUTTING_DOWN"


TRANSITIONS: Transitions[BrokerState | None] = {
    None: {BrokerState.STARTING: "the broker is started"},
    BrokerState.STARTING: {
        BrokerState.RECOVERY: "it has replayed the metadata up to its own registration",
        BrokerState.SHUTTING_DOWN: "it shuts down before that, or cannot register",
    },
    BrokerState.RECOVERY: {
        BrokerState.RUNNING: "its logs are loaded, and the controller has unfenced it",
        BrokerState.PENDING_CONTROLLED_SHUTDOWN: "it shuts down before that",
        BrokerState.SHUTTING_DOWN: "it fails",
    },
    BrokerState.RUNNING: {
        BrokerState.PENDING_CONTROLLED_SHUTDOWN: "it was asked to shut down: the controller moves leadership to other brokers",
        BrokerState.SHUTTING_DOWN: "it fails, or was asked to stop at once",
    },
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: {
        BrokerState.SHUTTING_DOWN: "the controller has completed the controlled shutdown, or does not respond in time",
    },
    BrokerState.SHUTTING_DOWN: {None: "it has ended"},
}

_FATAL = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the controllers belong to a different cluster",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster has a feature at a level that this broker does not support",
    ErrorCode.INVALID_REGISTRATION: "the controller rejects this registration as invalid "
    "(is the folder a copy of another broker's? Each folder needs its own directory.id)",
}

_UNREGISTERED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)

Call = Callable[[Message, float], Awaitable[Message]]


class BrokerLifecycle:
    """Registers the broker and keeps it registered, in `run`. Use only on the event loop's thread.

    `register` registers the broker, and `call` sends a request to the active controller, each within the given number of seconds;
    `metadata_offset` returns the last offset that was replayed.
    """

    def __init__(
        self,
        node_id: int,
        *,
        call: Call,
        register: Callable[[uuid.UUID, float], Awaitable[BrokerRegistrationRequest]],
        metadata_offset: Callable[[], int],
        heartbeat_s: float,
        session_s: float,
        registration_timeout_s: float,
    ) -> None:
        self.node_id = node_id
        self.state: BrokerState | None = None
        self.incarnation_id = uuid.uuid4()
        self.broker_epoch = -1
        """The epoch of the registration; -1 before the broker is registered."""
        self.is_fenced = True
        self.waits_for = ""
        """Why the broker does not serve yet, as text; "" once it serves."""
        self.caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes once the broker has replayed the metadata up to its registration."""
        self.unfenced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes when the broker is unfenced for the first time."""
        self.unwritable: Callable[[bool], TopicPartition | None] = lambda is_led: None
        """Called before each heartbeat. Returns a partition that this broker cannot write and that has other replicas, or
        None. With `is_led`, only partitions that this broker leads and that others could lead count.
        """
        self._left_until = 0.0
        self._call = call
        self._register = register
        self._metadata_offset = metadata_offset
        self._heartbeat_s = heartbeat_s
        self._session_s = session_s
        self._registration_timeout_s = registration_timeout_s
        self._is_ready = False
        self._ready_at = 0.0
        self._is_outdated = False
        self._released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wake = asyncio.Event()
        self._log = RetryLog(logger)

    def ready_to_unfence(self) -> None:
        """From now on, ask the controller to unfence this broker, because it can serve."""
        self._is_ready = True
        self._ready_at = monotonic()
        self._wake.set()

    def hurry(self) -> None:
        """Send the next heartbeat now if the broker waits for a state change that may be possible now."""
        if self.state in (BrokerState.STARTING, BrokerState.RECOVERY) or self.is_fenced:
            self._wake.set()

    def register_again(self) -> None:
        """Register again in the same epoch, because the controllers now store the broker's log directories."""
        self._is_outdated = True
        self._wake.set()

    async def run(self) -> None:
        """Register, and send heartbeats until the controller completes the shutdown.

        No heartbeat is sent after that, because it would delay the next start's registration by one session timeout. Raises
        TidelogError if the broker cannot be registered.
        """
        self._move(BrokerState.STARTING)
        await self._be_registered()
        while not self._released.done():
            try:
                if self._is_outdated:
                    await self._amend_registration()
                await self._heartbeat()
            except BrokerUnreachableError as error:
                self._log_waiting(f"no heartbeat reaches the controller: {error}")
            try:
                async with asyncio.timeout(self._interval_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def shut_down_controlled(self, timeout_s: float) -> bool:
        """Ask the controller to move leadership away and to complete the shutdown. Return whether it did so in time."""
        if self.state not in (BrokerState.RECOVERY, BrokerState.RUNNING) or self.broker_epoch < 0:
            return False
        self._move(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._released)
        except TimeoutError:
            logger.warning("the controller did not complete the controlled shutdown within %g s", timeout_s)
            return False
        return True

    def end(self) -> None:
        """Stop sending heartbeats. Idempotent."""
        if self.state not in (BrokerState.SHUTTING_DOWN, None):
            self._move(BrokerState.SHUTTING_DOWN)
        if self.state is BrokerState.SHUTTING_DOWN:
            self._move(None)

    # --- registration

    async def _be_registered(self) -> None:
        deadline = monotonic() + self._registration_timeout_s
        wait_s, reason = RETRY_S, ""
        while (left_s := deadline - monotonic()) > 0:
            try:
                refusal = await self._try_to_register(left_s)
            except BrokerUnreachableError as error:
                # The controller's last error says more than a timeout would.
                reason = reason or str(error)
            else:
                if refusal is None:
                    return
                reason = refusal
            self._log_waiting(f"not registered yet: {reason}")
            await asyncio.sleep(min(wait_s, max(deadline - monotonic(), 0)))
            wait_s = min(2 * wait_s, MAX_RETRY_S)
        raise BrokerUnreachableError(f"the broker was not registered within {self._registration_timeout_s:g} s: {reason}")

    async def _try_to_register(self, timeout_s: float) -> str | None:
        """Try to register. Return None on success, or the reason why it must be retried. Raises TidelogError if a retry cannot
        help.
        """
        deadline = monotonic() + timeout_s
        request = await self._register(self.incarnation_id, timeout_s)
        response = await self._call(request, max(deadline - monotonic(), SOON_S))
        assert isinstance(response, BrokerRegistrationResponse)
        code = response.error_code
        if not code:
            self.broker_epoch = response.broker_epoch
            logger.info("registered as broker %d, epoch %d", self.node_id, self.broker_epoch)
            return None
        if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return f"another broker with node.id={self.node_id} is running, or has just ended and is not fenced yet"
        if code in _FATAL:
            error = UnsupportedVersionError if code == ErrorCode.UNSUPPORTED_VERSION else InvalidArgumentError
            raise error(f"the broker cannot be registered: {_FATAL[ErrorCode(code)]}", found=ErrorCode(code).name)
        return f"the controller answers {code_name(code)}"

    async def _amend_registration(self) -> None:
        refusal = await self._try_to_register(max(self._session_s / 2, SOON_S))
        if refusal is None:
            self._is_outdated = False
        else:
            self._log_waiting(f"its registration is not renewed yet: {refusal}")

    # --- heartbeats

    async def _heartbeat(self) -> None:
        wants_shut_down = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        request = BrokerHeartbeatRequest(
            self.node_id,
            self.broker_epoch,
            self._metadata_offset(),
            want_fence=not self._is_ready or (self.state is BrokerState.RUNNING and self._must_be_left()),
            want_shut_down=wants_shut_down,
        )
        response = await self._call(request, max(self._session_s / 2, SOON_S))
        assert isinstance(response, BrokerHeartbeatResponse)
        code = response.error_code
        if code in _UNREGISTERED:
            gone = self.node_id, self.broker_epoch, code_name(code)
            self._log.failed("broker %d is no longer registered in epoch %d: %s", *gone)
            self._set_fenced(True)
            if wants_shut_down:
                self._release()
                return
            await self._be_registered()
            self._wake.set()
        elif code:
            self._log_waiting(f"the controller answers a heartbeat with {code_name(code)}")
        else:
            self._take(response)

    def _must_be_left(self) -> bool:
        """Return whether the broker should be fenced so that other brokers lead its partitions. If it were unfenced too early, it
        would lead them again and fail again.
        """
        is_left = monotonic() < self._left_until
        key = self.unwritable(not is_left)
        if key is None:
            self._left_until = 0.0
        elif not is_left:
            self._left_until = monotonic() + LEFT_S
            logger.warning(
                "%s-%d cannot be written: the controllers will move leadership away from broker %d", *key, self.node_id
            )
        return key is not None

    def _take(self, response: BrokerHeartbeatResponse) -> None:
        if self.state is BrokerState.STARTING and response.is_caught_up:
            self._move(BrokerState.RECOVERY)
            self.caught_up.set_result(None)
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.is_fenced = response.is_fenced
            if response.should_shut_down:
                self._release()
            return
        self._set_fenced(response.is_fenced)
        if not response.is_fenced:
            self._log.works("broker %d: the controller answers its heartbeats", self.node_id)
        if self.state is BrokerState.RECOVERY and not response.is_fenced:
            self._move(BrokerState.RUNNING)
            self.unfenced.set_result(None)
        elif response.is_fenced and self._is_ready and monotonic() - self._ready_at >= PATIENCE_S:
            self._log_waiting(f"fenced; metadata is replayed up to offset {self._metadata_offset()}")

    def _set_fenced(self, is_fenced: bool) -> None:
        if self.is_fenced != is_fenced:
            logger.log(
                logging.WARNING if is_fenced else logging.INFO,
                "broker %d is %s",
                self.node_id,
                "fenced" if is_fenced else "unfenced",
            )
        self.is_fenced = is_fenced
        if not is_fenced:
            self.waits_for = ""

    def _release(self) -> None:
        if not self._released.done():
            self._released.set_result(None)

    def _interval_s(self) -> float:
        if self._released.done():
            return 0
        is_changing = self.state in (BrokerState.STARTING, BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        if is_changing or (self.state is BrokerState.RECOVERY and self._is_ready):
            return min(SOON_S, self._heartbeat_s)
        return self._heartbeat_s / 2 if self.is_fenced else self._heartbeat_s

    def _log_waiting(self, reason: str) -> None:
        self.waits_for = reason
        self._log.failed("broker %d waits: %s", self.node_id, reason)

    def _move(self, state: BrokerState | None) -> None:
        self.state = checked(TRANSITIONS, self.state, state, f"broker {self.node_id}")
        logger.info("broker %d is %s", self.node_id, "NOT_RUNNING" if state is None else state.value)
