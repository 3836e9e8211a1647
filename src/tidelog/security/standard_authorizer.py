"""The authorization rules of Kafka's StandardAuthorizer (KIP-801), pure.

Decisions are cached until an entry changes.

| in this order | decides |
|---|---|
| a super user | allowed, whatever entries say |
| an entry that matches, with DENY | denied |
| an entry that matches, with ALLOW | allowed |
| entries of the resource, none of which matches | denied |
| no entry of the resource at all | denied; allowed with ``allow.everyone.if.no.acl.found`` |

Entries of a resource are those of its name, of `*`, and of each prefix of its name. One matches if its principal, its host and
its operation do. With ALLOW, READ, WRITE, DELETE and ALTER are DESCRIBE as well, and ALTER_CONFIGS is DESCRIBE_CONFIGS; with DENY
each is what it says.

A look-up costs as many steps as there are lengths of prefixes, however many entries there are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.security.acl import OPERATIONS, WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from tidelog.security.principal import USER, Principal

EVERYBODY: Final = f"{USER}:{WILDCARD}"

MAX_REMEMBERED: Final = 16_384
LONGEST_REMEMBERED: Final = 249
"""The longest name of a topic. A longer name is decided on each time: else a stranger's names would fill the memory."""

NOWHERE: Final = "hardcode"
"""Of a name that no one has: who may do something to it may do it to any resource."""

