"""Coordinates consumer groups of the new protocol (KIP-848): writes the changes that `consumer_groups` computes, then applies
them, and keeps the members' sessions.

A large group's assignment is computed on another thread. Until it is complete, members keep the previous assignment, as in
Kafka 4.3. Members that join in the meantime are in the following assignment. The other thread competes with the event loop for
the GIL. So the group's next assignment begins only after a pause of `REST` times the computation's duration, at most
`LONGEST_REST_MS`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tidelog.broker.coordinators.consumer_groups.assignors import Assignments
from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    LEAVING,
    LEAVING_FOR_NOW,
    Change,
    ConsumerGroup,
    ConsumerMember,
    RefusedError,
    TopicFacts,
)
from tidelog.broker.coordinators.consumer_groups.heartbeats import (
    Heartbeat,
    Result,
    heartbeat,
    known,
    leave,
    plan_of,
    removed,
)
from tidelog.broker.coordinators.consumer_groups.target_assignment import Planned, renamed, target_changes
from tidelog.broker.coordinators.groups.consumer_sessions import ConsumerSessions, forget_session
from tidelog.broker.coordinators.groups.group import Group, GroupState
from tidelog.broker.coordinators.groups.group_records import group_entry
from tidelog.broker.coordinators.groups.membership import drop_all
from tidelog.broker.coordinators.groups.migration import check_upgrade, downgraded, may_downgrade, upgraded
from tidelog.broker.coordinators.groups.rebalance import Rebalance, stop_waiting
from tidelog.broker.coordinators.groups.topic_patterns import PatternMatches, matching
from tidelog.broker.core import Core
from tidelog.broker.requests.slices import Elsewhere
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.group_settings import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from tidelog.broker.topics.topics import Topics
from tidelog.groups.offset_records import group_key
from tidelog.metadata.records import GROUP_RESOURCE
from tidelog.records.state_batches import Entry
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode

logger = logging.getLogger("tidelog.broker")

LARGE = 500
"""If the members and partitions of an assignment together exceed this number, another thread computes it."""

REST = 4
"""The pause before a group's next assignment, as a multiple of the time that the other thread has worked."""

LONGEST_REST_MS = 1000

MANY_TOPICS = 200
"""A pattern that must be matched with more topics than this is matched on another thread."""

Write = Callable[[str, Sequence[Entry]], ErrorCode]
"""Appends records of a group. Returns NONE, or the error code for the group's members."""


class _Made(NamedTuple):
    """A finished assignment, with its records. They are valid if no member has left in the meantime."""

    assignments: Assignments
    changes: list[Change]
    entries: list[Entry]
    worked_s: float
    """The processor time of the computation, in seconds."""


