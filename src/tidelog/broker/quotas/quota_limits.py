"""Finds the limit that applies to a client. The first row for which a quota is set applies, as in Kafka's
DefaultQuotaCallback:

| | user | client id | shared by |
|---|---|---|---|
| 1 | its own | its own | connections of this user with this client id |
| 2 | its own | default | the same |
| 3 | its own | | all connections of the user |
| 4 | default | its own | connections of this user with this client id |
| 5 | default | default | the same |
| 6 | default | | all connections of the user |
| 7 | | its own | all connections with this client id |
| 8 | | default | the same |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from tidelog.metadata.image import QuotaKey

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class Part(Enum):
    """Used in place of a user or client id: ABSENT if the quota's entity has none, DEFAULT if it names the default."""

    ABSENT = 0
    DEFAULT = 1


Name: TypeAlias = str | Part


class Limit(NamedTuple):
    """A limit, and the user and client id that share it. "" means that the limit does not depend on that part."""

    value: float
    user: str
    client_id: str


class QuotaLimits:
    """All limits for one kind of quota, by user and client id."""

    def __init__(self, kind: str, quotas: Mapping[QuotaKey, float]) -> None:
        self._limits: dict[tuple[Name, Name], float] = {}
        for (entity, key), value in quotas.items():
            parts = {name: Part.DEFAULT if value is None else value for name, value in entity}
            if key == kind and parts and not parts.keys() - {USER, CLIENT_ID} and value > 0:
                self._limits[parts.get(USER, Part.ABSENT), parts.get(CLIENT_ID, Part.ABSENT)] = value

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, user: str, client_id: str) -> Limit | None:
        """Return the limit for a user's connection with a client id, or None if there is none."""
        get = self._limits.get
        for its_user in (user, Part.DEFAULT):
            for its_client in (client_id, Part.DEFAULT):
                value = get((its_user, its_client))
                if value is not None:
                    return Limit(value, user, client_id)
            value = get((its_user, Part.ABSENT))
            if value is not None:
                return Limit(value, user, "")
        for its_client in (client_id, Part.DEFAULT):
            value = get((Part.ABSENT, its_client))
            if value is not None:
                return Limit(value, "", client_id)
        return None


def limits_of_addresses(kind: str, quotas: Mapping[QuotaKey, float]) -> dict[str | None, float]:
    """Return the limits for one kind of quota by address, in the form that sockets use. The key None stands for all other
    addresses.
    """
    return {entity[0][1]: value for (entity, key), value in quotas.items() if key == kind and entity[0][0] == IP and value > 0}
