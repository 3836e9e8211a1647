"""Properties of a broker in a cluster, right and wrong: tests/broker asks Tidelog about them, tests/interop Kafka."""

from __future__ import annotations

BROKER = {
    "process.roles": "broker",
    "node.id": "4",
    "controller.quorum.voters": "1@c1.example:9093,2@[::1]:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://b4.example:9092",
}
"""A broker of a cluster with two controllers; tests change single lines of it."""

ACCEPTED: list[dict[str, str]] = [
    {},
    {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "c1.example:9093"},
    {"controller.quorum.bootstrap.servers": "c1.example:9093,c2.example:9093"},
    {"controller.listener.names": "CONTROLLER,OTHER"},
    {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
    {"security.inter.broker.protocol": "PLAINTEXT"},
    {"inter.broker.listener.name": "PLAINTEXT"},
    {
        "listeners": "INSIDE://b:1,OUTSIDE://b:2",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    },
    {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"},
    {"broker.heartbeat.interval.ms": "100", "broker.session.timeout.ms": "500"},
    {"replica.fetch.wait.max.ms": "500", "replica.lag.time.max.ms": "500", "replica.socket.timeout.ms": "500"},
    {"num.replica.fetchers": "4", "replica.fetch.max.bytes": "0"},
    {"unclean.leader.election.enable": "true", "min.insync.replicas": "2", "default.replication.factor": "3"},
    {"replica.selector.class": ""},
]

REFUSED: list[tuple[dict[str, str], str]] = [
    ({"process.roles": "controller"}, "the controller role is not supported without the broker role"),
    ({"process.roles": "broker,broker"}, "process.roles"),
    ({"process.roles": "brokers"}, "process.roles"),
    ({"node.id": "-1"}, "a broker of a cluster needs a node.id"),
    ({"node.id": "1"}, "node.id=1 in controller.quorum.voters"),
    ({"controller.quorum.voters": ""}, "needs the addresses of its controllers"),
    ({"controller.quorum.voters": "c1.example:9093"}, "id@host:port"),
    ({"controller.quorum.voters": "x@c1.example:9093"}, "id@host:port"),
    ({"controller.quorum.voters": "1@c1.example"}, "controller.quorum.voters"),
    ({"controller.quorum.voters": "1@c1.example:port"}, "controller.quorum.voters"),
    (
        {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "c1.example"},
        "controller.quorum.bootstrap.servers",
    ),
    ({"controller.listener.names": ""}, "needs controller.listener.names"),
    ({"controller.listener.names": "PLAINTEXT"}, "listeners has no listener for clients"),
    (
        {"listeners": "PLAINTEXT://b4.example:9092,CONTROLLER://b4.example:9093"},
        "only a controller can have the listeners in controller.listener.names",
    ),
    ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "listener CONTROLLER has no protocol"),
    ({"security.inter.broker.protocol": "SSL"}, "the inter-broker listener is not in listeners: found SSL"),
    ({"security.inter.broker.protocol": "TLS"}, "PLAINTEXT or SSL"),
    ({"inter.broker.listener.name": "OTHER"}, "the inter-broker listener is not in listeners"),
    (
        {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
        "two properties set the inter-broker listener",
    ),
    ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot connect to 0.0.0.0"),
    ({"replica.fetch.wait.max.ms": "501", "replica.lag.time.max.ms": "500"}, "at most replica.lag.time.max.ms"),
    ({"replica.fetch.wait.max.ms": "501", "replica.socket.timeout.ms": "500"}, "at most replica.socket.timeout.ms"),
    ({"replica.fetch.max.bytes": "-1"}, "replica.fetch.max.bytes is out of range"),
    ({"controlled.shutdown.enable": "yes"}, "controlled.shutdown.enable"),
    ({"broker.session.timeout.ms": "soon"}, "broker.session.timeout.ms must be a whole number"),
]
"""What Kafka refuses as well."""

REFUSED_HERE: list[tuple[dict[str, str], str]] = [
    ({"log.dirs": "/a,/b"}, "log.dirs has several folders"),
    (
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"},
        "sasl.mechanism.controller.protocol: this broker cannot authenticate at listener CONTROLLER with this mechanism",
    ),
    ({"controller.quorum.voters": "1@a:1,1@b:2"}, "has a duplicate id"),
    ({"controller.quorum.voters": "1@0.0.0.0:0"}, "needs an address that other nodes can connect to"),
    ({"replica.selector.class": "com.example.Nearest"}, "replica.selector.class must be one of Kafka's classes"),
    ({"num.replica.fetchers": "0"}, "num.replica.fetchers is out of range"),
    (
        {"process.roles": "broker,controller"},
        "cannot be one of several controllers: controller.quorum.voters must name only this broker",
    ),
    (
        {"process.roles": "broker,controller", "controller.quorum.voters": "3@c3.example:9093"},
        "cannot be one of several controllers",
    ),
    (
        {"process.roles": "", "controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "a:1,b:2"},
        "cannot be one of several controllers: controller.quorum.bootstrap.servers must name only this broker",
    ),
]
"""What Kafka takes, or finds out later."""
