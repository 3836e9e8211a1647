"""The requests that only brokers send to their controller, one file each. `TABLE` also has the APIs that the controller serves
for clients.
"""

from __future__ import annotations

from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import apis_in

_OF_BROKERS = {api.name: api for api in APIS}

TABLE = (
    *apis_in(__name__, __path__),
    _OF_BROKERS["AlterClientQuotas"],
    _OF_BROKERS["AlterConfigs"],
    _OF_BROKERS["AlterUserScramCredentials"],
    _OF_BROKERS["ApiVersions"],
    _OF_BROKERS["CreateAcls"],
    _OF_BROKERS["CreatePartitions"],
    _OF_BROKERS["CreateTopics"],
    _OF_BROKERS["DeleteAcls"],
    _OF_BROKERS["DeleteTopics"],
    _OF_BROKERS["DescribeClientQuotas"],
    _OF_BROKERS["DescribeQuorum"],
    _OF_BROKERS["DescribeUserScramCredentials"],
    _OF_BROKERS["ElectLeaders"],
    _OF_BROKERS["IncrementalAlterConfigs"],
    _OF_BROKERS["ListPartitionReassignments"],
    _OF_BROKERS["SaslAuthenticate"],
    _OF_BROKERS["SaslHandshake"],
    _OF_BROKERS["UpdateFeatures"],
)
"""All APIs of a controller."""
