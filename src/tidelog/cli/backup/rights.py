"""ACLs, quotas and SCRAM users in a point, as `backup show` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

from tidelog.cli.printing.layout import table
from tidelog.security.acl import RESOURCE_NAMES, Operation, PatternType, Permission, ResourceType

_ACLS = ("principal", "host", "permission", "operation", "resource", "name", "pattern")
_RESOURCES = {int(kind): name for kind, name in RESOURCE_NAMES.items()}
_SCRAM = {"1": "SCRAM-SHA-256", "2": "SCRAM-SHA-512"}


def rights_fields(rights: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield ACLs, quotas and users as JSON objects."""
    for resource, name, pattern, principal, host, operation, permission in rights.get("acls") or ():
        yield {
            "type": "acl",
            "principal": principal,
            "host": host,
            "permission": _name(Permission, permission),
            "operation": _name(Operation, operation),
            "resource": _RESOURCES.get(resource, _name(ResourceType, resource)),
            "name": name,
            "pattern": _name(PatternType, pattern),
        }
    for quota in rights.get("quotas") or ():
        yield {"type": "quota", **quota}
    for user, mechanisms in (rights.get("scram_users") or {}).items():
        yield {"type": "scram_user", "user": user, "mechanisms": {_SCRAM.get(one, one): n for one, n in mechanisms.items()}}


def rights_lines(rights: Mapping[str, Any]) -> Iterator[str]:
    """Yield the output for people: a table of ACLs, one of quotas and one of users. Empty tables are left out."""
    found = list(rights_fields(rights))
    acls = [tuple(one[column] for column in _ACLS) for one in found if one["type"] == "acl"]
    quotas = [(_pairs(one["entity"]), _pairs(one["values"])) for one in found if one["type"] == "quota"]
    users = [(one["user"], ", ".join(one["mechanisms"])) for one in found if one["type"] == "scram_user"]
    for header, rows in ((_ACLS, acls), (("quota of", "limits"), quotas), (("SCRAM user", "mechanisms"), users)):
        if rows:
            yield ""
            yield from table(header, rows)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {'(default)' if value is None else value}" for key, value in values.items())


def _name(kind: type[IntEnum], number: int) -> str:
    return kind(number).name if number in set(kind) else str(number)
