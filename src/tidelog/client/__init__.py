"""A minimal client for any Kafka-compatible broker: metadata, fetch, list offsets, produce, groups.

| module or room | owns |
|---|---|
| `client` | what users call: `tidelog.connect` |
| `connections/` | addresses, TLS and SASL, blocking sockets; leaders; coordinators; which error codes are retried |
| `reading/` | offsets for times; the offsets to read for a time range; one partition's batches; sizes |
| `produce/` | produces records and finished batches: several requests in flight, optional transactions |
| `consumer_groups/` | groups as brokers describe them, their committed offsets, their lag, resets |

The client cannot join a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tidelog.client.client import Client as Client
    from tidelog.client.client import NewRecord as NewRecord
    from tidelog.client.client import ReadRecord as ReadRecord
    from tidelog.client.client import connect as connect
    from tidelog.client.connections.cluster import Cluster
    from tidelog.client.consumer_groups.group_lag import GroupLag as GroupLag
    from tidelog.client.consumer_groups.group_reset import PartitionReset as PartitionReset
    from tidelog.client.consumer_groups.group_reset import ToOffset as ToOffset
    from tidelog.client.produce.appender import Produced as Produced
    from tidelog.client.reading.offsets import NotFound as NotFound
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tidelog.client.client": ("Client", "NewRecord", "ReadRecord", "connect"),
            "tidelog.client.consumer_groups.group_lag": ("GroupLag",),
            "tidelog.client.consumer_groups.group_reset": ("PartitionReset", "ToOffset"),
            "tidelog.client.produce.appender": ("Produced",),
            "tidelog.client.reading.offsets": ("NotFound",),
        },
    )

__all__ = ["Client", "GroupLag", "NewRecord", "NotFound", "PartitionReset", "Produced", "ReadRecord", "ToOffset", "connect"]


def transactions_supported(cluster: Cluster) -> bool:
    """Return whether the brokers support transactions: Kafka from 0.11 on, Tidelog. Raises BrokerUnreachableError."""
    from tidelog.wire.messages.end_txn import EndTxnRequest
    from tidelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

    with cluster.connection_to_any() as connection:
        return connection.offers(EndTxnRequest) and connection.offers(TxnOffsetCommitRequest)
