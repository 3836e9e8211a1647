"""The requests that only brokers send to their controller, one file each. `TABLE` also has the APIs that the controller serves
for clients.
"""

from __future__ import annotations

from tidelog.broker.apis import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_client_quotas,
    describe_quorum,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    sasl_authenticate,
    sasl_handshake,
    update_features,
)
from tidelog.broker.controller.apis import (
    allocate_producer_ids,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    envelope,
    fetch_metadata,
    fetch_snapshot,
)
from tidelog.broker.handling.api import Api

TABLE: tuple[Api, ...] = tuple(
    one.API
    for one in (
        allocate_producer_ids,
        assign_replicas_to_dirs,
        broker_heartbeat,
        broker_registration,
        envelope,
        fetch_metadata,
        fetch_snapshot,
        alter_client_quotas,
        alter_configs,
        alter_user_scram_credentials,
        api_versions,
        create_acls,
        create_partitions,
        create_topics,
        delete_acls,
        delete_topics,
        describe_client_quotas,
        describe_quorum,
        describe_user_scram_credentials,
        elect_leaders,
        incremental_alter_configs,
        list_partition_reassignments,
        sasl_authenticate,
        sasl_handshake,
        update_features,
    )
)
"""All APIs of a controller."""
