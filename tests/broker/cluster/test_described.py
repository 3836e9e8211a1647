"""What a member shows of the metadata, by pages and filters: partitions, quotas, users, entries of access control."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cluster.fake_plane import Member, member, registered, topic
from tests.broker.conftest import StartBroker
from tidelog.broker.settings.authorizer_properties import STANDARD_AUTHORIZER
from tidelog.metadata.records import AccessControlEntryRecord, ClientQuotaRecord, EntityData, UserScramCredentialRecord
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_acls import DescribeAclsRequest
from tidelog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tidelog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tidelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

__all__ = ["member"]

ANY, MATCH, LITERAL, PREFIXED = range(1, 5)
TOPIC, READ, WRITE, ALLOW = 2, 3, 4, 3


def ask(broker: Member, request: Any, version: int = 0) -> Any:
    with broker.client() as client:
        return client.ask(request, version)


def page(broker: Member, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> tuple[list[Any], Cursor | None]:
    answer = ask(broker, DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor))
    shown = [(one.name, ErrorCode(one.error_code).name, [p.partition_index for p in one.partitions]) for one in answer.topics]
    return shown, answer.next_cursor


@pytest.fixture
def topics(member: Member) -> Member:
    member.replay(
        registered(1), registered(2), *topic("a", ([1], [1], 1), ([2], [2], 2), ([1], [1], 1)), *topic("c", ([1], [1], 1))
    )
    return member


def test_partitions_come_in_pages(topics: Member) -> None:
    assert page(topics) == ([("a", "NONE", [0, 1, 2]), ("c", "NONE", [0])], None)
    assert page(topics, limit=2) == ([("a", "NONE", [0, 1])], Cursor("a", 2))
    assert page(topics, limit=2, cursor=Cursor("a", 2)) == ([("a", "NONE", [2]), ("c", "NONE", [0])], None)
    # A page that ends with a topic names the next one.
    assert page(topics, limit=3) == ([("a", "NONE", [0, 1, 2])], Cursor("c", 0))
    assert page(topics, limit=-5) == ([("a", "NONE", [0])], Cursor("a", 1))
    assert page(topics, cursor=Cursor("b", 1)) == ([("c", "NONE", [0])], None)
    # Those that are named come by name, once each, from the cursor's topic on, which is among them.
    assert page(topics, "c", "b", "a", "c", "b/d")[0] == [
        ("a", "NONE", [0, 1, 2]),
        ("b", "UNKNOWN_TOPIC_OR_PARTITION", []),
        ("b/d", "INVALID_TOPIC_EXCEPTION", []),
        ("c", "NONE", [0]),
    ]
    assert page(topics, "c", cursor=Cursor("b", 0))[0] == [("b", "UNKNOWN_TOPIC_OR_PARTITION", []), ("c", "NONE", [0])]
    assert page(topics, "c", "a", cursor=Cursor("a", -1))[0] == [("c", "INVALID_REQUEST", []), ("a", "INVALID_REQUEST", [])]


def test_partitions_are_shown_with_the_replicas_that_may_be_elected(member: Member) -> None:
    records = topic("a", ([1, 2, 3], [], -1))
    records[1].eligible_leader_replicas, records[1].last_known_elr = [2], [3]  # type: ignore[attr-defined]
    member.replay(registered(1), registered(2), *records)
    answer = ask(member, DescribeTopicPartitionsRequest())
    (one,) = answer.topics[0].partitions
    assert (one.error_code, one.leader_id, one.isr_nodes, one.offline_replicas) == (0, -1, [], [3])
    assert (one.eligible_leader_replicas, one.last_known_elr) == ([2], [3])
    assert answer.topics[0].topic_authorized_operations > 0


def quota(value: float, key: str = "producer_byte_rate", **entity: str | None) -> ClientQuotaRecord:
    return ClientQuotaRecord([EntityData(kind.replace("_", "-"), name) for kind, name in entity.items()], key, value)


def test_quotas_are_found_by_their_entities(member: Member) -> None:
    member.replay(
        quota(1.5, user="ann"),
        quota(2.5, "request_percentage", user="ann"),
        quota(3.0, user="ann", client_id="app"),
        quota(4.0, user=None),
        quota(5.0, ip="10.0.0.1"),
    )

    def found(*components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
        request = DescribeClientQuotasRequest([ComponentData(*one) for one in components], strict)
        answer = ask(member, request, version)
        if answer.error_code:
            assert answer.entries is None and answer.error_message
            return ErrorCode(answer.error_code).name
        return sorted((tuple(sorted(v.value for v in one.values)), len(one.entity)) for one in answer.entries)

    assert found() == [((1.5, 2.5), 1), ((3.0,), 2), ((4.0,), 1), ((5.0,), 1)]
    assert found(("user", 0, "ann")) == [((1.5, 2.5), 1), ((3.0,), 2)]
    assert found(("user", 0, "ann"), strict=True) == [((1.5, 2.5), 1)]
    assert found(("user", 1, None), version=0) == [((4.0,), 1)]
    assert found(("user", 2, None), ("client-id", 2, None)) == [((3.0,), 2)]
    assert found(("ip", 2, None)) == [((5.0,), 1)]
    assert found(("user", 0, "bob")) == []
    for refused in (("", 2, None), ("user", 0, None), ("user", 1, "ann"), ("user", 2, "ann"), ("user", 3, None)):
        assert found(refused) == "INVALID_REQUEST"
    assert found(("user", 2, None), ("user", 1, None)) == "INVALID_REQUEST"
    assert found(("user", 2, None), ("ip", 2, None)) == "INVALID_REQUEST"
    assert found(("group", 2, None)) == "UNSUPPORTED_VERSION"


def test_users_are_shown_without_their_secrets(member: Member) -> None:
    member.replay(
        UserScramCredentialRecord("ann", 1, b"salt", b"stored", b"server", 4096),
        UserScramCredentialRecord("ann", 2, b"salt", b"stored", b"server", 8192),
        UserScramCredentialRecord("bob", 2, b"salt", b"stored", b"server", 4096),
    )

    def found(*users: str, asks_for_none: bool = False) -> Any:
        names = None if not users and not asks_for_none else [UserName(name) for name in users]
        answer = ask(member, DescribeUserScramCredentialsRequest(names))
        return {
            one.user: ErrorCode(one.error_code).name
            if one.error_code
            else [(i.mechanism, i.iterations) for i in one.credential_infos]
            for one in answer.results
        }

    everyone = {"ann": [(1, 4096), (2, 8192)], "bob": [(2, 4096)]}
    assert found() == found(asks_for_none=True) == everyone
    assert found("bob", "eve", "ann", "ann") == {
        "bob": [(2, 4096)],
        "eve": "RESOURCE_NOT_FOUND",
        "ann": "DUPLICATE_RESOURCE",
    }


def acl(name: str, pattern: int, principal: str, operation: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(uuid.uuid4(), TOPIC, name, pattern, principal, "*", operation, ALLOW)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Member]:
    """A member with an authorizer, to which everybody is a super user."""
    broker = Member(tmp_path / "guarded", **{"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"})
    yield broker
    broker.stop()


def test_entries_are_shown_only_with_an_authorizer(member: Member) -> None:
    """As Kafka's broker, whatever the metadata has."""
    member.replay(acl("orders", LITERAL, "User:ann", READ))
    answer = ask(member, DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY), 3)
    assert (ErrorCode(answer.error_code).name, answer.resources) == ("SECURITY_DISABLED", [])


