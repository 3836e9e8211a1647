"""AlterClientQuotas of a broker that is alone: what is refused, what is kept, and that another start finds it."""

from __future__ import annotations

from typing import Any

from tests.broker.conftest import StartBroker
from tests.broker.raw import RawClient
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tidelog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest

Parts = tuple[tuple[str, str | None], ...]

ANN = (("user", "ann"),)
APP = (("client-id", "app"),)


def entry(parts: Parts, **ops: float | None) -> EntryData:
    return EntryData(
        [EntityData(*part) for part in parts],
        [OpData(key, 0.0 if value is None else value, value is None) for key, value in ops.items()],
    )


WRONG = (
    entry((), producer_byte_rate=1.0),
    entry((("group", "g"),), producer_byte_rate=1.0),
    entry((("user", ""),), producer_byte_rate=1.0),
    entry((("user", "bob"), ("user", "eve")), producer_byte_rate=1.0),
    entry((("ip", "1.1.1.1"), ("user", "bob")), connection_creation_rate=1.0),
    entry((("ip", "no such host."),), connection_creation_rate=1.0),
    entry((("ip", None),), producer_byte_rate=1.0),
    entry((("user", "bob"),), connection_creation_rate=1.0),
    entry((("user", "c"),), no_such_rate=1.0),
    entry((("user", "d"),), producer_byte_rate=0.0),
    entry((("user", "e"),), producer_byte_rate=-1.0),
    entry((("user", "f"),), producer_byte_rate=1.5),
    entry((("user", "g"),), producer_byte_rate=1e19),
    entry((("user", "h"),), producer_byte_rate=float("nan")),
    entry((("user", "i"),), producer_byte_rate=float("inf")),
    entry((("ip", "::1"),), connection_creation_rate=3e9),
    EntryData([EntityData("user", "k")], [OpData("request_percentage", 1.0), OpData("request_percentage", 2.0)]),
)

MORE_IS_REFUSED = (3, 13)
"""Where Kafka takes what makes no sense: of two users the last one, and a number that is none."""


def altered(client: RawClient, *entries: EntryData, validate_only: bool = False, version: int = 1) -> list[str]:
    answer = client.ask(AlterClientQuotasRequest(list(entries), validate_only), version)
    named = [{(part.entity_type, part.entity_name) for part in one.entity} for one in answer.entries]
    assert named == [{(part.entity_type, part.entity_name) for part in one.entity} for one in entries]
    return [ErrorCode(one.error_code).name for one in answer.entries]


def found(client: RawClient) -> dict[Parts, dict[str, float]]:
    answer: Any = client.ask(DescribeClientQuotasRequest(), 1)
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {value.key: value.value for value in one.values}
        for one in answer.entries
    }


def test_quotas_are_set_and_removed(start_broker: StartBroker) -> None:
    broker = start_broker()
    both = (("client-id", None), ("user", "ann"))
    with broker.client() as client:
        assert not broker.on_loop(lambda: broker.node.quotas.is_active)
        entries = (
            entry(ANN, producer_byte_rate=1000.0, request_percentage=0.5),
            entry(both, consumer_byte_rate=5.0),
            entry((("ip", "127.0.0.1"),), connection_creation_rate=10.0),
        )
        assert altered(client, *entries, validate_only=True) == ["NONE"] * 3
        assert found(client) == {}
        assert altered(client, *entries, version=0) == ["NONE"] * 3
        assert broker.on_loop(lambda: broker.node.quotas.is_active)
        kept = {
            ANN: {"producer_byte_rate": 1000.0, "request_percentage": 0.5},
            both[::-1]: {"consumer_byte_rate": 5.0},
            (("ip", "127.0.0.1"),): {"connection_creation_rate": 10.0},
        }
        assert found(client) == kept
        assert altered(client, entry(ANN, producer_byte_rate=None, controller_mutation_rate=None)) == ["NONE"]
        del kept[ANN]["producer_byte_rate"]
        assert found(client) == kept
    broker.stop()
    broker = start_broker(broker.data_dir)
    with broker.client() as client:
        assert found(client) == kept
        assert broker.on_loop(lambda: broker.node.quotas.counts_time)
        removals = (entry(ANN, request_percentage=None), entry(both[::-1], consumer_byte_rate=None))
        assert altered(client, *removals) == ["NONE", "NONE"]
        assert not broker.on_loop(lambda: broker.node.quotas.is_active)


def test_what_is_no_quota_is_refused_alone(start_broker: StartBroker) -> None:
    broker = start_broker()
    with broker.client() as client:
        right = entry(APP, producer_byte_rate=7.0)
        assert altered(client, *WRONG, right) == ["INVALID_REQUEST"] * len(WRONG) + ["NONE"]
        assert altered(client, right, right) == ["NONE", "INVALID_REQUEST"]
        assert found(client) == {APP: {"producer_byte_rate": 7.0}}