class ConsumerCoordinator:
    """Coordinates the consumer groups of `Groups`, with the `get`, `write` and `rebalance` of `Groups`."""

    def __init__(
        self,
        core: Core,
        topics: Topics,
        get: Callable[[str], Group | None],
        write: Write,
        rebalance: Rebalance,
        group_version: int,
    ) -> None:
        self._get = get
        self._core = core
        self._topics = topics
        self._write = write
        self._rebalance = rebalance
        self._group_version = group_version
        self.sessions = ConsumerSessions(core, self._end)
        self._assigning: set[ConsumerGroup] = set()
        self._patterns = PatternMatches()

    @property
    def is_enabled(self) -> bool:
        """Whether the protocol is on: ``group.coordinator.rebalance.protocols`` has "consumer"."""
        return self._core.config.has_consumer_groups

    @property
    def config(self) -> BrokerConfig:
        return self._core.config

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often the members of a group send heartbeats, in ms."""
        return self._setting(group_id, HEARTBEAT_INTERVAL)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return how long the members of a group may be silent, in ms."""
        return self._setting(group_id, SESSION_TIMEOUT)

    def _setting(self, group_id: str, name: str) -> int:
        image = self._core.manager.image if self._core.plane is None else self._core.plane.image
        own = image.configs.get((GROUP_RESOURCE, group_id))
        text = own.get(name, "") if own else ""
        return int(text) if text.isdecimal() else self._core.config.consumer_groups[name].default

    def matching_elsewhere(self, group_id: str, regex: str | None) -> Generator[Elsewhere, Any, None]:
        """Match the group's patterns against topic names before a heartbeat needs the results. If there are many names, another
        thread matches them. Raises RefusedError.
        """
        group = self._get(group_id)
        consumer = None if group is None else group.consumer
        wanted = {regex} if regex else set[str]()
        if consumer is not None and consumer.topics_seen != self._topics.generation:
            wanted |= {one.regex for one in consumer.subscriptions if one.regex is not None}
        for pattern in sorted(wanted):
            new = self._patterns.unseen(pattern, _names(self._topics))
            if len(new) > MANY_TOPICS:
                self._patterns.note(pattern, new, (yield Elsewhere(partial(matching, pattern, new))))

    # --- members

    def heartbeat(self, group: Group, beat: Heartbeat, may_describe: Callable[[str], bool] | None = None) -> Result:
        """Let a member join, stay, or leave. `may_describe` returns whether the member's patterns may match a topic; None
        means that they may match every topic.

        If it raises RefusedError, nothing has changed.
        """
        consumer, before = self._converted(group)
        around = self.around(may_describe)
        if beat.member_epoch == LEAVING:
            member = known(consumer, beat.member_id, beat.instance_id)
            self.remove(group, consumer, [member], "it has left")
            return Result([], member._replace(epoch=LEAVING))
        if beat.member_epoch == LEAVING_FOR_NOW:
            result = leave(consumer, beat, around)
        else:
            result = heartbeat(consumer, beat, around)
        has_changed = consumer.members.get(beat.member_id) != result.member
        self.commit(group, consumer, result.changes, before)
        consumer.topics_seen = around.topics_seen
        if result.replaced is not None and result.replaced != beat.member_id:
            forget_session(group, result.replaced)
        if beat.member_epoch != LEAVING_FOR_NOW:
            self.sessions.touch(group, beat.member_id, self.session_timeout_ms(group.group_id))
        if has_changed and beat.member_id in group.sessions:
            self.sessions.reconciled(group, result.member)
        if result.needs_assignment:
            self.assign(group, consumer)
        return result

    def stays(self, group: Group, member_id: str, epoch: int, instance_id: str | None, client_id: str, client_host: str) -> bool:
        """If a heartbeat with only these fields changes nothing, restart the member's session. Return whether that is so."""
        consumer = group.consumer
        member = None if consumer is None else consumer.members.get(member_id)
        if consumer is None or member is None or consumer.topics_seen != self._topics.generation:
            return False
        awaited = consumer.assignment_epoch
        if consumer.epoch != awaited and consumer not in self._assigning:
            return False
        said = (epoch, instance_id, client_id, client_host)
        if not member.is_reconciled_to(awaited) or member.classic is not None or member.said != said:
            return False
        self.sessions.touch(group, member_id, self.session_timeout_ms(group.group_id))
        return True

    def around(self, may_describe: Callable[[str], bool] | None = None) -> _Surroundings:
        """Return the facts about the broker that the rules use. `may_describe` has the same meaning as for `heartbeat`."""
        return _Surroundings(self._core, self._topics, self._patterns, may_describe)

    def _converted(self, group: Group) -> tuple[ConsumerGroup, list[Entry]]:
        """Return the group's data as a consumer group, and the records that convert it; none if it is not a classic group."""
        if group.consumer is not None:
            return group.consumer, []
        consumer = ConsumerGroup(group.group_id)
        entries: list[Entry] = [(group_key(group.group_id), None)] if group.generation_id else []
        if group.state is not GroupState.EMPTY:
            check_upgrade(group, self.config)
            changes = upgraded(group, self.id_of)
            consumer.apply(changes)
            entries += map(entry, changes)
        return consumer, entries

    def commit(self, group: Group, consumer: ConsumerGroup, changes: Sequence[Change], before: Iterable[Entry] = ()) -> None:
        """Write the records `before` and then the changes, and apply the changes. Raises RefusedError if they cannot be
        written; then nothing has changed.
        """
        if not changes:
            return
        code = self._write(group.group_id, [*before, *map(entry, changes)])
        if code:
            raise RefusedError(code, "the group's records cannot be written")
        epoch = consumer.epoch
        consumer.apply(changes)
        if group.consumer is None:
            self._upgrade(group, consumer)
        self._core.metrics.counters.group_rebalances += consumer.epoch - epoch

    def _upgrade(self, group: Group, consumer: ConsumerGroup) -> None:
        """Make a classic group a consumer group, after its records have been written."""
        if group.state is not GroupState.EMPTY:
            logger.info("group %r is now a consumer group, with %d classic members", group.group_id, len(group.members))
            group.move(GroupState.EMPTY, self._core.clock.now_ms())
        stop_waiting(group)
        drop_all(group, ErrorCode.REBALANCE_IN_PROGRESS)  # They are now in the consumer group.
        group.generation_id = 0
        group.protocol_type = group.protocol_name = group.leader_id = None
        group.consumer = consumer
        self.resume(group)

    # --- the end of members

    def remove(self, group: Group, consumer: ConsumerGroup, members: Sequence[ConsumerMember], reason: str) -> None:
        """Remove members. If only classic members are left and downgrades are allowed, the group becomes a classic group.

        If the records cannot be written, it raises RefusedError, and nothing has changed.
        """
        going = {one.member_id for one in members}
        if may_downgrade(consumer, going, self.config):
            self.downgrade(group, consumer, going, f"the last member of the new protocol is removed: {reason}")
        else:
            around = self.around()
            around.topics_seen = consumer.topics_seen  # Patterns are matched again for a member that may see the topics.
            self.commit(group, consumer, removed(consumer, members, around))
        for member_id in going:
            forget_session(group, member_id)
            logger.info("group %r: removed member %r: %s", group.group_id, member_id, reason)

    def downgrade(self, group: Group, consumer: ConsumerGroup, leaving: Collection[str], reason: str | None) -> None:
        """Make a consumer group a classic group, without the leaving members. Rebalance it if `reason` is not None.

        If the records cannot be written, it raises RefusedError, and nothing has changed.
        """
        made = downgraded(consumer, leaving, self.name_of, self._core.clock.now_ms(), rebalances=reason is not None)
        code = self._write(group.group_id, [*self.tombstones(group), group_entry(made, self._group_version)])
        if code:
            raise RefusedError(code, "the group's records cannot be written")
        for member_id in list(group.sessions):
            forget_session(group, member_id)
        group.consumer = None
        for name in ("generation_id", "protocol_type", "protocol_name", "leader_id", "members", "static_members"):
            setattr(group, name, getattr(made, name))
        group.protocol_counts = None
        group.move(GroupState.STABLE, self._core.clock.now_ms())
        self._rebalance.resume(group)
        if reason is not None:
            self._rebalance.may_prepare(group, reason)

    def epoch_of(self, consumer: ConsumerGroup) -> int:
        """Return the epoch that classic members should reach. While another thread computes an assignment, that is the previous
        epoch, because members that rejoin before the assignment is complete would get nothing new.
        """
        return consumer.assignment_epoch if consumer in self._assigning else consumer.epoch

    def id_of(self, topic: str) -> uuid.UUID | None:
        """Return a topic's id, or None if the topic does not exist."""
        view = self._topics.get(topic)
        return None if view is None else view.topic_id

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """Return a topic's name, or None if the topic does not exist."""
        view = self._topics.by_id(topic_id)
        return None if view is None else view.name

    def _end(self, group: Group, member: ConsumerMember, reason: str) -> bool:
        consumer = group.consumer
        assert consumer is not None
        try:
            self.remove(group, consumer, [member], reason)
        except RefusedError as error:
            logger.info("group %r: member %r cannot be removed yet: %s", group.group_id, member.member_id, error)
            return False
        return True

    # --- loading

    def resume(self, group: Group) -> None:
        """Start the timers of all members of a group that was just loaded or converted."""
        assert group.consumer is not None
        timeout_ms = self.session_timeout_ms(group.group_id)
        for member in group.consumer.members.values():
            own_ms = timeout_ms if member.classic is None else member.classic.session_timeout_ms
            self.sessions.touch(group, member.member_id, own_ms)
            self.sessions.reconciled(group, member)

    def end_for_classic(self, group: Group) -> ErrorCode:
        """Delete an empty consumer group's records, because a classic member joins. The group's offsets stay. Return NONE or an
        error code.
        """
        entries = self.tombstones(group)
        code = self._write(group.group_id, entries) if entries else ErrorCode.NONE
        if not code:
            group.consumer = None
        return code

    def tombstones(self, group: Group) -> list[Entry]:
        """Return the records that delete a consumer group; none for a classic group."""
        return [] if group.consumer is None else list(map(entry, group.consumer.tombstones()))

    # --- assignments of large groups

    def assign(self, group: Group, consumer: ConsumerGroup) -> None:
        """Have another thread compute the target assignment, unless it already computes one for this group or pauses after it."""
        if consumer not in self._assigning:
            self._assigning.add(consumer)
            self._plan(group, consumer)

    def _plan(self, group: Group, consumer: ConsumerGroup) -> None:
        plan = plan_of(consumer, self.around())
        self._core.heavy.run(partial(_made, group.group_id, plan), partial(self._assigned, group, consumer, plan))

    def _rest(self, group: Group, consumer: ConsumerGroup, worked_s: float) -> None:
        """After a pause, compute the next assignment if the group has changed."""

        def go_on() -> None:
            if group.consumer is consumer and consumer.epoch > consumer.assignment_epoch:
                self._plan(group, consumer)
            else:
                self._assigning.discard(consumer)

        # A clock that does not advance must not block a group.
        self._core.delays.call_at_last(min(int(worked_s * REST * 1000), LONGEST_REST_MS), go_on, "assignment")

    def _assigned(self, group: Group, consumer: ConsumerGroup, plan: Planned, made: _Made | BaseException) -> None:
        if isinstance(made, BaseException):
            self._assigning.discard(consumer)
            logger.error("group %r: could not compute the assignment for epoch %d: %s", group.group_id, plan.epoch, made)
            return
        self._rest(group, consumer, made.worked_s)
        if group.consumer is not consumer or group.state is GroupState.DEAD or plan.epoch <= consumer.assignment_epoch:
            return
        changes, entries = made.changes, made.entries
        if not consumer.members.keys() >= made.assignments.keys():
            still = renamed(consumer, plan, made.assignments)
            changes = target_changes(group.group_id, consumer.targets, still, plan.epoch)
            entries = list(map(entry, changes))
        code = self._write(group.group_id, entries)
        if code:
            logger.error("group %r: could not write the assignment for epoch %d: %s", group.group_id, plan.epoch, code.name)
        else:
            consumer.apply(changes)