_IMPLIED: Final = {
    Operation.DESCRIBE: frozenset({Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}


class Decision(NamedTuple):
    """Whether something is allowed, and the rule that says so: in words, or the entry."""

    is_allowed: bool
    rule: str | Acl

    def __str__(self) -> str:
        return f"MatchingAcl(acl={self.rule})" if isinstance(self.rule, Acl) else self.rule


SUPER_USER: Final = Decision(True, "SuperUser")
DEFAULT_ALLOW: Final = Decision(True, "DefaultAllow")
DEFAULT_DENY: Final = Decision(False, "DefaultDeny")

_Key = tuple[int, int, str]
"""Resource type, pattern type, name."""


class StandardAuthorizer:
    """Decides. One thread changes the entries; others may ask meanwhile."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False) -> None:
        """`super_users` are principals as texts, `User:admin`."""
        self.super_users = frozenset(super_users)
        self.default = DEFAULT_ALLOW if allow_everyone_if_no_acl_found else DEFAULT_DENY
        self._acls: dict[Hashable, Acl] = {}
        self._by_pattern: dict[_Key, dict[Hashable, Acl]] = {}
        self._lengths: dict[int, dict[int, int]] = {}
        """Of each resource type: how many prefixes there are of each length."""
        self._remembered: dict[tuple[Principal, str, int, int, str], Decision] = {}

    # --- the entries

    @property
    def acls(self) -> dict[Hashable, Acl]:
        """All, by what they are known by. Not to be changed."""
        return self._acls

    def has(self, acl: Acl) -> bool:
        """Whether there is such an entry, whatever it is known by."""
        of_pattern = self._by_pattern.get((acl.resource_type, acl.pattern_type, acl.resource_name))
        return of_pattern is not None and acl in of_pattern.values()

    def add(self, key: Hashable, acl: Acl) -> None:
        """Have one more; in place of the one that is known by the same key."""
        self.remove(key)
        self._acls[key] = acl
        pattern = acl.resource_type, acl.pattern_type, acl.resource_name
        of_pattern = self._by_pattern.get(pattern)
        if of_pattern is None:
            of_pattern = self._by_pattern[pattern] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._lengths.setdefault(acl.resource_type, {})
                lengths[len(acl.resource_name)] = lengths.get(len(acl.resource_name), 0) + 1
        of_pattern[key] = acl
        self._remembered = {}

    def remove(self, key: Hashable) -> None:
        """Forget one. Idempotent."""
        acl = self._acls.pop(key, None)
        if acl is None:
            return
        pattern = acl.resource_type, acl.pattern_type, acl.resource_name
        of_pattern = self._by_pattern[pattern]
        del of_pattern[key]
        if not of_pattern:
            del self._by_pattern[pattern]
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._lengths[acl.resource_type]
                lengths[len(acl.resource_name)] -= 1
                if not lengths[len(acl.resource_name)]:
                    del lengths[len(acl.resource_name)]
        self._remembered = {}

    # --- deciding

    def decide(self, principal: Principal, host: str, operation: int, resource_type: int, name: str) -> Decision:
        """Say whether `principal` may, from `host`, do `operation` to the resource of a name."""
        key = principal, host, operation, resource_type, name
        remembered = self._remembered
        decision = remembered.get(key)
        if decision is None:
            decision = self._decided(str(principal), host, operation, resource_type, name)
            if len(name) <= LONGEST_REMEMBERED:
                if len(remembered) >= MAX_REMEMBERED:
                    remembered.clear()
                # Not `self._remembered`: entries that have changed meanwhile began a new one.
                remembered[key] = decision
        return decision

    def _decided(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        if principal in self.super_users:
            return SUPER_USER
        allowing: Acl | None = None
        has_entries = False
        for acl in self._of_resource(resource_type, name):
            has_entries = True
            if _matches(acl, principal, host, operation):
                if acl.permission == Permission.DENY:
                    return Decision(False, acl)
                allowing = acl
        if allowing is not None:
            return Decision(True, allowing)
        return DEFAULT_DENY if has_entries else self.default

    def _of_resource(self, resource_type: int, name: str) -> Iterator[Acl]:
        by_pattern = self._by_pattern
        for literal in {name, WILDCARD}:
            found = by_pattern.get((resource_type, PatternType.LITERAL, literal))
            if found is not None:
                yield from list(found.values())
        for length in list(self._lengths.get(resource_type, ())):
            if length <= len(name):
                found = by_pattern.get((resource_type, PatternType.PREFIXED, name[:length]))
                if found is not None:
                    yield from list(found.values())

    def operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        """Return a bit for each operation that is allowed, of those that there are for the resource."""
        return sum(
            1 << one for one in OPERATIONS[resource_type] if self.decide(principal, host, one, resource_type, name).is_allowed
        )

    def may_any(self, principal: Principal, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is, or can be, a resource of a type that `principal` may do `operation` to (KIP-679).

        No operation is implied by another here. One that is allowed for a prefix that a longer DENY lies in is allowed.
        """
        if self.decide(principal, host, operation, resource_type, NOWHERE).is_allowed:
            return True
        who = str(principal)
        denied: set[tuple[int, str]] = set()
        allowed: set[tuple[int, str]] = set()
        for (its_type, pattern, name), acls in list(self._by_pattern.items()):
            if its_type != resource_type:
                continue
            for acl in list(acls.values()):
                if (
                    acl.principal in (who, EVERYBODY)
                    and acl.host in (host, WILDCARD)
                    and acl.operation in (operation, Operation.ALL)
                ):
                    (denied if acl.permission == Permission.DENY else allowed).add((pattern, name))
        literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
        if (literal, WILDCARD) in denied:
            return False
        if (literal, WILDCARD) in allowed:
            return True
        return any(
            (pattern, name) not in denied and not any((prefixed, name[:end]) in denied for end in range(1, len(name) + 1))
            for pattern, name in allowed
        )


def _matches(acl: Acl, principal: str, host: str, operation: int) -> bool:
    if acl.principal != principal and acl.principal != EVERYBODY:
        return False
    if acl.host != WILDCARD and acl.host != host:
        return False
    if acl.operation in (Operation.ALL, operation):
        return acl.permission in (Permission.ALLOW, Permission.DENY)
    return acl.permission == Permission.ALLOW and acl.operation in _IMPLIED.get(operation, ())  # type: ignore[call-overload]
