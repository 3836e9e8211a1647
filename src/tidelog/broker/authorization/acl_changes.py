"""Creates and deletes ACLs on a standalone broker, as records of its metadata log, in Kafka's format.

ACL changes take effect once they are on disk. A change of many records is written and replayed atomically (KIP-868).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any, Final

from tidelog.broker.authorization.permissions import Permissions
from tidelog.broker.requests.api_error import check_size
from tidelog.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from tidelog.security.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from tidelog.security.principal import is_principal
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode

ACLS: Final = " acls"
"""The job name under which ACL changes run one at a time. It is not a valid topic name."""


def why_invalid(acl: Acl) -> tuple[ErrorCode, str | None]:
    """Return the error code and message for an invalid entry; NONE if the entry is valid."""
    why = None
    if not ResourceType.TOPIC <= acl.resource_type <= ResourceType.USER:
        why = f"Invalid resourceType {acl.resource_type}"
    elif acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        why = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not acl.resource_name:
        why = "Invalid empty resource name"
    elif acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        why = f"Invalid patternType {acl.pattern_type}"
    elif not Operation.ALL <= acl.operation <= Operation.DESCRIBE_TOKENS:
        why = f"Invalid operation {acl.operation}"
    elif acl.permission not in (Permission.DENY, Permission.ALLOW):
        why = f"Invalid permissionType {acl.permission}"
    elif not is_principal(acl.principal):
        why = "a principal must have the form type:name"
    return (ErrorCode.NONE, None) if why is None else (ErrorCode.INVALID_REQUEST, why)


def creation(store: MetadataStore, permissions: Permissions, wanted: Collection[Acl]) -> Steps[None]:
    """Add the entries that do not exist yet. Raises ApiError, StorageError."""
    authorizer = permissions.authorizer
    new: dict[uuid.UUID, Acl] = {}
    seen: set[Acl] = set()
    for count, acl in enumerate(wanted):
        if acl not in seen and not authorizer.has(acl):
            seen.add(acl)
            new[uuid.uuid4()] = acl
            check_size(len(new))
        if count % 256 == 255:
            yield None
    if new:
        yield store.append([AccessControlEntryRecord(key, *acl) for key, acl in new.items()])
        for key, acl in new.items():
            authorizer.add(key, acl)


def deletion(store: MetadataStore, permissions: Permissions, going: Collection[Any]) -> Steps[None]:
    """Remove these entries, by their ids. Raises StorageError."""
    left = [key for key in going if key in permissions.authorizer.acls]  # Another request may have deleted it meanwhile.
    if left:
        yield store.append([RemoveAccessControlEntryRecord(key) for key in left])
        for key in left:
            permissions.authorizer.remove(key)