def test_entries_of_access_control_are_found_by_patterns(guarded: Member) -> None:
    guarded.replay(
        acl("orders", LITERAL, "User:ann", READ),
        acl("orders", LITERAL, "User:bob", WRITE),
        acl("ord", PREFIXED, "User:ann", WRITE),
        acl("*", LITERAL, "User:eve", READ),
    )

    def found(
        name: str | None = None, pattern: int = ANY, principal: str | None = None, operation: int = ANY, **more: int
    ) -> Any:
        request = DescribeAclsRequest(more.get("kind", ANY), name, pattern, principal, None, operation, ANY)
        answer = ask(guarded, request, more.get("version", 3))
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        return sorted(
            (one.resource_name, one.pattern_type, sorted(entry.principal[5:] for entry in one.acls)) for one in answer.resources
        )

    orders, prefix, every = ("orders", LITERAL, ["ann", "bob"]), ("ord", PREFIXED, ["ann"]), ("*", LITERAL, ["eve"])
    assert found() == [every, prefix, orders]
    assert found("orders") == [orders]
    assert found("ord") == [prefix]
    assert found("ord", LITERAL) == []
    assert found("orders", MATCH) == [every, prefix, orders]
    assert found("other", MATCH) == [every]
    assert found(None, PREFIXED) == [prefix]
    assert found(principal="User:ann") == [prefix, ("orders", LITERAL, ["ann"])]
    assert found(operation=WRITE) == [prefix, ("orders", LITERAL, ["bob"])]
    assert found(kind=3) == []
    assert found(pattern=LITERAL, version=0) == [every, orders]
    assert found(operation=0) == "INVALID_REQUEST"


def test_a_broker_that_is_alone_has_none_of_them(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.create_topic("flights", 3)
    with broker.client() as client:
        acls = client.ask(DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY), 3)
        assert ErrorCode(acls.error_code) is ErrorCode.SECURITY_DISABLED
        assert client.ask(DescribeClientQuotasRequest(), 1).entries == []
        assert client.ask(DescribeUserScramCredentialsRequest(), 0).results == []
        answer = client.ask(DescribeTopicPartitionsRequest([TopicRequest("flights")], 2), 0)
    assert [one.leader_id for one in answer.topics[0].partitions] == [1, 1]
    assert answer.next_cursor == Cursor("flights", 2)
