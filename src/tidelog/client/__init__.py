"""The little that Tidelog itself needs to talk to any Kafka-compatible broker: metadata, fetch, list offsets, produce.

| module or room | owns |
|---|---|
| `client` | what users call: `tidelog.connect` |
| `connections/` | addresses, TLS and SASL, one blocking socket; who leads what; coordinators; which error codes are tried again |
| `reading/` | offsets for times; where to read for a range of time, so that nothing is missed; one partition's batches; sizes |
| `produce/` | records in; finished batches in, several requests in flight, in transactions |
| `consumer_groups/` | groups as brokers describe them, what they committed, how far behind they are, set to a time |

It is no group consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.client.connections.cluster import Cluster


def transactions_supported(cluster: Cluster) -> bool:
    """Return whether the brokers take transactions: Kafka from 0.11 on, Tidelog. Raises BrokerUnreachableError."""
    from tidelog.wire.messages.end_txn import EndTxnRequest
    from tidelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

    with cluster.connection_to_any() as connection:
        return connection.offers(EndTxnRequest) and connection.offers(TxnOffsetCommitRequest)
