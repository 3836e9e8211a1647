"""InitProducerId, and what idempotent producers may rely on: nothing twice, nothing missing, also over a restart (KIP-98)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import confluent_kafka
import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.produce_helpers import LATEST, NOW_MS, Answer, answer, produce_request, some_records
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tidelog import Broker
from tidelog.broker.node import Node
from tidelog.clock import ManualClock
from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.records import iter_records
from tidelog.storage.producers.producer_ids import LOWEST_ID
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

VERSIONS = range(6)


def ask(
    client: RawClient, version: int = 4, *, transactional_id: str | None = None, producer_id: int = -1, producer_epoch: int = -1
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    response: InitProducerIdResponse = client.ask(request, version)
    return response


def batch(producer_id: int, epoch: int, sequence: int, count: int = 3) -> bytes:
    return bytes(build_batch_v2(some_records(count), producer=Producer(producer_id, epoch, sequence)))


class TestInitProducerId:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_each_version(self, client: RawClient, version: int) -> None:
        """Every id is a new one, with epoch 0."""
        first, second = (ask(client, version) for _ in range(2))
        assert (first.error_code, first.producer_epoch, first.throttle_time_ms) == (0, 0, 0)
        assert LOWEST_ID <= first.producer_id < second.producer_id

    def test_an_id_that_it_has_is_replaced(self, client: RawClient) -> None:
        """KIP-360: an idempotent producer that lost its way starts over."""
        known = ask(client)
        new = ask(client, producer_id=known.producer_id, producer_epoch=0)
        assert (new.error_code, new.producer_epoch) == (0, 0)
        assert new.producer_id != known.producer_id

    @pytest.mark.parametrize(
        ("transactional_id", "producer_id", "producer_epoch", "code"),
        [
            (None, 5, -1, ErrorCode.INVALID_REQUEST),
            (None, -1, 3, ErrorCode.INVALID_REQUEST),
            ("", -1, -1, ErrorCode.INVALID_REQUEST),
            ("", 5, -1, ErrorCode.INVALID_REQUEST),
            ("me", -1, -1, ErrorCode.NOT_COORDINATOR),
        ],
    )
    def test_refused(
        self, client: RawClient, transactional_id: str | None, producer_id: int, producer_epoch: int, code: ErrorCode
    ) -> None:
        response = ask(client, transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)

    def test_a_disk_that_refuses(self, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody gets an id that another may get again; the client asks later."""

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no room")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse)
            response = ask(client)
        assert (response.error_code, response.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)


class TestIdempotence:
    def test_repeats_gaps_and_epochs(self, start_broker: StartBroker) -> None:
        """As Kafka 3.9.1 answered the same requests: a repeat gets the old offsets and, as append time, the batch's time."""
        broker = start_broker(clock=ManualClock(NOW_MS))
        broker.create_topic("t")
        last_ms = NOW_MS + 2
        gap = Answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1, 0)
        fenced = Answer(ErrorCode.INVALID_PRODUCER_EPOCH, -1, -1, 0)
        with broker.client() as client:
            for epoch, sequence, expected in (
                (0, 0, Answer(0, 0, -1, 0)),
                (0, 0, Answer(0, 0, last_ms, 0)),
                (0, 3, Answer(0, 3, -1, 0)),
                (0, 0, Answer(0, 0, last_ms, 0)),
                (0, 9, gap),
                (0, 6, Answer(0, 6, -1, 0)),
                (1, 5, gap),
                (1, 0, Answer(0, 9, -1, 0)),
                (0, 9, fenced),
                (1, 3, Answer(0, 12, -1, 0)),
                (1, 0, Answer(0, 9, last_ms, 0)),
            ):
                got = answer(client.ask(produce_request(batch(77, epoch, sequence)), LATEST))
                assert (epoch, sequence, got) == (epoch, sequence, expected)
        assert broker.on_loop(lambda: broker.node.manager.log("t", 0).log_end_offset) == 15

    def test_an_unknown_producer_begins_anywhere(self, broker: RunningBroker, client: RawClient) -> None:
        broker.create_topic("t")
        assert answer(client.ask(produce_request(batch(78, 0, 5)), LATEST)) == Answer(0, 0, -1, 0)

    def test_a_repeat_is_not_counted(self, broker: RunningBroker, client: RawClient) -> None:
        broker.create_topic("t")
        for _ in range(3):
            client.ask(produce_request(batch(78, 0, 0)), LATEST)
        assert broker.node.metrics.topics["t"].records == 3

    def test_over_a_restart(self, start_broker: StartBroker) -> None:
        """What was sent again after the end of a broker is recognized, and sequences go on."""
        broker = start_broker(clock=ManualClock(NOW_MS))
        broker.create_topic("t")
        gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        with broker.client() as client:
            client.ask(produce_request(batch(5, 0, 0)), LATEST)
        broker.stop()
        broker.start()
        with broker.client() as client:
            assert answer(client.ask(produce_request(batch(5, 0, 0)), LATEST)).base_offset == 0
            assert answer(client.ask(produce_request(batch(5, 0, 6)), LATEST)).error_code == gap
            assert answer(client.ask(produce_request(batch(5, 0, 3)), LATEST)).base_offset == 3


class TestLibrdkafka:
    """What a real idempotent producer makes of it."""

    def test_nothing_twice_and_nothing_missing_over_a_kill(self, tmp_path: Path) -> None:
        """The broker goes and comes back while records are on their way, unanswered ones among them."""
        values = [b"%d" % i for i in range(3000)]
        with Broker(tmp_path / "data") as broker:
            broker.call(lambda running: running.node.manager.create_topic("t", 1))
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "enable.idempotence": True,
                    "linger.ms": 0,
                    "batch.num.messages": 50,
                    "reconnect.backoff.ms": 20,
                    "reconnect.backoff.max.ms": 50,
                    "retry.backoff.ms": 20,
                    "log_level": 0,
                }
            )
            delivered = 0

            def count(error: object, _: object) -> None:
                nonlocal delivered
                assert error is None
                delivered += 1

            for i, value in enumerate(values):
                producer.produce("t", value, partition=0, on_delivery=count)
                if i in (1000, 2000):
                    while delivered < i - 900:
                        assert producer.poll(PATIENCE_S)
                    broker.kill()
                    broker.start()
            assert producer.flush(PATIENCE_S) == 0
            stored, epochs = broker.call(lambda running: _stored(running.node))
        assert stored == values
        assert (epochs, epochs[0], epochs[-1]) == (sorted(epochs), 0, 2)

    def test_its_id_is_one_of_ours(self, broker: RunningBroker) -> None:
        broker.create_topic("t")
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        producer.produce("t", b"value")
        assert producer.flush(PATIENCE_S) == 0
        data = broker.on_loop(lambda: bytes(broker.node.manager.log("t", 0).read(0, 10_000).data))
        (header,) = iter_headers(data)
        assert header.producer_id >= LOWEST_ID
        assert (header.producer_epoch, header.base_sequence) == (0, 0)


def _stored(node: Node) -> tuple[list[bytes | None], list[int]]:
    """The values of a log, and the leader epochs of its batches."""
    data = bytes(node.manager.log("t", 0).read(0, 10_000_000).data)
    headers = list(iter_headers(data))
    values = [record.value for header in headers for record in iter_records(header, data[header.position : header.end_position])]
    return values, [header.leader_epoch for header in headers]
