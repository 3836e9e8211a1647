"""The timers of the members of consumer groups (KIP-848), by the broker's clock.

| timer | starts | ends with |
|---|---|---|
| session | with each heartbeat, and when the group is loaded | the member's removal |
| rebalance | when the member must revoke partitions; again when the group is loaded | its removal, if it has not revoked them |
| … of a classic member | when it must rejoin, or has joined and must send SyncGroup | its removal, if it has not done so |

Heartbeats move the session's deadline; its single timer checks the deadline when it fires.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.broker.coordinators.consumer_groups.consumer_group import LEAVING_FOR_NOW, ConsumerMember, MemberState
from tidelog.broker.coordinators.groups.group import Group, Session
from tidelog.broker.core import Core

AGAIN_MS = 1000
"""The time after which a member's removal is retried if its records could not be written."""


class ConsumerSessions:
    """Starts and ends the timers. `end` removes a member for a reason, and returns whether it succeeded."""

    def __init__(self, core: Core, end: Callable[[Group, ConsumerMember, str], bool]) -> None:
        self._core = core
        self._end = end

    def touch(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Restart a member's session."""
        delays = self._core.delays
        session = group.sessions.get(member_id)
        if session is None:
            session = group.sessions[member_id] = Session()
        session.deadline_ms = delays.now_ms() + timeout_ms
        if session.delay is not None:
            if session.looks_at_ms <= session.deadline_ms:
                return
            session.delay.cancel()
        self._look_at(group, member_id, session, timeout_ms)

    def _look_at(self, group: Group, member_id: str, session: Session, wait_ms: int) -> None:
        session.looks_at_ms = self._core.delays.now_ms() + wait_ms
        session.delay = self._core.delays.call_later(wait_ms, partial(self._look, group, member_id, session), "session")

    def _look(self, group: Group, member_id: str, session: Session) -> None:
        session.delay = None
        left_ms = session.deadline_ms - self._core.delays.now_ms()
        if left_ms > 0:
            self._look_at(group, member_id, session, left_ms)
        elif self._ends(group, member_id, "its session has ended"):
            self._core.metrics.counters.group_sessions_ended += 1
        elif member_id in group.sessions:
            self._look_at(group, member_id, session, AGAIN_MS)

    def reconciled(self, group: Group, member: ConsumerMember) -> None:
        """Start or stop a member's rebalance timer after the member's state has changed."""
        self.stop_awaiting(group, member.member_id)
        is_waiting = member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch != LEAVING_FOR_NOW
        if is_waiting and member.classic is None:
            self._await_revocation(group, member, member.rebalance_timeout_ms)

    def await_request(self, group: Group, member: ConsumerMember, reason: str, *, restarts: bool = False) -> None:
        """Start the rebalance timer for a classic member's next JoinGroup or SyncGroup. If the timer is already running, restart
        it only with `restarts`.
        """
        session = group.sessions[member.member_id]
        if restarts:
            self.stop_awaiting(group, member.member_id)
        if session.rebalance is None:
            self._await(group, member.member_id, reason, member.rebalance_timeout_ms)

    def stop_awaiting(self, group: Group, member_id: str) -> None:
        """Stop a member's rebalance timer."""
        session = group.sessions[member_id]
        if session.rebalance is not None:
            session.rebalance.cancel()
            session.rebalance = None

    def _await(self, group: Group, member_id: str, reason: str, wait_ms: int) -> None:
        def late() -> None:
            session = group.sessions.get(member_id)
            if session is not None:
                session.rebalance = None
                if not self._ends(group, member_id, reason) and member_id in group.sessions:
                    self._await(group, member_id, reason, AGAIN_MS)

        group.sessions[member_id].rebalance = self._core.delays.call_later(wait_ms, late, "classic member")

    def _await_revocation(self, group: Group, member: ConsumerMember, wait_ms: int) -> None:
        late = partial(self._late, group, member)
        group.sessions[member.member_id].rebalance = self._core.delays.call_later(wait_ms, late, "revocation")

    def _late(self, group: Group, before: ConsumerMember) -> None:
        session = group.sessions.get(before.member_id)
        member = None if group.consumer is None else group.consumer.members.get(before.member_id)
        if session is None or member is None:
            return
        session.rebalance = None
        is_late = member.epoch == before.epoch and member.state is MemberState.UNREVOKED_PARTITIONS
        if is_late and not self._ends(group, member.member_id, "it has not revoked its partitions in time"):
            self._await_revocation(group, member, AGAIN_MS)

    def _ends(self, group: Group, member_id: str, reason: str) -> bool:
        member = None if group.consumer is None else group.consumer.members.get(member_id)
        return member is not None and self._end(group, member, reason)


def forget_session(group: Group, member_id: str) -> None:
    """Stop a member's timers."""
    session = group.sessions.pop(member_id, None)
    if session is not None:
        for delay in (session.delay, session.rebalance):
            if delay is not None:
                delay.cancel()
