"""Coordinates consumer groups of the new protocol (KIP-848): writes what `consumer_groups` decides, then applies it, and keeps
the members' sessions.

A large group's assignment is made on another thread. Until it is there, members keep the previous one, as in Kafka 4.3, and all
members that join meanwhile are in the next one. Heartbeats of members that nothing changes for write nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.coordinators.consumer_groups.assignors import Assignments
from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    LEAVING,
    LEAVING_FOR_NOW,
    Change,
    ConsumerGroup,
    ConsumerMember,
    TopicFacts,
)
from tidelog.broker.coordinators.consumer_groups.heartbeats import Heartbeat, Result, heartbeat, leave, plan_of, removed
from tidelog.broker.coordinators.consumer_groups.refused import RefusedError
from tidelog.broker.coordinators.consumer_groups.target_assignment import Planned, renamed, target_changes
from tidelog.broker.coordinators.groups.consumer_sessions import ConsumerSessions, forget_session
from tidelog.broker.coordinators.groups.group import Group, GroupState
from tidelog.broker.coordinators.groups.topic_patterns import PatternMatches, matching
from tidelog.broker.requests.slices import Elsewhere
from tidelog.broker.settings.group_settings import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from tidelog.groups.offset_records import group_key
from tidelog.metadata.records import GROUP_RESOURCE
from tidelog.records.state_batches import Entry
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.core import Core
    from tidelog.broker.topics.topics import Topics

logger = logging.getLogger("tidelog.broker")

LARGE = 500
"""From this many members and partitions together, an assignment is made on another thread."""

MANY_TOPICS = 200
"""More topics than this are matched with a pattern on another thread."""

Write = Callable[[str, Sequence[Entry]], ErrorCode]
"""Appends records of a group; returns NONE or the error code for its members."""


class _Made(NamedTuple):
    """A finished assignment, with its records if the group has not changed meanwhile."""

    assignments: Assignments
    changes: list[Change]
    entries: list[Entry]


class ConsumerCoordinator:
    """The consumer groups of `Groups`, whose `get` and `write` it uses."""

    def __init__(self, core: Core, topics: Topics, get: Callable[[str], Group | None], write: Write) -> None:
        self._get = get
        self._core = core
        self._topics = topics
        self._write = write
        self._sessions = ConsumerSessions(core, self._end)
        self._assigning: set[ConsumerGroup] = set()
        self._patterns = PatternMatches()

    @property
    def is_enabled(self) -> bool:
        """Whether the protocol is on: ``group.coordinator.rebalance.protocols`` has "consumer"."""
        return self._core.config.has_consumer_groups

    @property
    def _assignors(self) -> tuple[str, ...]:
        return self._core.config.group_consumer_assignors

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often the members of a group send heartbeats, in ms."""
        return self._setting(group_id, HEARTBEAT_INTERVAL)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return how long the members of a group may be silent, in ms."""
        return self._setting(group_id, SESSION_TIMEOUT)

    def _setting(self, group_id: str, name: str) -> int:
        image = self._core.manager.image if self._core.plane is None else self._core.plane.image
        own = image.configs.get((GROUP_RESOURCE, group_id), {}).get(name, "")
        return int(own) if own.isdecimal() else self._core.config.consumer_groups[name].default

    def matching_elsewhere(self, group_id: str, regex: str | None) -> Generator[Elsewhere, Any, None]:
        """Match many topics on another thread, before a heartbeat needs the result. Raises RefusedError."""
        group = self._get(group_id)
        consumer = None if group is None else group.consumer
        wanted = {regex} if regex else set[str]()
        if consumer is not None and consumer.topics_seen != self._topics.generation:
            wanted |= {one.regex for one in consumer.subscriptions if one.regex is not None}
        for pattern in sorted(wanted):
            new = self._patterns.unseen(pattern, self._names())
            if len(new) > MANY_TOPICS:
                self._patterns.note(pattern, new, (yield Elsewhere(partial(matching, pattern, new))))

    def _names(self) -> frozenset[str]:
        return frozenset(view.name for view in self._topics.all())

    # --- members

    def heartbeat(self, group: Group, beat: Heartbeat, may_describe: Callable[[str], bool] | None = None) -> Result:
        """Let a member join, stay, or leave. `may_describe` tells which topics it may see by a pattern; None: all of them.

        Raises RefusedError. Then nothing has changed.
        """
        consumer, before = self._converted(group)
        around = _Surroundings(self._core, self._topics, self._assignors, self._topics.generation, self._patterns, may_describe)
        if beat.member_epoch in (LEAVING, LEAVING_FOR_NOW):
            result = leave(consumer, beat, around)
        else:
            result = heartbeat(consumer, beat, around)
        has_changed = consumer.members.get(beat.member_id) != result.member
        self._commit(group, consumer, result.changes, before)
        if beat.member_epoch == LEAVING:
            forget_session(group, beat.member_id)
            logger.info("group %r: member %r has left", group.group_id, beat.member_id)
            return result
        consumer.topics_seen = around.topics_seen
        if result.replaced is not None and result.replaced != beat.member_id:
            forget_session(group, result.replaced)
        if beat.member_epoch != LEAVING_FOR_NOW:
            self._sessions.touch(group, beat.member_id, self.session_timeout_ms(group.group_id))
        if has_changed and beat.member_id in group.sessions:
            self._sessions.reconciled(group, result.member)
        if result.needs_assignment:
            self._assign(group, consumer)
        return result

    def _converted(self, group: Group) -> tuple[ConsumerGroup, list[Entry]]:
        """Return the consumer group of an existing one, and the records that end an empty classic group."""
        if group.consumer is not None:
            return group.consumer, []
        if group.state is not GroupState.EMPTY:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"the group {group.group_id!r} has members of the classic protocol")
        return ConsumerGroup(group.group_id), [(group_key(group.group_id), None)] if group.generation_id else []

    def _commit(self, group: Group, consumer: ConsumerGroup, changes: Sequence[Change], before: Iterable[Entry] = ()) -> None:
        if changes:
            code = self._write(group.group_id, [*before, *map(entry, changes)])
            if code:
                raise RefusedError(code, "the group's records cannot be written")
            if group.consumer is None:
                group.generation_id = 0
                group.protocol_type = group.protocol_name = group.leader_id = None
            epoch = consumer.epoch
            consumer.apply(changes)
            group.consumer = consumer
            self._core.metrics.counters.group_rebalances += consumer.epoch - epoch

    def _end(self, group: Group, member: ConsumerMember, reason: str) -> bool:
        consumer = group.consumer
        assert consumer is not None
        around = _Surroundings(self._core, self._topics, self._assignors, consumer.topics_seen, self._patterns, None)
        try:
            self._commit(group, consumer, removed(consumer, [member], around))
        except RefusedError as error:
            logger.info("group %r: member %r cannot be removed yet: %s", group.group_id, member.member_id, error)
            return False
        forget_session(group, member.member_id)
        logger.info("group %r: member %r is removed: %s", group.group_id, member.member_id, reason)
        return True

    # --- loading

    def resume(self, group: Group) -> None:
        """Restart the sessions of a group that was just loaded."""
        assert group.consumer is not None
        for member in group.consumer.members.values():
            self._sessions.touch(group, member.member_id, self.session_timeout_ms(group.group_id))
            self._sessions.reconciled(group, member)

    def end_for_classic(self, group: Group) -> ErrorCode:
        """Delete an empty consumer group's records, because a classic member joins; its offsets stay. Return NONE or an error
        code.
        """
        entries = self.tombstones(group)
        code = self._write(group.group_id, entries) if entries else ErrorCode.NONE
        if not code:
            group.consumer = None
        return code

    def tombstones(self, group: Group) -> list[Entry]:
        """Return the records that delete a consumer group; none for a classic one."""
        return [] if group.consumer is None else list(map(entry, group.consumer.tombstones()))

    # --- assignments of large groups

    def _assign(self, group: Group, consumer: ConsumerGroup) -> None:
        if consumer in self._assigning:
            return
        self._assigning.add(consumer)
        around = _Surroundings(self._core, self._topics, self._assignors, consumer.topics_seen, self._patterns, None)
        plan = plan_of(consumer, around)
        self._core.heavy.run(partial(_made, group.group_id, plan), partial(self._assigned, group, consumer, plan))

    def _assigned(self, group: Group, consumer: ConsumerGroup, plan: Planned, made: _Made | BaseException) -> None:
        self._assigning.discard(consumer)
        if isinstance(made, BaseException):
            logger.error("group %r: no assignment for epoch %d: %s", group.group_id, plan.epoch, made)
            return
        if group.consumer is not consumer or group.state is GroupState.DEAD or plan.epoch <= consumer.assignment_epoch:
            return
        changes, entries = made.changes, made.entries
        if not consumer.members.keys() >= made.assignments.keys():
            still = renamed(consumer, plan, made.assignments)
            changes = target_changes(group.group_id, consumer.targets, still, plan.epoch)
            entries = list(map(entry, changes))
        code = self._write(group.group_id, entries)
        if code:
            logger.error("group %r: the assignment for epoch %d cannot be written: %s", group.group_id, plan.epoch, code.name)
        else:
            consumer.apply(changes)


class _Surroundings:
    """What a heartbeat's rules ask of the broker: see `heartbeats.Surroundings`."""

    def __init__(
        self,
        core: Core,
        topics: Topics,
        assignors: tuple[str, ...],
        topics_seen: object,
        patterns: PatternMatches,
        may_describe: Callable[[str], bool] | None,
    ) -> None:
        self._patterns = patterns
        self.max_size = core.config.group_consumer_max_size
        self.assignors = assignors
        self.topics_seen = topics_seen
        self._topics = topics
        self._may_describe = may_describe

    def facts(self, name: str) -> TopicFacts | None:
        view = self._topics.get(name)
        return None if view is None else TopicFacts(view.topic_id, view.partitions[-1].partition + 1)

    def matching(self, regex: str) -> frozenset[str]:
        found = self._patterns.matching(regex, frozenset(view.name for view in self._topics.all()))
        return found if self._may_describe is None else frozenset(filter(self._may_describe, found))

    def is_large(self, members: int, partitions: int) -> bool:
        return members + partitions > LARGE


def _made(group_id: str, plan: Planned) -> _Made:
    assignments = plan.run()
    before = {member_id: one.had for member_id, one in plan.assigning.members.items() if one.had}
    changes = target_changes(group_id, before, assignments, plan.epoch)
    return _Made(assignments, changes, list(map(entry, changes)))


def entry(change: Change) -> Entry:
    """Return the key and the value of a record."""
    key, value = change
    return encode_versioned(key, key.VERSIONS[0]), None if value is None else encode_versioned(value, 0)
