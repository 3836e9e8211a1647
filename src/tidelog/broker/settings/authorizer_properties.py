"""A broker's authorizer properties: which of Kafka's authorizer classes is accepted, and the super users."""

from __future__ import annotations

from typing import Final

from tidelog.errors import InvalidArgumentError
from tidelog.security.principal import is_principal

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OF_ZOOKEEPER: Final = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")


def super_users(text: str | None) -> list[str]:
    """Return the principals of ``super.users``. They are separated by semicolons, because certificate names contain commas.

    Raises InvalidArgumentError for anything else.
    """
    found = [one.strip() for one in (text or "").split(";") if one.strip()]
    for one in found:
        if not is_principal(one):
            raise InvalidArgumentError(
                "super.users has an invalid principal", found=repr(one), expected="type:name;…, as in User:admin"
            )
    return found


def check_authorizer(name: str, *, has_zookeeper: bool) -> None:
    """Raise InvalidArgumentError for an unsupported ``authorizer.class.name``."""
    if not name:
        return
    if name in _OF_ZOOKEEPER or (has_zookeeper and name == STANDARD_AUTHORIZER):
        raise InvalidArgumentError(
            "authorizer.class.name: ACLs kept in ZooKeeper are not supported, so a broker of a cluster with "
            "ZooKeeper has no authorizer",
            found=name,
            expected=f"{STANDARD_AUTHORIZER}, on a standalone broker or in a KRaft cluster",
        )
    if name != STANDARD_AUTHORIZER:
        raise InvalidArgumentError(
            "this value of authorizer.class.name is not supported", found=name, expected=STANDARD_AUTHORIZER
        )
