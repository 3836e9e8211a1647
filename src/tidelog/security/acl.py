"""Access control entries (ACLs): the operations that principals may or may not perform on resources, by host (KIP-11, KIP-290).

| part | |
|---|---|
| resource type, name, pattern | `LITERAL`: this name, or any name for `*`; `PREFIXED`: all names that begin with this name |
| principal | `User:alice`; `User:*` means every user |
| host | an address, or `*` |
| operation | one operation, or `ALL` |
| permission | `ALLOW` or `DENY` |

The numbers are the same as in Kafka's protocol and metadata records.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of type `CLUSTER`."""


class ResourceType(IntEnum):
    """Resource types."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Says how the name in an entry or a filter matches resource names."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Operations on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """The effect of an entry."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_NAMES: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}
"""The names used in the authorizer log."""

OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""The operations of each resource type, for the "authorized operations" fields of responses."""


def operation_bits(operations: tuple[Operation, ...]) -> int:
    """Return a bit field with one bit per operation, the encoding of "authorized operations" in responses."""
    return sum(1 << one for one in operations)


ALL_OPERATIONS: Final = {kind: operation_bits(operations) for kind, operations in OPERATIONS.items()}
"""The bit field of each resource type if all its operations are allowed."""


class Acl(NamedTuple):
    """One entry. It may contain numbers that a newer Kafka defines; such an entry matches nothing."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        return (
            f"StandardAcl(resourceType={_name(ResourceType, self.resource_type)}, resourceName={self.resource_name}, "
            f"patternType={_name(PatternType, self.pattern_type)}, principal={self.principal}, host={self.host}, "
            f"operation={_name(Operation, self.operation)}, permissionType={_name(Permission, self.permission)})"
        )


def _name(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return str(number)


class AclFilter(NamedTuple):
    """A filter for entries. None and `ANY` match everything.

    The pattern type `MATCH` selects the entries that apply to a resource with the filter's name: entries for the name, for `*`,
    and for its prefixes.
    """

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether the filter has an unknown number in one of its fields. Such a filter is rejected."""
        return (
            not ResourceType.ANY <= self.resource_type <= ResourceType.USER
            or not PatternType.ANY <= self.pattern_type <= PatternType.PREFIXED
            or not Operation.ANY <= self.operation <= Operation.DESCRIBE_TOKENS
            or not Permission.ANY <= self.permission <= Permission.ALLOW
        )

    def matches(self, acl: Acl) -> bool:
        """Whether the filter matches an entry."""
        return self._matches_resource(acl) and (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_resource(self, acl: Acl) -> bool:
        if self.resource_type not in (ResourceType.ANY, acl.resource_type):
            return False
        name, pattern = self.resource_name, self.pattern_type
        if pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None:
            return True
        if pattern != PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name in (name, WILDCARD)
        return acl.pattern_type == PatternType.PREFIXED and name.startswith(acl.resource_name)