class _Surroundings:
    """The facts about the broker that a heartbeat's rules use: see `heartbeats.Surroundings`."""

    def __init__(
        self,
        core: Core,
        topics: Topics,
        patterns: PatternMatches,
        may_describe: Callable[[str], bool] | None,
    ) -> None:
        self._patterns = patterns
        self.max_size = core.config.group_consumer_max_size
        self.assignors = core.config.group_consumer_assignors
        self.topics_seen: object = topics.generation
        self._topics = topics
        self._may_describe = may_describe

    def facts(self, name: str) -> TopicFacts | None:
        view = self._topics.get(name)
        return None if view is None else TopicFacts(view.topic_id, view.partitions[-1].partition + 1)

    def matching(self, regex: str) -> frozenset[str]:
        found = self._patterns.matching(regex, _names(self._topics))
        return found if self._may_describe is None else frozenset(filter(self._may_describe, found))

    def is_large(self, members: int, partitions: int) -> bool:
        return members + partitions > LARGE


def _names(topics: Topics) -> frozenset[str]:
    return frozenset(view.name for view in topics.all())


def _made(group_id: str, plan: Planned) -> _Made:
    began = time.thread_time()
    assignments = plan.run()
    before = {member_id: one.had for member_id, one in plan.assigning.members.items() if one.had}
    changes = target_changes(group_id, before, assignments, plan.epoch)
    entries = list(map(entry, changes))
    return _Made(assignments, changes, entries, time.thread_time() - began)


def entry(change: Change) -> Entry:
    """Return the encoded key and value of a change's record."""
    key, value = change
    return encode_versioned(key, key.VERSIONS[0]), None if value is None else encode_versioned(value, 0)
