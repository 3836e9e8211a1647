"""A broker that dies between any two of its appends has its groups as they were before the step that it died in, or after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.eos.crash_points import PROPERTIES, CrashPoints
from tests.broker.groups.members import Member
from tests.broker.groups.offset_requests import Offset, commit, delete_groups, delete_offsets, fetch, loaded
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest

GROUPS = ["group", "alone"]


def seen(broker: RunningBroker) -> dict[str, Any]:
    """What clients see of the groups, and their generations."""
    groups = loaded(broker)
    with broker.client() as client:
        described = client.ask(DescribeGroupsRequest(GROUPS), 5).groups
        offsets = {name: fetch(client, name) for name in GROUPS}
    generations = {name: broker.on_loop(lambda name=name: getattr(groups.get(name), "generation_id", None)) for name in GROUPS}  # type: ignore[misc]
    return {
        one.group_id: (
            one.group_state,
            one.protocol_type,
            one.protocol_data,
            sorted((each.member_id, each.member_metadata, each.member_assignment) for each in one.members),
            offsets[one.group_id],
            generations[one.group_id],
        )
        for one in described
    }


def test_a_crash_behind_any_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_broker: StartBroker) -> None:
    broker = start_broker(tmp_path / "data", **PROPERTIES)
    broker.create_topic("a")
    broker.create_topic("b")
    points = CrashPoints(broker.data_dir, tmp_path)
    states = []

    def step(name: str, act: Any) -> None:
        points.step(name, act)
        states.append(seen(broker))

    with Member(broker.address) as one, Member(broker.address) as other, broker.client() as client:
        points.install(monkeypatch)

        def enter() -> None:
            one.enter()
            assert one.joined().error_code == 0
            one.sync({one.member_id: b"all"})
            assert one.synced().error_code == 0

        def enter_as_second() -> None:
            # An id first; the JoinGroup that waits is the second.
            other.join()
            other.joined()
            other.join()
            while one.heartbeat() == 0:
                pass
            one.join()
            assert (one.joined().error_code, other.joined().error_code) == (0, 0)
            members = (one, other) if one.is_leader else (other, one)
            for member in members:
                member.sync({each.member_id: each.member_id.encode() for each in members} if member.is_leader else None)
            assert [member.synced().error_code for member in members] == [0, 0]

        def commit_as(member: Member, offsets: dict[tuple[str, int], Offset]) -> None:
            more: dict[str, Any] = {"generation_id_or_member_epoch": member.generation_id, "member_id": member.member_id}
            assert set(commit(member.client, "group", offsets, **more).values()) == {0}

        def leave() -> None:
            assert other.leave().error_code == 0
            assert one.leave().error_code == 0

        states.append(seen(broker))
        step("the first member", enter)
        step("offsets", lambda: commit_as(one, {("a", 0): Offset(3)}))
        step("a second member", enter_as_second)
        step("more offsets", lambda: commit_as(other, {("a", 0): Offset(7, 0, "seven"), ("b", 0): Offset(2)}))
        step("both leave", leave)
        step("an offset goes", lambda: delete_offsets(client, "group", [("b", 0)]))
        step("a group of nobody", lambda: commit(client, "alone", {("a", 0): Offset(1), ("b", 0): Offset(1)}))
        step("the group goes", lambda: delete_groups(client, "group"))
        step("a topic goes", lambda: client.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 3))
    monkeypatch.undo()
    assert {point.topic for point in points.points} == {"__consumer_offsets"}
    assert [point.done for point in points.points] == list(range(9))  # one append a step: nothing is half done
    for point in points.points:
        again = start_broker(point.folder, **PROPERTIES)
        assert seen(again) == states[point.done + 1], point
        again.stop()
