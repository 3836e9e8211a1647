"""The properties of each process of `tidelog serve --processes`, derived from the configuration of one broker.

Broker k listens on the given ports plus k - 1. Without a cluster, brokers get a controller (`broker.controller`), with which
they share a password; `_LOCAL` is the listener at which they reach each other. In a cluster they keep its controllers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidelog.broker.requests.listeners import MAX_PORT, Listener, joined
from tidelog.broker.settings.cluster_config import CLUSTER_PROPERTIES
from tidelog.errors import InvalidArgumentError
from tidelog.storage.folder.process_folders import CONTROLLER_ID

_USER = "broker"
_CONTROLLER, _LOCAL = "CONTROLLER", "LOCAL"
_PROTOCOL = "SASL_PLAINTEXT"

_OF_ONE = CLUSTER_PROPERTIES | {"node.id", "broker.id", "log.dirs", "log.dir", "zookeeper.connect", "controller.listener.names"}
"""Properties that are replaced for the controller and for each broker, whatever the configuration says."""

_OF_SOCKETS = ("listener", "advertised.", "sasl.", "ssl.", "control.plane.")


def controllers(properties: Mapping[str, str], password: str) -> dict[str, str]:
    """Return the properties of the controller: the limits, the authorizer and the topic defaults are the same as the brokers'."""
    given = {name: value for name, value in properties.items() if name not in _OF_ONE and not name.startswith(_OF_SOCKETS)}
    return {
        **given,
        "listeners": f"{_CONTROLLER}://127.0.0.1:0",
        "listener.security.protocol.map": f"{_CONTROLLER}:{_PROTOCOL}",
        "sasl.enabled.mechanisms": "PLAIN",
        _jaas_of(_CONTROLLER): _jaas(password, is_server=True),
        "super.users": _super_users(properties),
    }


def brokers(
    properties: Mapping[str, str],
    listeners: Iterable[Listener],
    number: int,
    folder: Path,
    password: str,
    controller_port: int,
) -> dict[str, str]:
    """Return the properties of broker `number`, whose controller listens at `controller_port`."""
    mine = _addresses(listeners, f"{_LOCAL}://127.0.0.1:0")
    protocols = {_CONTROLLER: _PROTOCOL, _LOCAL: _PROTOCOL, **{one.name: one.protocol for one in listeners}}
    mechanisms = dict.fromkeys([*filter(None, properties.get("sasl.enabled.mechanisms", "").split(",")), "PLAIN"])
    return {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **{name: value for name, value in properties.items() if name not in _OF_ONE},
        **mine,
        "process.roles": "broker",
        "controlled.shutdown.enable": "false",  # No other broker could lead its partitions.
        "node.id": str(number),
        "log.dirs": str(folder),
        "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{controller_port}",
        "controller.listener.names": _CONTROLLER,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": _LOCAL,
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        _jaas_of(_CONTROLLER): _jaas(password, is_server=False),
        _jaas_of(_LOCAL): _jaas(password, is_server=True),
        f"listener.name.{_LOCAL.lower()}.sasl.enabled.mechanisms": "PLAIN",
        "super.users": _super_users(properties),
    }


def members(
    properties: Mapping[str, str], listeners: Iterable[Listener], number: int, node_id: int, folder: Path
) -> dict[str, str]:
    """Return the properties of the cluster member `number`; `node_id` is the first member's."""
    name = "broker.id" if "broker.id" in properties and "node.id" not in properties else "node.id"
    return {**properties, **_addresses(listeners), name: str(node_id + number - 1), "log.dirs": str(folder)}


def as_text(properties: Mapping[str, str]) -> str:
    """Return the properties as the text of a properties file."""
    escaped = ((name, value.replace("\\", "\\\\").replace("\n", "\\n")) for name, value in properties.items())
    return "".join(f"{name}={value}\n" for name, value in escaped)


def shifted(listeners: Iterable[Listener], number: int, ports: Sequence[int] = ()) -> list[Listener]:
    """Return the listeners of broker `number`: the given ports plus `number` - 1. Port 0, which means any free
    port, is replaced by the port of the broker's last run, from `ports`.
    """

    def of(port: int, last: int) -> int:
        return port + number - 1 if port else last

    last = [*ports, *([0] * len(tuple(listeners)))]
    return [
        one._replace(port=of(one.port, before), advertised_port=of(one.advertised_port, before))
        for one, before in zip(listeners, last, strict=False)
    ]


def all_listeners(listeners: Iterable[Listener], count: int) -> list[Listener]:
    """Return the listeners of brokers 1 to `count`. Raises InvalidArgumentError for a port above 65535, and for a port that
    two listeners share.
    """
    result: list[Listener] = []
    at: dict[int, tuple[str, int]] = {}
    for number in range(1, count + 1):
        for one in shifted(listeners, number):
            port = max(one.port, one.advertised_port)
            if port > MAX_PORT:
                raise InvalidArgumentError(f"port {port} of broker {number} is out of range: the highest port is {MAX_PORT}")
            name, other = at.setdefault(one.port, (one.name, number)) if one.port else (one.name, number)
            if (name, other) != (one.name, number):
                raise InvalidArgumentError(
                    f"{one.name} of broker {number} and {name} of broker {other} have the same port: found {port}, expected "
                    f"listeners whose ports are at least {count} apart"
                )
            result.append(one)
    return result


def _addresses(listeners: Iterable[Listener], *more: str) -> dict[str, str]:
    given = list(listeners)
    result = {"listeners": ",".join([*(f"{one.name}://{joined(one.host, one.port)}" for one in given), *more])}
    if all(one.advertised_port for one in given):
        advertised = [f"{one.name}://{joined(one.advertised_host, one.advertised_port)}" for one in given]
        result["advertised.listeners"] = ",".join([*advertised, *more])
    return result


def _jaas_of(listener: str) -> str:
    return f"listener.name.{listener.lower()}.plain.sasl.jaas.config"


def _jaas(password: str, *, is_server: bool) -> str:
    known = f' user_{_USER}="{password}"' if is_server else ""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{module} required username="{_USER}" password="{password}"{known};'


def _super_users(properties: Mapping[str, str]) -> str:
    return ";".join(filter(None, (properties.get("super.users"), f"User:{_USER}")))
