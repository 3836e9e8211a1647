"""The authorizer beside a plain model, one look at every entry for every question. That the model is Kafka's: `tests/interop`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.security.acl_model import may, may_any
from tidelog.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from tidelog.security.principal import Principal
from tidelog.security.standard_authorizer import DEFAULT_DENY, MAX_REMEMBERED, SUPER_USER, StandardAuthorizer

ALICE = Principal("User", "alice")
NAMES = st.text("ab*", min_size=1, max_size=3)
PRINCIPALS = st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"])
HOSTS = st.sampled_from(["*", "1.2.3.4", "0:0:0:0:0:0:0:1"])
KINDS = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
OPERATIONS = st.sampled_from(list(Operation)[2:])
ACLS = st.builds(
    Acl,
    KINDS,
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    PRINCIPALS,
    HOSTS,
    OPERATIONS,
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from([ALICE, Principal("User", "bob"), Principal("Group", "alice"), Principal("User", "root")]),
    HOSTS.filter(lambda host: host != "*"),
    OPERATIONS,
    KINDS,
    NAMES,
)


@given(st.lists(ACLS, max_size=8), st.data(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_each_decision_is_the_models(acls: list[Acl], data: st.DataObject, allow: bool) -> None:
    """Entries come and go in between: nothing that was decided before outlives a change."""
    authorizer = StandardAuthorizer(["User:root"], allow_everyone_if_no_acl_found=allow)
    there: dict[int, Acl] = {}
    questions = data.draw(st.lists(QUESTIONS, min_size=1, max_size=4))
    for number, acl in enumerate(acls):
        if there and data.draw(st.booleans()):
            going = data.draw(st.sampled_from(sorted(there)))
            authorizer.remove(going)
            del there[going]
        authorizer.add(number, acl)
        there[number] = acl
        assert authorizer.has(acl)
        for principal, host, operation, kind, name in questions:
            expected = may(there.values(), str(principal), host, operation, kind, name, {"User:root"}, allow)
            assert authorizer.decide(principal, host, operation, kind, name).is_allowed is expected
            expected = may_any(there.values(), str(principal), host, operation, kind, {"User:root"}, allow)
            assert authorizer.may_any(principal, host, operation, kind) is expected
    for number in there:
        authorizer.remove(number)
    assert authorizer.acls == {} and not authorizer._by_pattern and not any(authorizer._lengths.values())


def test_rules_have_names() -> None:
    """The log says why."""
    authorizer = StandardAuthorizer(["User:root"])
    assert authorizer.decide(Principal("User", "root"), "h", Operation.READ, ResourceType.TOPIC, "t") == SUPER_USER
    assert authorizer.decide(ALICE, "h", Operation.READ, ResourceType.TOPIC, "t") == DEFAULT_DENY
    acl = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
    authorizer.add(1, acl)
    decision = authorizer.decide(ALICE, "h", Operation.DESCRIBE, ResourceType.TOPIC, "t")
    assert decision.is_allowed and str(decision) == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=t, patternType=LITERAL, principal=User:alice, host=*, "
        "operation=READ, permissionType=ALLOW))"
    )
    # What a newer Kafka has written matches nothing, and has words.
    newer = Acl(2, "t", 9, "User:alice", "*", 99, 3)
    authorizer.add(2, newer)
    assert str(newer).count("=99") == 1 and not authorizer.decide(ALICE, "h", Operation.WRITE, ResourceType.TOPIC, "t").is_allowed


def test_what_is_remembered_has_bounds() -> None:
    """Strangers ask about names without end, and about long ones: neither fills the memory."""
    authorizer = StandardAuthorizer()
    for number in range(MAX_REMEMBERED + 100):
        authorizer.decide(ALICE, "h", Operation.READ, ResourceType.TOPIC, f"t{number}")
    assert 0 < len(authorizer._remembered) <= MAX_REMEMBERED
    before = len(authorizer._remembered)
    authorizer.decide(ALICE, "h", Operation.READ, ResourceType.GROUP, "g" * 1000)
    assert len(authorizer._remembered) == before


def test_filters() -> None:
    literal = Acl(2, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
    every = literal._replace(resource_name="*")
    prefixed = literal._replace(resource_name="or", pattern_type=PatternType.PREFIXED)
    match = AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH)
    assert all(match.matches(one) for one in (literal, every, prefixed))
    assert not match.matches(literal._replace(resource_name="order")) and not match.matches(literal._replace(resource_type=3))
    assert [AclFilter(pattern_type=PatternType.PREFIXED).matches(one) for one in (literal, prefixed)] == [False, True]
    assert AclFilter().matches(literal) and not AclFilter(principal="User:bob").matches(literal)
    assert AclFilter(resource_type=0).is_unknown and AclFilter(operation=99).is_unknown and not AclFilter().is_unknown
