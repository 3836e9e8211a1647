"""Properties of nodes in a cluster with secured inter-broker traffic: Kafka's and Tidelog's, under KRaft and ZooKeeper.

Each has two listeners: PLAINTEXT for the test, and INSIDE for the others, by TLS with certificates on both sides, and PLAIN.
"""

from __future__ import annotations

from tests.certificates import PASSWORD, Authority
from tests.kafka.java import free_port

LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule "
    f'required username="node" password="{PASSWORD}" user_node="{PASSWORD}";'
)
"""Each authenticates as the same user, and knows it."""


def inside_properties(authority: Authority, session_ms: int) -> dict[str, str]:
    """What all nodes have in common, but for which listener is which."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "listener.name.inside.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.inside.plain.sasl.jaas.config": LOGIN,
        "connections.max.reauth.ms": str(session_ms),
    }


def two_listeners(port: int) -> dict[str, str]:
    """The listeners of a broker: one for the test, in plain text, and INSIDE."""
    both = f"PLAINTEXT://127.0.0.1:{port},INSIDE://127.0.0.1:{free_port()}"
    return {"inter.broker.listener.name": "INSIDE", "listeners": both, "advertised.listeners": both}
