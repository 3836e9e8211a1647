"""The authorization rules of Kafka's StandardAuthorizer (KIP-801), without I/O.

Decisions are cached until an entry changes.

| the first case that applies | decision |
|---|---|
| the principal is a super user | allowed, without regard to entries |
| a DENY entry matches | denied |
| an ALLOW entry matches | allowed |
| the resource has entries, none of which matches | denied |
| the resource has no entries | denied; allowed with ``allow.everyone.if.no.acl.found`` |

A resource has the entries for its name, for `*`, and for each prefix of its name. An entry matches if its principal, host and
operation match. ALLOW for READ, WRITE, DELETE or ALTER implies DESCRIBE, and ALLOW for ALTER_CONFIGS implies DESCRIBE_CONFIGS.
DENY implies nothing.

The cost of a look-up depends on the number of distinct prefix lengths, not on the number of entries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.security.acl import OPERATIONS, WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from tidelog.security.principal import USER, Principal

EVERYBODY: Final = f"{USER}:{WILDCARD}"

MAX_REMEMBERED: Final = 16_384
LONGEST_REMEMBERED: Final = 249
"""The length of the longest topic name. Decisions about longer names are not cached, because unauthenticated clients could fill
the memory with them.
"""

NOWHERE: Final = "hardcode"
"""A name that no resource has. A principal that is allowed an operation on this name is allowed the operation on all resources.
"""

_IMPLIED: Final = {
    Operation.DESCRIBE: frozenset({Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}


class Decision(NamedTuple):
    """Whether an operation is allowed, and the reason: an entry, or the text of a rule."""

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
    """Decides what principals may do. One thread changes the entries; other threads may call `decide` at the same time."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False) -> None:
        """Create an authorizer without entries. `super_users` are principals as text, for example `User:admin`."""
        self.super_users = frozenset(super_users)
        self.default = DEFAULT_ALLOW if allow_everyone_if_no_acl_found else DEFAULT_DENY
        self._acls: dict[Hashable, Acl] = {}
        self._by_pattern: dict[_Key, dict[Hashable, Acl]] = {}
        self._lengths: dict[int, dict[int, int]] = {}
        """For each resource type, the number of prefixes of each length."""
        self._remembered: dict[tuple[Principal, str, int, int, str], Decision] = {}

    # --- the entries

    @property
    def acls(self) -> dict[Hashable, Acl]:
        """All entries by their keys. Read-only."""
        return self._acls

    def has(self, acl: Acl) -> bool:
        """Whether an equal entry exists, under any key."""
        of_pattern = self._by_pattern.get((acl.resource_type, acl.pattern_type, acl.resource_name))
        return of_pattern is not None and acl in of_pattern.values()

    def add(self, key: Hashable, acl: Acl) -> None:
        """Add an entry. If an entry has the same key, replace that entry."""
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
        """Remove an entry. Idempotent."""
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
        """Decide whether `principal`, from `host`, is allowed `operation` on a resource."""
        key = principal, host, operation, resource_type, name
        remembered = self._remembered
        decision = remembered.get(key)
        if decision is None:
            decision = self._decided(str(principal), host, operation, resource_type, name)
            if len(name) <= LONGEST_REMEMBERED:
                if len(remembered) >= MAX_REMEMBERED:
                    remembered.clear()
                # Not `self._remembered`, which a change of the entries may have replaced meanwhile.
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
        """Return the bit field of the operations that `principal`, from `host`, is allowed on a resource."""
        return sum(
            1 << one for one in OPERATIONS[resource_type] if self.decide(principal, host, one, resource_type, name).is_allowed
        )

    def may_any(self, principal: Principal, host: str, operation: int, resource_type: int) -> bool:
        """Whether `principal` is allowed `operation` on any resource of a type, existing or not (KIP-679).

        Here no operation implies another operation. A DENY for a longer prefix does not cancel an ALLOW for a shorter prefix.
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
