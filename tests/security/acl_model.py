"""Who may do what, as plain as it can be said: every entry is looked at for every question. For tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidelog.security.acl import Acl, Operation, PatternType, Permission

IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def covers(acl: Acl, kind: int, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def is_about(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")


def may(
    acls: Iterable[Acl], principal: str, host: str, operation: int, kind: int, name: str, supers: Collection[str], default: bool
) -> bool:
    if principal in supers:
        return True
    found = [acl for acl in acls if covers(acl, kind, name)]
    if not found:
        return default
    mine = [acl for acl in found if is_about(acl, principal, host)]
    if any(acl.permission == Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
        return False
    enough = {operation, Operation.ALL} | IMPLIED.get(Operation(operation), set())
    return any(acl.permission == Permission.ALLOW and acl.operation in enough for acl in mine)


def may_any(
    acls: Iterable[Acl], principal: str, host: str, operation: int, kind: int, supers: Collection[str], default: bool
) -> bool:
    acls = list(acls)
    if may(acls, principal, host, operation, kind, "hardcode", supers, default):
        return True
    mine = [
        acl
        for acl in acls
        if acl.resource_type == kind and is_about(acl, principal, host) and acl.operation in (operation, Operation.ALL)
    ]
    denied = [acl for acl in mine if acl.permission == Permission.DENY]

    def is_denied(allowed: Acl) -> bool:
        """Whether all that is allowed is denied by one entry."""
        return any(
            allowed.resource_name.startswith(one.resource_name)
            if one.pattern_type == PatternType.PREFIXED
            else one.resource_name == "*" or (allowed[1:3] == one[1:3])
            for one in denied
        )

    for one in mine:
        if one.permission == Permission.ALLOW and one.pattern_type == PatternType.LITERAL and one.resource_name == "*":
            return not any(deny.pattern_type == PatternType.LITERAL and deny.resource_name == "*" for deny in denied)
    return any(one.permission == Permission.ALLOW and not is_denied(one) for one in mine)
