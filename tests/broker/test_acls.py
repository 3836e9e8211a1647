"""What an API checks, with its own declaration as the list of what is asked; and entries, which are made, kept and taken away.

Who is asked about is ANONYMOUS, at a listener without SASL: entries come and go by an administrator, who is a super user.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker
from tests.broker.loop_turns import LoopTurns
from tests.broker.produce_helpers import message_set
from tests.broker.raw import RawClient
from tests.broker.widest import about, codes_of, plain, requests
from tidelog.broker.broker import Broker
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.access import NOTHING, Access
from tidelog.broker.handling.api import Api
from tidelog.broker.settings.authorizer_properties import STANDARD_AUTHORIZER
from tidelog.errors import InvalidArgumentError
from tidelog.security.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages import (
    create_acls,
    delete_acls,
    describe_acls,
    describe_cluster,
    describe_groups,
    find_coordinator,
    init_producer_id,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from tidelog.wire.messages import describe_topic_partitions as dtp
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest

PASSWORD = "made-for-this-test"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "listeners": "OPEN://127.0.0.1:0,ADMIN://127.0.0.1:0",
    "listener.security.protocol.map": "OPEN:PLAINTEXT,ADMIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.admin.plain.sasl.jaas.config": f'{PLAIN} required user_admin="{PASSWORD}";',
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin;User:CN=other,O=Tides",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
OPEN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
OFF = {
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "CreateDelegationToken",
    "DescribeDelegationToken",
    "ExpireDelegationToken",
    "RenewDelegationToken",
}
"""What is off is so for everybody: Kafka says that before it looks at anybody's rights."""
LEFT_OUT = {"ListGroups": "groups", "ListTransactions": "transaction_states"}
"""Without words: what may not be seen is not in the answer."""


