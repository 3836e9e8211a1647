"""Rebalances groups, and ends the sessions of silent members.

    EMPTY ──────── first member ────────► PREPARING ── all joined, or time is up ──► COMPLETING ── leader's assignment ──► STABLE
      ▲                                     │  ▲                                        │                                    │
      └────────── nobody joined ────────────┘  └── a member joins, leaves or changes ───┴────────────────────────────────────┘

| the group waits for | at most for | after that time it |
|---|---|---|
| more members, if it was empty (1) | group.initial.rebalance.delay.ms | continues with those that have joined |
| known members, and assigned member ids, to join | the longest rebalance timeout | continues without those missing (2) |
| each member to send SyncGroup | the longest rebalance timeout | removes those that have not, and rebalances |
| a member's next heartbeat (3) | its session timeout | removes it, and rebalances |
| a new member's first generation | five minutes, because its client may be gone | answers its join with UNKNOWN_MEMBER_ID |
| a join with an assigned member id (KIP-394) | the session timeout in the first join | forgets the id |

(1) If a member joins during this wait and the group never had a generation, the wait is repeated, but all waits together last at
most the first member's rebalance timeout. (2) Static members stay; if only static members are left and none has joined, the group
waits again. (3) The session cannot end while one of the member's requests is pending.

A lost connection does not remove a member; only the end of its session does. Heartbeats move the member's deadline; its single
timer checks the deadline when it fires.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from tidelog.broker.coordinators.groups.group import UNKNOWN_MEMBER, Group, GroupState, JoinResult, Member, SyncResult
from tidelog.broker.coordinators.groups.membership import (
    answer_join,
    answer_sync,
    begin_generation,
    drop_all,
    elect_leader,
    forget_pending,
    has_joined,
    rebalance_timeout_ms,
    remove,
)
from tidelog.broker.core import Core
from tidelog.wire.error_codes import ErrorCode

logger = logging.getLogger("tidelog.broker")

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000

_CAN_REBALANCE = (GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


class Rebalance:
    """Runs rebalances and the sessions of members. `store` and `store_aside` write a group's generation (`Groups`)."""

    def __init__(
        self,
        core: Core,
        store: Callable[[Group], ErrorCode],
        store_aside: Callable[[Group, Callable[[], bool], Callable[[ErrorCode], object]], object],
    ) -> None:
        self._core = core
        self._store = store
        self._store_aside = store_aside

    # --- joining phase

    def may_prepare(self, group: Group, reason: str) -> None:
        """Begin a rebalance unless one is in progress."""
        if group.state in _CAN_REBALANCE:
            self.prepare(group, reason)

    def prepare(self, group: Group, reason: str) -> None:
        """Begin a rebalance: members must rejoin. `reason` is for the log."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._assign_nothing(group, ErrorCode.REBALANCE_IN_PROGRESS)
        _stop_awaiting_syncs(group)
        was_empty = group.state is GroupState.EMPTY
        group.reason = reason
        group.move(GroupState.PREPARING_REBALANCE, self._core.clock.now_ms())
        if was_empty:
            delay_ms = max(self._core.config.group_initial_rebalance_delay_ms, 0)
            self._await_more(group, delay_ms, max(rebalance_timeout_ms(group) - delay_ms, 0))
        else:
            self._await_joins(group)
            self.try_complete(group)

    def try_complete(self, group: Group) -> None:
        """End the joining phase if all members have joined."""
        if group.state is GroupState.PREPARING_REBALANCE and not group.waits_for_more and has_joined(group):
            self.complete_join(group)

    def _await_joins(self, group: Group) -> None:
        group.rebalance = self._core.delays.call_later(
            rebalance_timeout_ms(group), partial(self.complete_join, group), "rebalance"
        )

    def _await_more(self, group: Group, delay_ms: int, left_ms: int) -> None:
        group.waits_for_more = True
        look = partial(self._look_for_more, group, delay_ms, left_ms)
        if not delay_ms:
            # End the wait in the next turn of the loop, so that requests that arrived together with the first one are included.
            group.rebalance = self._core.timers.call_later(0, look)
            return
        # The delay only lets members that start together share a generation: a clock that does not advance must not block them.
        group.rebalance = self._core.delays.call_at_last(delay_ms, look, "first rebalance")

    def _look_for_more(self, group: Group, delay_ms: int, left_ms: int) -> None:
        if group.is_joined_by_more and left_ms:
            group.is_joined_by_more = False
            next_ms = min(max(self._core.config.group_initial_rebalance_delay_ms, 0), left_ms)
            self._await_more(group, next_ms, max(left_ms - delay_ms, 0))
        else:
            self.complete_join(group)

    def complete_join(self, group: Group) -> None:
        """End the joining phase with the members that have joined."""
        if group.rebalance is not None:
            group.rebalance.cancel()
            group.rebalance = None
        group.waits_for_more = False
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        missing = [one for one in group.members.values() if one.answer_join is None and not one.is_static]
        for member in missing:
            remove(group, member.member_id)
        if missing:
            logger.info("group %r: removed %d members that did not rejoin in time", group.group_id, len(missing))
        if not elect_leader(group) and group.members:
            self._await_joins(group)
            return
        begin_generation(group, self._core.clock.now_ms())
        self._core.metrics.counters.group_rebalances += 1
        if not group.members:
            logger.info("group %r: generation %d has no members (%s)", group.group_id, group.generation_id, group.reason)
            code = self._store(group)
            if code:
                # If storing fails, a restart loads the previous generation, which ends with its members' sessions.
                logger.warning("group %r: could not store the generation without members: %s", group.group_id, code.name)
            return
        logger.info(
            "group %r: generation %d, members: %d (%s)", group.group_id, group.generation_id, len(group.members), group.reason
        )
        members = tuple(group.members.values())
        for member in members:
            answer_join(group, member, generation_of(group, member, members if group.leader_id == member.member_id else ()))
            self.touch(group, member)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        wait_ms = rebalance_timeout_ms(group)
        late = partial(self._remove_late, group, group.generation_id)
        group.sync_timeout = self._core.delays.call_later(wait_ms, late, "assignment")

    # --- assignments

    def assign(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Give each member its assignment from the leader (an empty one if the leader sent none), and answer pending syncs. If
        storing fails, no member gets an assignment.
        """
        missing = 0
        for member in group.members.values():
            assignment = assignments.get(member.member_id)
            if assignment is None:
                missing += 1
            member.assignment = assignment or b""
        if missing:
            logger.warning("group %r: the leader sent no assignment for %d members", group.group_id, missing)
        generation_id = group.generation_id
        self._store_aside(
            group,
            lambda: group.generation_id == generation_id and group.state is GroupState.COMPLETING_REBALANCE,
            partial(self._assigned, group),
        )

    def _assigned(self, group: Group, code: ErrorCode) -> None:
        if code:
            self._assign_nothing(group, code)
            self.may_prepare(group, f"the assignment could not be stored: {code.name}")
            return
        for member in list(group.members.values()):
            self._send_assignment(group, member, SyncResult(code, member.assignment, group.protocol_type, group.protocol_name))
        group.move(GroupState.STABLE, self._core.clock.now_ms())

    def _assign_nothing(self, group: Group, code: ErrorCode) -> None:
        for member in list(group.members.values()):
            member.assignment = b""
            self._send_assignment(group, member, SyncResult(code))

    def _send_assignment(self, group: Group, member: Member, result: SyncResult) -> None:
        # If the deadline passed in the meantime, its timer was ignored, and no timer is left to check the deadline.
        if answer_sync(member, result):
            self.touch(group, member)

    def _remove_late(self, group: Group, generation_id: int) -> None:
        group.sync_timeout = None
        is_current = generation_id == group.generation_id and group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        if is_current and group.pending_syncs:
            late = [member_id for member_id in group.members if member_id in group.pending_syncs]
            for member_id in late:
                remove(group, member_id)
            self.prepare(group, f"{len(late)} members did not send SyncGroup in time")

    # --- sessions

    def touch(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Restart a member's session timer. It fires after `timeout_ms`; None means the member's session timeout."""
        wait_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.deadline_ms = deadline_ms = self._core.delays.now_ms() + wait_ms
        delay = member.delay
        if delay is not None:
            if member.looks_at_ms <= deadline_ms:
                return
            delay.cancel()
        self._look_later(group, member, wait_ms)

    def _look_later(self, group: Group, member: Member, wait_ms: int) -> None:
        member.looks_at_ms = member.deadline_ms
        member.delay = self._core.delays.call_later(wait_ms, partial(self._look_at_session, group, member), "session")

    def _look_at_session(self, group: Group, member: Member) -> None:
        member.delay = None
        if group.members.get(member.member_id) is not member or group.state is GroupState.DEAD:
            return
        left_ms = member.deadline_ms - self._core.delays.now_ms()
        if left_ms > 0:
            self._look_later(group, member, left_ms)
        elif member.is_new or (member.answer_join is None and member.answer_sync is None):
            logger.info("group %r: the session of member %r has ended", group.group_id, member.member_id)
            self._core.metrics.counters.group_sessions_ended += 1
            self.remove_member(group, member, "a member's session has ended")

    def await_pending(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Expect a member to join with a member id that has been assigned to it. A rebalance waits for that join."""

        def forget() -> None:
            forget_pending(group, member_id)
            self.try_complete(group)

        group.pending_members[member_id] = self._core.delays.call_later(timeout_ms, forget, "member id")

    def remove_member(self, group: Group, member: Member, reason: str) -> None:
        """Remove a member, and rebalance the others. Its pending requests get UNKNOWN_MEMBER_ID."""
        answer_join(group, member, JoinResult(UNKNOWN_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID))
        answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        remove(group, member.member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            self.try_complete(group)
        elif group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, reason)

    def resume(self, group: Group) -> None:
        """Start the session timers of all members of a group that was just loaded or converted. Rebalance it if it has more
        members than allowed.
        """
        if len(group.members) > self._core.config.group_max_size:
            self.prepare(group, "the group has more than group.max.size members")
        for member in list(group.members.values()):
            self.touch(group, member)


def generation_of(group: Group, member: Member, members: tuple[Member, ...] = (), skip_assignment: bool = False) -> JoinResult:
    """Return the JoinGroup result of a member for the group's current generation."""
    assert group.leader_id is not None
    return JoinResult(
        member.member_id,
        ErrorCode.NONE,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        members,
        skip_assignment,
    )


def forget_pending_sync(group: Group, member_id: str) -> None:
    """Note that a member has sent SyncGroup."""
    group.pending_syncs.discard(member_id)
    if not group.pending_syncs:
        _stop_awaiting_syncs(group)


def _stop_awaiting_syncs(group: Group) -> None:
    group.pending_syncs.clear()
    if group.sync_timeout is not None:
        group.sync_timeout.cancel()
        group.sync_timeout = None


def stop_waiting(group: Group) -> None:
    """Stop the timers of a group's rebalance."""
    _stop_awaiting_syncs(group)
    group.waits_for_more = group.is_joined_by_more = False
    if group.rebalance is not None:
        group.rebalance.cancel()
        group.rebalance = None


def give_up(group: Group) -> None:
    """Drop a group that this broker no longer coordinates. Pending requests get NOT_COORDINATOR."""
    stop_waiting(group)
    group.move(GroupState.DEAD, group.state_timestamp_ms)
    drop_all(group, ErrorCode.NOT_COORDINATOR)
