"""The broker's authorizer: it decides by the ACLs in the metadata, and logs its decisions.

Log lines have the format of Kafka's StandardAuthorizer and go to the logger ``tidelog.authorizer``: denials at INFO, granted
operations at DEBUG. Checks that only filter a response or list operations are not logged.
"""

from __future__ import annotations

import logging
from typing import Final

from tidelog.broker.loop.rate_limited_log import one_line
from tidelog.broker.requests.listeners import java_address
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.wide_requests import vars_of
from tidelog.broker.settings.authorizer_properties import super_users
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.metadata.image import MetadataImage
from tidelog.security.acl import CLUSTER_NAME, RESOURCE_NAMES, Acl, Operation, ResourceType
from tidelog.security.standard_authorizer import NOWHERE, Decision, StandardAuthorizer

logger = logging.getLogger("tidelog.authorizer")

_LONGEST_NAME: Final = 1000


class Permissions:
    """Decides whether a request is authorized. Any thread may call the checks; only the event loop's thread may change the
    ACLs.
    """

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self.authorizer = authorizer

    @classmethod
    def of(cls, config: BrokerConfig, image: MetadataImage) -> Permissions | None:
        """Return the authorizer that the broker's properties configure, with the ACLs of the metadata, or None if no authorizer
        is configured.
        """
        if not config.authorizer_class_name:
            return None
        made = cls(
            StandardAuthorizer(
                super_users(config.super_users), allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found
            )
        )
        made.take_over(image)
        return made

    # --- the entries

    def take_over(self, image: MetadataImage) -> None:
        known, acls = self.authorizer.acls, image.acls
        for gone in known.keys() - acls.keys():
            self.authorizer.remove(gone)
        for added in acls.keys() - known.keys():
            self.authorizer.add(added, Acl(*vars_of(acls[added])[1:]))

    # --- asking

    def may(
        self,
        request: Request,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        log_denied: bool = True,
        log_allowed: bool = True,
        count: int = 1,
    ) -> bool:
        """Whether the request's principal may perform an operation on the resource with this name. `count` is how often the
        request names the resource, for the log.
        """
        decision = self.authorizer.decide(request.principal, _host(request), operation, kind, name)
        if decision.is_allowed:
            if log_allowed and logger.isEnabledFor(logging.DEBUG):
                logger.debug("%s", _said(decision, request, operation, kind, name, count))
        elif log_denied and logger.isEnabledFor(logging.INFO):
            logger.info("%s", _said(decision, request, operation, kind, name, count))
        return decision.is_allowed

    @property
    def logs_allowed(self) -> bool:
        return logger.isEnabledFor(logging.DEBUG)

    def may_cluster(self, request: Request, operation: Operation, *, log_denied: bool = True) -> bool:
        """Whether the request's principal may perform an operation on the cluster."""
        return self.may(request, operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=log_denied)

    def may_any(self, request: Request, operation: Operation, kind: ResourceType) -> bool:
        """Whether the request's principal may perform an operation on at least one possible resource of this type."""
        return self.may(request, operation, kind, NOWHERE, log_denied=False, count=0) or self.authorizer.may_any(
            request.principal, _host(request), operation, kind
        )

    def operations(self, request: Request, kind: ResourceType, name: str) -> int:
        """Return a bit field of the operations that the request's principal may perform on a resource."""
        return self.authorizer.operations(request.principal, _host(request), kind, name)


def _host(request: Request) -> str:
    host = request.peer_host
    return java_address(host) if ":" in host else host


def _said(decision: Decision, request: Request, operation: Operation, kind: ResourceType, name: str, count: int) -> str:
    text = (
        f"Principal = {request.principal} is {'Allowed' if decision.is_allowed else 'Denied'} operation = {operation.name} "
        f"from host = {_host(request)} on resource = {RESOURCE_NAMES[kind]}:LITERAL:{name[:_LONGEST_NAME]} "
        f"for request = {request.api_name} with resourceRefCount = {count} based on rule {decision}"
    )
    return one_line(text)