class Secured:
    """A broker with an authorizer, an administrator's connection, and a stranger's."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.broker = RunningBroker(folder, **(PROPERTIES | more))
        ports = {one.name: one.port for one in self.broker.running.listeners}
        self.stranger = RawClient(("127.0.0.1", ports["OPEN"]))
        self.admin = RawClient(("127.0.0.1", ports["ADMIN"]))
        assert self.admin.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
        assert self.admin.ask(SaslAuthenticateRequest(f"\0admin\0{PASSWORD}".encode()), 2).error_code == 0

    def stop(self) -> None:
        self.stranger.close()
        self.admin.close()
        self.broker.stop()

    def create(self, *acls: Acl) -> list[int]:
        answer = self.admin.ask(create_acls.CreateAclsRequest([create_acls.AclCreation(*one) for one in acls]), 3)
        return [one.error_code for one in answer.results]

    def delete(self, *parts: Any) -> list[list[Acl]]:
        wanted = delete_acls.DeleteAclsFilter(*(parts or (1, None, 1, None, None, 1, 1)))
        answer = self.admin.ask(delete_acls.DeleteAclsRequest([wanted]), 3)
        assert not any(one.error_code for one in answer.filter_results)
        return [
            [
                Acl(m.resource_type, m.resource_name, m.pattern_type, m.principal, m.host, m.operation, m.permission_type)
                for m in one.matching_acls
            ]
            for one in answer.filter_results
        ]

    def described(self) -> set[Acl]:
        answer = self.admin.ask(describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
        assert answer.error_code == 0
        return {
            Acl(of.resource_type, of.resource_name, of.pattern_type, one.principal, one.host, one.operation, one.permission_type)
            for of in answer.resources
            for one in of.acls
        }


def allow(operation: Operation, kind: ResourceType, name: str, **other: Any) -> Acl:
    """Return an entry that lets ANONYMOUS do something."""
    acl = Acl(kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", operation, Permission.ALLOW)
    return acl._replace(**other)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path / "data")
    made.broker.on_loop(lambda: None)
    yield made
    made.stop()


def topic(secured: Secured, *names: str) -> None:
    """Have the administrator make topics, by asking about them."""
    wanted = [metadata.MetadataRequestTopic(name=name) for name in names]
    while any(one.error_code for one in secured.admin.ask(metadata.MetadataRequest(wanted), 9).topics):
        pass


# --- the seam ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_each_api_says_what_it_checks(api: Api) -> None:
    assert isinstance(api.access, Access)
    assert (api.access is NOTHING) == (api.name in OPEN)
    if api.name not in OPEN | OFF:
        assert any(one.name in api.access.what.split() for one in Operation), "an access names its operations"


def test_who_may_nothing_is_answered_nothing(secured: Secured) -> None:
    """Each API is sent requests about what there is, by somebody without a right. One that is added is among them by itself."""
    topic(secured, "t")
    secured.admin.ask(find_coordinator.FindCoordinatorRequest("g", 0), 2)
    found = secured.admin.ask(metadata.MetadataRequest(None), 10).topics
    (topic_id,) = (one.topic_id for one in found if one.name == "t")
    value = about("t", topic_id)
    asked = set()
    for api in APIS:
        for one in requests(api, 1, value):
            if api.name in OPEN | OFF or "forgotten" in one.what:
                continue
            asked.add(api.name)
            answer = secured.stranger.ask(one.make(), one.version)
            if api.name in LEFT_OUT:
                assert getattr(answer, LEFT_OUT[api.name]) == [], one.what
                continue
            codes = codes_of(answer)
            is_refused = bool(codes) and (codes[0] in REFUSALS or set(codes) & REFUSALS)
            if api.name in ("Metadata", "DescribeTopicPartitions"):
                is_refused = all(each.error_code in REFUSALS and not each.partitions for each in answer.topics)
            assert is_refused, (one.what, answer)
    others = [api for api in APIS if api.name not in asked | OPEN | OFF]
    for api in others:  # Those without an array in their requests.
        answer = secured.stranger.ask(plain(api, value), api.served.last)
        if api.name == "DescribeCluster":
            assert answer.cluster_authorized_operations == 0
        else:
            assert set(codes_of(answer)) & REFUSALS, (api.name, answer)
    # Nothing was made by the way.
    assert [one.name for one in secured.admin.ask(metadata.MetadataRequest(None), 9).topics if one.name[0] != "_"] == ["t"]


# --- entries ----------------------------------------------------------------------------------------------------------------


def produced(secured: Secured, *names: str, acks: int = 1) -> list[int]:
    data = [TopicProduceData(name, partition_data=[PartitionProduceData(0, message_set(2))]) for name in names]
    answer = secured.stranger.ask(ProduceRequest(None, acks, 1000, data), 9)
    codes = {one.name: one.partition_responses[0].error_code for one in answer.responses}
    return [codes[name] for name in names]


def test_entries_are_created_counted_and_deleted(secured: Secured) -> None:
    topic(secured, "t", "u")
    denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert produced(secured, "t") == produced(secured, "t") == [denied]
    entry = allow(Operation.WRITE, ResourceType.TOPIC, "t")
    assert secured.create(entry, entry) == [0, 0]
    assert secured.described() == {entry}
    assert produced(secured, "t") == [0]
    assert produced(secured, "t", "u") == [0, denied] and produced(secured, "u", "t") == [denied, 0]
    against = entry._replace(permission=Permission.DENY, principal="User:*", resource_name="*")
    assert secured.create(against) == [0]
    assert produced(secured, "t") == [denied]
    assert secured.delete(2, "*", 3, None, None, 1, 1) == [[against]]
    assert produced(secured, "t") == [0]
    assert secured.create(allow(Operation.ALL, ResourceType.TOPIC, "u", pattern_type=PatternType.PREFIXED)) == [0]
    assert produced(secured, "u") == [0]
    assert len(secured.delete()[0]) == 2 and secured.described() == set()
    assert produced(secured, "t", "u") == [denied, denied]


def test_a_group_that_is_not_there_comes_before_topics_that_may_not_be_read(secured: Secured) -> None:
    """As Kafka has it: offsets are asked for of the group, and its error is the answer."""
    topic(secured, "t", "u")
    secured.admin.ask(find_coordinator.FindCoordinatorRequest("g", 0), 2)
    partitions = [offset_delete.OffsetDeleteRequestPartition(0)]
    request = offset_delete.OffsetDeleteRequest("g", [offset_delete.OffsetDeleteRequestTopic(name, partitions) for name in "tu"])
    may_delete = allow(Operation.DELETE, ResourceType.GROUP, "g")
    may_read = allow(Operation.READ, ResourceType.TOPIC, "t")
    for acls, code in (((), 30), ((may_read,), 30), ((may_delete,), 69), ((may_delete, may_read), 69)):
        secured.delete()
        secured.create(*acls)
        answer = secured.stranger.ask(request, 0)
        assert (answer.error_code, answer.topics) == (code, []), acls
    commit = [
        offset_commit.OffsetCommitRequestTopic("t", partitions=[offset_commit.OffsetCommitRequestPartition(0, 1, -1, -1, "")])
    ]
    assert (
        secured.admin.ask(offset_commit.OffsetCommitRequest("g", -1, "", None, -1, commit), 8).topics[0].partitions[0].error_code
        == 0
    )
    answer = secured.stranger.ask(request, 0)
    assert answer.error_code == 0
    assert {one.name: one.partitions[0].error_code for one in answer.topics} == {"t": 0, "u": 29}


def test_without_an_answer_a_refusal_closes_the_connection(secured: Secured) -> None:
    topic(secured, "t", "u")
    secured.create(allow(Operation.WRITE, ResourceType.TOPIC, "t"))
    data = [TopicProduceData(name, partition_data=[PartitionProduceData(0, message_set(2))]) for name in ("t", "u")]
    secured.stranger.send(ProduceRequest(None, 0, 1000, data), 9)
    assert secured.stranger.closed()
    ends = secured.broker.on_loop(
        lambda: {key.topic: log.log_end_offset for key, log in secured.broker.running.node.manager.logs.items()}
    )
    assert (ends["t"], ends["u"]) == (3, 0)


def test_what_makes_no_sense_is_no_entry(secured: Secured) -> None:
    good = allow(Operation.READ, ResourceType.GROUP, "g")
    bad = [
        good._replace(resource_type=1),
        good._replace(resource_type=9),
        good._replace(resource_name=""),
        good._replace(pattern_type=2),
        good._replace(operation=1),
        good._replace(permission=0),
        good._replace(principal="alice"),
        good._replace(resource_type=ResourceType.CLUSTER),
    ]
    assert secured.create(*bad, good) == [int(ErrorCode.INVALID_REQUEST)] * len(bad) + [0]
    assert secured.described() == {good}
    wanted = delete_acls.DeleteAclsFilter(0, None, 1, None, None, 1, 1)
    (answer,) = secured.admin.ask(delete_acls.DeleteAclsRequest([wanted]), 3).filter_results
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert secured.described() == {good}


def test_entries_outlive_the_broker(tmp_path: Path) -> None:
    first = Secured(tmp_path / "data")
    topic(first, "t")
    acls = {allow(Operation.WRITE, ResourceType.TOPIC, f"t{number}") for number in range(600)}
    first.create(*acls, allow(Operation.WRITE, ResourceType.TOPIC, "t"))
    first.delete(2, "t7", 3, None, None, 1, 1)
    had = first.described()
    assert len(had) == 600
    first.stop()
    again = Secured(tmp_path / "data")
    assert again.described() == had and produced(again, "t") == [0]
    again.stop()
    without = Broker(tmp_path / "data")
    with without, RawClient(("127.0.0.1", without.port)) as client:
        answer = client.ask(create_acls.CreateAclsRequest([create_acls.AclCreation(*next(iter(acls)))]), 3)
        assert [one.error_code for one in answer.results] == [ErrorCode.SECURITY_DISABLED]
        found = client.ask(describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
        assert found.error_code == ErrorCode.SECURITY_DISABLED


# --- answers --------------------------------------------------------------------------------------------------------------


def test_authorized_operations(secured: Secured) -> None:
    """Bits of what may be done, of Metadata, DescribeGroups and DescribeCluster."""
    topic(secured, "t")

    def bits(*operations: Operation) -> int:
        return sum(1 << one for one in operations)

    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")], False, True, True)
    secured.create(allow(Operation.WRITE, ResourceType.TOPIC, "t"), allow(Operation.DELETE, ResourceType.GROUP, "g"))
    answer = secured.stranger.ask(asked, 9)
    assert answer.topics[0].topic_authorized_operations == bits(Operation.WRITE, Operation.DESCRIBE)
    assert answer.cluster_authorized_operations == 0
    secured.create(allow(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    answer = secured.stranger.ask(asked, 9)
    assert answer.cluster_authorized_operations == bits(Operation.ALTER, Operation.DESCRIBE)
    described = secured.stranger.ask(describe_cluster.DescribeClusterRequest(True), 1)
    assert described.cluster_authorized_operations == answer.cluster_authorized_operations
    groups = secured.stranger.ask(describe_groups.DescribeGroupsRequest(["g"], True), 5).groups
    assert [one.authorized_operations for one in groups] == [bits(Operation.DELETE, Operation.DESCRIBE)]
    every = secured.admin.ask(asked, 9)
    assert every.topics[0].topic_authorized_operations == bits(*(Operation(one) for one in (3, 4, 5, 6, 7, 8, 10, 11)))


def test_a_topic_is_made_for_those_who_may(secured: Secured) -> None:
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="new")], True)
    secured.create(allow(Operation.DESCRIBE, ResourceType.TOPIC, "new"))
    assert secured.stranger.ask(asked, 9).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    secured.create(allow(Operation.CREATE, ResourceType.TOPIC, "new"))
    assert secured.stranger.ask(asked, 9).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert secured.stranger.ask(asked, 9).topics[0].error_code == 0
    assert [one.name for one in secured.stranger.ask(metadata.MetadataRequest(None), 9).topics] == ["new"]


def test_an_idempotent_producer_may_write_somewhere(secured: Secured) -> None:
    asked = init_producer_id.InitProducerIdRequest(None, 1000)
    assert secured.stranger.ask(asked, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    secured.create(allow(Operation.WRITE, ResourceType.TOPIC, "any"))
    assert secured.stranger.ask(asked, 4).error_code == 0
    secured.create(allow(Operation.WRITE, ResourceType.TOPIC, "a", pattern_type=PatternType.PREFIXED, permission=Permission.DENY))
    assert secured.stranger.ask(asked, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    secured.create(allow(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME))
    assert secured.stranger.ask(asked, 4).error_code == 0


def test_decisions_are_logged(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """As Kafka's authorizer does; a name writes no lines of its own."""
    topic(secured, "t")
    with caplog.at_level(logging.INFO, "tidelog.authorizer"):
        produced(secured, "t")
        assert secured.stranger.ask(describe_groups.DescribeGroupsRequest(["a\nb"]), 5).groups[0].error_code
        assert secured.stranger.ask(metadata.MetadataRequest(None), 9).topics == []
    lines = [one.getMessage() for one in caplog.records if one.name == "tidelog.authorizer"]
    assert lines == [
        "Principal = User:ANONYMOUS is Denied operation = WRITE from host = 127.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Produce with resourceRefCount = 1 based on rule DefaultDeny",
        "Principal = User:ANONYMOUS is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = Group:LITERAL:a\\nb "
        "for request = DescribeGroups with resourceRefCount = 1 based on rule DefaultDeny",
    ]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "tidelog.authorizer"):
        secured.create(allow(Operation.WRITE, ResourceType.TOPIC, "t"))
        produced(secured, "t")
    lines = [one.getMessage() for one in caplog.records if one.name == "tidelog.authorizer"]
    assert any("User:admin is Allowed operation = ALTER" in line and line.endswith("based on rule SuperUser") for line in lines)
    assert any("is Allowed operation = WRITE" in line and "MatchingAcl(acl=StandardAcl(" in line for line in lines)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return decisions about ANONYMOUS since the last time: operation, resource, how often the request named it."""
    lines = [one.getMessage() for one in caplog.records if one.name == "tidelog.authorizer"]
    caplog.clear()
    form = re.compile(r"User:ANONYMOUS is (\w+) operation = (\w+) .* resource = (\S+) .*RefCount = (\d+) ")
    return [" ".join(match.groups()) for match in map(form.search, lines) if match]


def test_what_is_named_often_is_logged_once(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    topic(secured, "t", "u")
    secured.create(allow(Operation.READ, ResourceType.GROUP, "g"), allow(Operation.READ, ResourceType.TOPIC, "t"))
    topics = [offset_fetch.OffsetFetchRequestTopics(name, partition_indexes=[0, 1]) for name in ("t", "u", "t")]
    committed = [offset_commit.OffsetCommitRequestPartition(0, 1, -1, -1, "")]
    commit = offset_commit.OffsetCommitRequest(
        "g", -1, "", None, -1, [offset_commit.OffsetCommitRequestTopic("t", partitions=committed)]
    )
    while any(one.partitions[0].error_code for one in secured.stranger.ask(commit, 8).topics):
        pass  # The coordinator is made.
    named = offset_fetch.OffsetFetchRequestGroup("g", topics=topics)
    every = offset_fetch.OffsetFetchRequestGroup("g", topics=None)
    with caplog.at_level(logging.DEBUG, "tidelog.authorizer"):
        caplog.clear()
        secured.stranger.ask(offset_fetch.OffsetFetchRequest(groups=[named]), 8)
        assert logged(caplog) == [
            "Allowed DESCRIBE Group:LITERAL:g 1",
            "Allowed DESCRIBE Topic:LITERAL:t 2",
            "Denied DESCRIBE Topic:LITERAL:u 1",
        ]
        (group,) = secured.stranger.ask(offset_fetch.OffsetFetchRequest(groups=[every]), 8).groups
        assert [one.name for one in group.topics] == ["t"]
        assert logged(caplog) == ["Allowed DESCRIBE Group:LITERAL:g 1", "Allowed DESCRIBE Topic:LITERAL:t 1"]
        produced(secured, "u", "t", "u")
        assert logged(caplog) == ["Denied WRITE Topic:LITERAL:u 2", "Denied WRITE Topic:LITERAL:t 1"]
        assert secured.stranger.ask(init_producer_id.InitProducerIdRequest(None, 1000), 4).error_code
        assert logged(caplog) == []
        secured.create(allow(Operation.WRITE, ResourceType.TOPIC, "*"))
        assert not secured.stranger.ask(init_producer_id.InitProducerIdRequest(None, 1000), 4).error_code
        assert logged(caplog) == ["Allowed WRITE Topic:LITERAL:hardcode 0"]


def test_ten_thousand_topics_that_may_not_be_seen(secured: Secured) -> None:
    """They are looked at in slices: others are served meanwhile."""
    of_prefix = {"pattern_type": PatternType.PREFIXED}
    secured.create(*[allow(Operation.READ, ResourceType.TOPIC, "x" * length, **of_prefix) for length in range(1, 100)])
    views = [SimpleNamespace(name=f"{'y' * 200}{number}") for number in range(10_000)]
    topics: Any = secured.broker.running.node.topics
    with pytest.MonkeyPatch.context() as patch, LoopTurns(secured.broker) as turns:
        patch.setattr(topics, "all", lambda: views)
        assert secured.stranger.ask(metadata.MetadataRequest(None), 9).topics == []
        assert secured.stranger.ask(dtp.DescribeTopicPartitionsRequest([]), 0).topics == []
    assert turns.longest.seconds < 0.05, turns.longest


def test_allow_everyone(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "data", **{"allow.everyone.if.no.acl.found": "true"})
    topic(secured, "t", "u")
    assert produced(secured, "t", "u") == [0, 0]
    secured.create(allow(Operation.READ, ResourceType.TOPIC, "t"))
    assert produced(secured, "t", "u") == [int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0]
    secured.stop()


@pytest.mark.parametrize(
    ("properties", "word"),
    [
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, "ZooKeeper"),
        ({"authorizer.class.name": "com.example.MyAuthorizer"}, "StandardAuthorizer"),
        ({"super.users": "admin"}, "super.users"),
        ({"allow.everyone.if.no.acl.found": "perhaps"}, "allow.everyone"),
    ],
)
def test_a_guard_that_there_is_not_is_refused(tmp_path: Path, properties: dict[str, Any], word: str) -> None:
    """A broker that served everybody, while its properties name a guard, would be wrong in silence."""
    with pytest.raises(InvalidArgumentError, match=word):
        Broker(tmp_path / "data", **properties)
