"""`KafkaContainer` replaces testcontainers' class of the same name. It runs a broker in this process instead of a container.

    from tidelog.testing import KafkaContainer   # before: from testcontainers.kafka import KafkaContainer

    with KafkaContainer() as kafka:
        kafka.get_bootstrap_server()

| of testcontainers' class | here |
|---|---|
| `with_env("KAFKA_NUM_PARTITIONS", "3")` | sets the broker's property `num.partitions`, by the rules of Kafka's images |
| `KAFKA_LISTENERS` and related variables, `listener_name`, `security_protocol` | set the protocol of the listener at `port` |
| `with_bind_ports(9093, 19093)` | makes the broker listen on port 19093 instead of any free port |
| image, cluster id, `with_kraft`, controllers, ZooKeeper, memory, `with_name` | have no effect |
| networks, volumes, commands, `exec`, logs | raise AttributeError: nothing runs in a container |

`broker` is the running `tidelog.Broker`. After `stop`, the next `start` begins with an empty folder, like a new container.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from tidelog.broker.broker import Broker
from tidelog.broker.requests.listeners import joined
from tidelog.errors import InvalidArgumentError
from tidelog.properties_file import parse_properties
from tidelog.security.client_config import PLAINTEXT
from tidelog.testing.brokers_of_run import BrokersOfRun

_SHELL = ("_OPTS", "_LOGLEVEL", "_LOGGERS", "_JMX_PORT", "_JMX_HOSTNAME")
"""Suffixes of environment variables that only the image's scripts use."""

_OF_THE_CONTAINER = (
    "advertised.listeners",
    "broker.id",
    "controller.",
    "inter.broker.",
    "listener.security.protocol.map",
    "listeners",
)
_OF_THE_CLUSTER = ("log.dirs", "node.id", "process.roles", "zookeeper.")


class KafkaContainer:
    """A broker with the interface of testcontainers' KafkaContainer. `start` raises the errors of `tidelog.Broker`."""

    def __init__(
        self,
        image: str = "",
        port: int = 9093,
        wait_strategy_check_string: str = "",
        listener_name: str = PLAINTEXT,
        security_protocol: str = PLAINTEXT,
        **kwargs: Any,
    ) -> None:
        self.image = image
        self.port = port
        self.env: dict[str, str] = {}
        self._host_port = 0
        self._running: AbstractContextManager[Broker] | None = None
        self._broker: Broker | None = None
        self.with_env("KAFKA_LISTENERS", f"{listener_name}://0.0.0.0:{port}")
        self.with_env("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", f"{listener_name}:{security_protocol}")
        self.with_env("KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS", "1")
        self.with_envs(**(kwargs.get("env") or {}))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"KafkaContainer.{name}: Tidelog runs no container; `broker` is the tidelog.Broker that runs instead"
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def broker(self) -> Broker:
        """The running broker. Raises InvalidArgumentError if none is running."""
        if self._broker is None:
            raise InvalidArgumentError("the KafkaContainer is not started")
        return self._broker

    def start(self, timeout: int = 30) -> Self:
        """Start a broker with an empty folder. `timeout` has no effect, because the broker serves clients as soon as this
        returns.
        """
        if self._broker is not None:
            raise InvalidArgumentError("the KafkaContainer is already running")
        run = BrokersOfRun.active or BrokersOfRun(None)
        self._running = run.started(None, "KafkaContainer", None, takes_topics=False, **self._properties())
        self._broker = self._running.__enter__()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Stop the broker and remove its folder. Idempotent."""
        running, self._running, self._broker = self._running, None, None
        if running is not None:
            running.__exit__(None, None, None)

    # --- where it is

    def get_bootstrap_server(self) -> str:
        """Return the bootstrap servers for clients, as `host:port`."""
        return self.broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        """Return the host of `get_bootstrap_server`."""
        return self.broker.bootstrap_servers.rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """Return the port of `get_bootstrap_server`. Raises InvalidArgumentError if `port` is not Kafka's port."""
        if int(port) != self.port:
            raise InvalidArgumentError("the broker has only one port", found=str(port), expected=str(self.port))
        return self.broker.port

    # --- its configuration, before it starts

    def with_env(self, key: str, value: Any) -> Self:
        """Set an environment variable as for Kafka's images. Variables that begin with `KAFKA_` set properties of the broker."""
        self.env[key] = str(value)
        return self

    def with_envs(self, **variables: Any) -> Self:
        """Set several environment variables, as `with_env` does."""
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_bind_ports(self, container: int | str, host: int | str | None = None) -> Self:
        """Let the broker listen on port `host` if `container` is Kafka's port. Otherwise do nothing."""
        if str(container).partition("/")[0] == str(self.port):
            self._host_port = int(host or 0)
        return self

    def with_kraft(self) -> Self:
        """Return self. A single broker needs neither KRaft controllers nor ZooKeeper."""
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        """Return self. Each folder has a new cluster id."""
        return self

    def with_name(self, name: str) -> Self:
        """Return self. A broker without a container has no name."""
        return self

    def with_exposed_ports(self, *ports: int | str) -> Self:
        """Return self. The broker's port is always exposed."""
        return self

    def with_kwargs(self, **kwargs: Any) -> Self:
        """Return self. Docker's arguments have no effect."""
        return self

    def waiting_for(self, strategy: object) -> Self:
        """Return self. The broker serves clients as soon as `start` returns."""
        return self

    def _properties(self) -> dict[str, str]:
        given: dict[str, str] = {}
        for key, value in self.env.items():
            if key.startswith("KAFKA_") and not key.endswith(_SHELL):
                # The images write a properties file, in which a backslash is the escape character.
                given |= parse_properties(f"{_property_name(key)}=" + value.replace("\n", "\\n"))
        name = next(
            (one.partition("://")[0].strip() for one in given["listeners"].split(",") if one.strip().endswith(f":{self.port}")),
            None,
        )
        if name is None:
            raise InvalidArgumentError(f"KAFKA_LISTENERS has no listener at port {self.port}", found=given["listeners"])
        protocols = dict(one.strip().split(":") for one in given["listener.security.protocol.map"].split(","))
        protocol = protocols.get(name, name)
        properties = {key: value for key, value in given.items() if not key.startswith(_OF_THE_CONTAINER + _OF_THE_CLUSTER)}
        # Certificates are for localhost. Without TLS, use an IP address, which saves clients an attempt with IPv6.
        host = "localhost" if protocol.endswith("SSL") else "127.0.0.1"
        return properties | {
            "listeners": f"{name}://{joined(host, self._host_port)}",
            "listener.security.protocol.map": f"{name}:{protocol}",
        }


def replace_testcontainers() -> None:
    """Replace `KafkaContainer` in testcontainers' module for Kafka. Do nothing if testcontainers is not installed."""
    for module in ("testcontainers.community.kafka", "testcontainers.kafka"):
        with suppress(ModuleNotFoundError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Accessing one of the names causes a deprecation warning.
            vars(import_module(module))["KafkaContainer"] = KafkaContainer


def _property_name(key: str) -> str:
    words = key.removeprefix("KAFKA_").lower()
    return words.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
