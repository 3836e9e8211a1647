"""What a leader demands of the records that it is sent (spec §11).

Under construction: where an append comes from stands, so that the producers' state can be written against it.
"""

from __future__ import annotations

import enum


class AppendOrigin(enum.Enum):
    """Where an append comes from; that says how much of it is checked."""

    REPLICATION = "replication"
    COORDINATOR = "coordinator"
    CLIENT = "client"
