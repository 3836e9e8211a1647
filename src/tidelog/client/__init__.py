"""The little that Tidelog itself needs to talk to any Kafka-compatible broker: metadata, fetch, list offsets, produce.

| room | owns |
|---|---|
| `addresses` | `host:port`, and what is none |
| `connection` | one blocking socket: requests, responses, the versions that a broker offers |
| `cluster` | who leads what, connections that are lent, a request to each leader until it is answered |
| `failures` | which error codes are tried again, for how long, and what the others raise |
| `offsets`, `ranges` | offsets for times; where to read for a range of time, so that nothing is missed |
| `coordinators`, `groups` | who coordinates a group; groups as brokers describe them |
| `next_records`, `group_lag` | how far behind a group is, by the formulas of `groups.lag`: the next record, all together |
| `group_reset` | a group's offsets set to a time |
| `topic_configs`, `sizes` | how long topics keep their records, how many bytes they take |
| `fetching`, `producing` | one partition's batches out; records in |
| `batch_appender`, `produce_pipeline` | finished batches in, in transactions; several requests in flight, and what goes again |
| `transactions`, `committed` | a transaction as its producer sees it; what a group has committed for certain |
| `client` | what users call: `tidelog.connect` |

It is no group consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster


def transactions_supported(cluster: Cluster) -> bool:
    """Return whether the brokers take transactions: Kafka from 0.11 on, Tidelog. Raises BrokerUnreachableError."""
    from tidelog.wire.messages.end_txn import EndTxnRequest
    from tidelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

    with cluster.connection_to_any() as connection:
        return connection.offers(EndTxnRequest) and connection.offers(TxnOffsetCommitRequest)
