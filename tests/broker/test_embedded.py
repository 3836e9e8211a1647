"""`tidelog.Broker`: a broker inside the process, its folder, its clock; through real sockets, with librdkafka."""

from __future__ import annotations

import gc
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

import tidelog
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.server.broker_server import BrokerServer
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, StorageError, TopicExistsError, UnknownTopicOrPartitionError
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.testing import Broker
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

HOUR_MS = 3600 * 1000
NOW_MS = 1_700_000_000_000
DAY_MS = 24 * HOUR_MS


def produce(bootstrap: str, topic: str, values: list[bytes], timestamps: list[int] | None = None) -> list[int]:
    """Write the values to partition 0, one batch each; return their offsets, in the order of the acknowledgements."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "batch.num.messages": 1, "linger.ms": 0})
    for index, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=0,
            timestamp=timestamps[index] if timestamps else 0,
            on_delivery=lambda error, message: offsets.append(-1 if error else message.offset()),
        )
    assert producer.flush(PATIENCE_S) == 0
    return offsets


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Read `count` values from the beginning of partition 0 on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, PATIENCE_S)
        assert [message.error() for message in messages] == [None] * count
        return [message.value() for message in messages]
    finally:
        consumer.close()


def earliest(bootstrap: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partition = TopicPartition(topic, 0)
    found = admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(PATIENCE_S)
    return int(found.offset)


def create_topic(bootstrap: str, name: str, **config: object) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = NewTopic(name, 1, 1, config={key.replace("_", "."): str(value) for key, value in config.items()})
    admin.create_topics([wanted], request_timeout=PATIENCE_S)[name].result(PATIENCE_S)


def has_clean_mark(folder: Path) -> bool:
    return (folder / CLEAN_SHUTDOWN_FILE).exists()


def test_stopped_and_started_again_it_has_the_same_records_at_the_same_address(tmp_path: Path) -> None:
    with tidelog.Broker(tmp_path / "data") as broker:
        address = broker.bootstrap_servers
        assert produce(address, "orders", [b"1", b"2"]) == [0, 1]
        assert broker.stop()
        assert not broker.is_running
        assert not broker.stop(), "it is idempotent"
        assert has_clean_mark(broker.data_dir)
        broker.start()
        assert broker.bootstrap_servers == address
        assert produce(address, "orders", [b"3"]) == [2]
        assert consume(address, "orders", 3) == [b"1", b"2", b"3"]
    assert has_clean_mark(tmp_path / "data")


def test_killed_it_recovers_what_was_acknowledged(tmp_path: Path) -> None:
    with tidelog.Broker(tmp_path / "data") as broker:
        values = [b"%d" % number for number in range(50)]
        assert produce(broker.bootstrap_servers, "orders", values) == list(range(50))
        broker.kill()
        assert not has_clean_mark(broker.data_dir)
        broker.start()
        assert broker.call(lambda running: running.node.manager.had_clean_shutdown) is False
        assert consume(broker.bootstrap_servers, "orders", 50) == values
        assert produce(broker.bootstrap_servers, "orders", [b"next"]) == [50]


def test_without_a_folder_nothing_stays_behind() -> None:
    with tidelog.Broker() as broker:
        folder = broker.data_dir
        assert folder.is_dir()
        broker.stop()
        broker.start()
        assert folder.is_dir()
    assert not folder.exists()
    assert not folder.parent.exists()


def test_seven_days_of_retention_take_no_time() -> None:
    clock = ManualClock(1373414400000)
    with tidelog.Broker(clock=clock, log_retention_hours=7 * 24) as broker:
        create_topic(broker.bootstrap_servers, "hourly", segment_ms=DAY_MS)
        start_ms = clock.now_ms()
        times = [start_ms + hour * HOUR_MS for hour in range(0, 5 * 24, 6)]
        assert produce(broker.bootstrap_servers, "hourly", [b"x"] * len(times), times) == list(range(len(times)))
        assert earliest(broker.bootstrap_servers, "hourly") == 0
        clock.advance(7 * DAY_MS)
        assert earliest(broker.bootstrap_servers, "hourly") == 0, "nothing is older than seven days yet"
        clock.advance(2 * DAY_MS)
        first = earliest(broker.bootstrap_servers, "hourly")
        # Segments hold a day: what is left begins no later than seven days ago, and no earlier than eight.
        assert clock.now_ms() - 8 * DAY_MS <= times[first] <= clock.now_ms() - 7 * DAY_MS
        clock.advance(30 * DAY_MS)
        assert earliest(broker.bootstrap_servers, "hourly") == len(times), "all are gone, offsets go on"
        assert produce(broker.bootstrap_servers, "hourly", [b"y"]) == [len(times)]


def test_properties_by_either_name(tmp_path: Path) -> None:
    broker = Broker(tmp_path, num_partitions=3, **{"log.retention.ms": 5000}, segment_bytes=100_000, broker_rack=None)
    with broker:
        config, defaults = broker.call(lambda running: (running.node.config, running.node.manager.config.topic_defaults))
    assert (config.num_partitions, config.broker_rack) == (3, None)
    assert defaults == {"retention.ms": 5000, "segment.bytes": 100_000}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"log_retention_centuries": 1}, "log.retention.centuries"),
        ({"num_partitions": 0}, "num.partitions"),
        ({"log.dirs": "/a,/b"}, "log.dirs"),
        ({"listeners": "OTHER://:9093"}, "has no protocol"),
        ({"ssl_cafile": "ca.pem"}, r"client_config\(\) returns the settings of clients: found ssl.cafile, expected tls=True"),
        ({"tls": True, "sasl_mechanism": "PLAIN"}, "found sasl.mechanism"),
    ],
)
def test_bad_properties(properties: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Broker(**properties)  # type: ignore[arg-type]


def test_what_cannot_start_leaves_nothing_running(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Broker(tmp_path / "one") as one:
        with pytest.raises(InvalidArgumentError, match="is already running"):
            one.start()
        with pytest.raises(StorageError, match="using this folder"):
            Broker(tmp_path / "one").start()
        with pytest.raises(InvalidArgumentError, match="cannot listen"):
            Broker(tmp_path / "two", port=one.port).start()
        assert has_clean_mark(tmp_path / "two")
        assert one.call(lambda running: len(running.listeners)) == 1, "it goes on"
    # The search for missing offsets ends by itself, soon after the broker.
    wait_until(lambda: set(threading.enumerate()) <= before, "the end of all threads", PATIENCE_S)


def test_a_broker_that_does_not_run_says_so(tmp_path: Path) -> None:
    broker = Broker(tmp_path, port=1)
    assert "not running" in repr(broker)
    with pytest.raises(InvalidArgumentError, match="not running"):
        broker.tick()
    assert not broker.stop()
    broker.kill()


def test_calls_from_several_threads_and_an_error_in_one() -> None:
    with Broker() as broker:
        seen: list[int | None] = []
        threads = [threading.Thread(target=lambda: seen.append(broker.call(lambda _: threading.get_ident()))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(seen)) == 1
        assert seen[0] != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            broker.call(lambda _: 1 // 0)
        assert broker.tick() == 0
        assert broker.call(lambda _: broker.tick()) == 0, "on the broker's own thread too"


def test_a_clock_is_heard_only_while_the_broker_runs() -> None:
    clock = ManualClock(1)
    with Broker(clock=clock) as broker:
        ran: list[str] = []
        broker.call(lambda running: running.node.manager.scheduler.schedule("note", lambda: ran.append("note"), delay_ms=100))
        clock.advance(99)
        assert not ran
        clock.advance(1)
        assert ran == ["note"]
        broker.stop()
        clock.advance(DAY_MS)
    clock.advance(DAY_MS)


def test_a_consumer_that_waits_does_not_keep_it() -> None:
    with Broker() as broker, waiting_consumer(broker.bootstrap_servers):
        broker.call(lambda _: None)
        ended = threading.Thread(target=broker.stop)
        ended.start()
        ended.join(PATIENCE_S)
        assert not ended.is_alive(), "well before the client's time"


@contextmanager
def waiting_consumer(bootstrap: str) -> Iterator[None]:
    assert produce(bootstrap, "quiet", [b"one"]) == [0]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 200_000,
            "socket.timeout.ms": 240_000,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("quiet", 0, 0)])
    assert consumer.poll(PATIENCE_S).value() == b"one"  # type: ignore[union-attr]
    yield
    consumer.close()


def test_all_that_was_begun_is_answered_though_the_client_is_slow_and_sends_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that is closed with requests unread in it is reset, and answers that are on their way would be lost."""
    stop = BrokerServer.stop
    monkeypatch.setattr(BrokerServer, "stop", lambda server, grace_s: stop(server, PATIENCE_S))
    batch = bytes(build_batch_v2([Record(0, 1373450400000, CREATE_TIME, None, b"value")]))
    topic = TopicProduceData("orders", partition_data=[PartitionProduceData(0, batch)])
    request = b"".join(request_chunks(ProduceRequest(None, 1, 1000, [topic]), 8, 1, "slow"))
    with Broker(socket_send_buffer_bytes=8192) as broker:
        broker.call(lambda running: running.node.manager.create_topic("orders", 1))
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", broker.port))
            slow.setblocking(False)
            unsent = b""
            while select.select([], [slow], [], 0.2)[1]:
                unsent = unsent or request * 20
                unsent = unsent[slow.send(unsent) :]
            slow.settimeout(PATIENCE_S)
            ended = threading.Thread(target=broker.stop)
            ended.start()
            answers = b"".join(iter(lambda: slow.recv(65536), b""))
            ended.join()
        broker.start()
        answered, rest = divmod(len(answers), 4 + int.from_bytes(answers[:4], "big"))
        assert (answered, rest) == (broker.call(lambda running: running.node.manager.log("orders", 0).log_end_offset), 0)


def test_every_interface_and_several_listeners() -> None:
    with Broker(listeners="PLAINTEXT://:0", advertised_listeners="PLAINTEXT://localhost:0") as broker:
        hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
        assert broker.bootstrap_servers == f"localhost:{broker.port}"
        for host in hosts:
            socket.create_connection((host, broker.port), timeout=PATIENCE_S).close()
    names = {"listeners": "A://127.0.0.1:0,B://127.0.0.1:0", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    with Broker(**names) as broker:  # type: ignore[arg-type]
        first, second = broker.call(lambda running: running.listeners)
        assert first.port != second.port
        for listener in (first, second):
            metadata = AdminClient({"bootstrap.servers": f"127.0.0.1:{listener.port}", "log_level": 0}).list_topics(
                timeout=PATIENCE_S
            )
            assert [one.port for one in metadata.brokers.values()] == [listener.port]


class TestWithoutAClient:
    def test_topics_and_records(self) -> None:
        clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        with Broker(clock=clock) as broker:
            broker.create_topic("orders", 3, retention_ms=1000, **{"cleanup.policy": "delete"})
            assert broker.produce("orders", b"first", partition=1) == 0
            assert broker.produce("orders", ["second", None], key="k", partition=1, headers=[("h", b"1")]) == [1, 2]
            assert broker.produce("orders", []) == []
            at = clock.now_ms()
            assert (
                broker.records("orders")
                == broker.records("orders", 1)
                == [
                    Record(0, at, CREATE_TIME, None, b"first"),
                    Record(1, at, CREATE_TIME, b"k", b"second", (("h", b"1"),)),
                    Record(2, at, CREATE_TIME, b"k", None, (("h", b"1"),)),
                ]
            )
            clock.advance(timedelta(days=7))
            assert broker.records("orders") == []
            assert broker.produce("made", b"x", timestamp_ms=5) == 0
            assert [record.timestamp for record in broker.records("made")] == [5]
            assert consume(broker.bootstrap_servers, "made", 1) == [b"x"]

    def test_a_key_goes_where_clients_send_it(self) -> None:
        with Broker(num_partitions=7) as broker:
            client = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random", "log_level": 0})
            for number in range(20):
                broker.produce("t", b"ours", key=f"key {number}")
                client.produce("t", b"theirs", key=f"key {number}")
            assert client.flush(PATIENCE_S) == 0
            for partition in range(7):
                records = broker.records("t", partition)
                keys = {value: [one.key for one in records if one.value == value] for value in (b"ours", b"theirs")}
                assert sorted(keys[b"ours"]) == sorted(keys[b"theirs"])

    def test_refusals(self) -> None:
        with Broker() as broker:
            with pytest.raises(InvalidArgumentError, match=r"did you mean retention.ms\?"):
                broker.create_topic("t", retention_mss=1)
            for other in ("replication_factor", "num_partitions", "config"):
                with pytest.raises(InvalidArgumentError, match=f"create_topic has no argument {other}: expected"):
                    broker.create_topic("t", **{other: 1})
            with pytest.raises(UnknownTopicOrPartitionError):
                broker.records("t")
            broker.create_topic("t")
            with pytest.raises(TopicExistsError):
                broker.create_topic("t")
            with pytest.raises(UnknownTopicOrPartitionError):
                broker.produce("t", b"x", partition=1)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        *(("log_retention_mss", "log.retention.ms"), ("num.partition", "num.partitions"), ("retention.m", "retention.ms")),
        *(("group_initial_rebalance_delay", "group.initial.rebalance.delay.ms"), ("group.max.sise", "group.max.size")),
    ],
)
def test_a_misspelt_property_names_the_right_one(wrong: str, right: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"did you mean {right}\?"):
        Broker(**{wrong: 1})


@pytest.mark.parametrize("delay_ms", [None, 200])
def test_a_group_begins_though_the_clock_stands_still(delay_ms: int | None) -> None:
    with Broker(clock=ManualClock(NOW_MS), group_initial_rebalance_delay_ms=delay_ms) as broker:
        broker.produce("t", [b"a", b"b"], timestamp_ms=NOW_MS)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
        )
        try:
            consumer.subscribe(["t"])
            assert [message.value() for message in consumer.consume(2, PATIENCE_S)] == [b"a", b"b"]
        finally:
            consumer.close()


def collect_until(condition: Callable[[], bool]) -> None:
    """Collect garbage again while a step of the broker's loop, or of another thread, still refers to a dropped broker."""
    wait_until(lambda: gc.collect() >= 0 and condition(), "the end of a dropped broker", PATIENCE_S)


class TestDropped:
    def test_it_stops_and_then_its_folder_goes(self) -> None:
        broker = Broker().start()
        broker.produce("t", b"x")
        folder, port = broker.data_dir, broker.port
        with pytest.warns(ResourceWarning, match="garbage-collected without stop"):
            del broker
            collect_until(lambda: not folder.exists())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)

    def test_a_folder_of_ones_own_stays_and_is_clean(self, tmp_path: Path) -> None:
        broker = Broker(tmp_path).start()
        broker.produce("t", b"x")
        with pytest.warns(ResourceWarning):
            del broker
            collect_until((tmp_path / CLEAN_SHUTDOWN_FILE).exists)

    def test_on_its_own_thread(self) -> None:
        """Garbage may be collected anywhere: the broker's thread must not wait for itself."""
        held = [Broker().start()]
        folder = held[0].data_dir
        serving = held[0]._serving
        assert serving is not None
        with pytest.warns(ResourceWarning):
            serving.call(lambda running: held.clear())
            serving._thread.join(PATIENCE_S)
        assert not serving._thread.is_alive()
        assert not folder.exists()

    def test_stopped_it_is_dropped_in_silence(self) -> None:
        broker = Broker().start()
        broker.stop()
        broker.start()
        broker.stop()
        temporary = broker._temporary
        assert temporary is not None
        del broker
        gc.collect()
        temporary.cleanup()

    def test_the_program_ends(self, tmp_path: Path) -> None:
        program = f"import tidelog; broker = tidelog.Broker({str(tmp_path)!r}).start(); broker.produce('t', b'x')"
        done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


def test_a_hole_in_a_log_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tidelog.Broker(tmp_path) as broker:
        broker.create_topic("t", segment_bytes=150)
        for _ in range(3):
            broker.produce("t", "x" * 50)
    middle = sorted((tmp_path / "t-0").glob("*.log"))[1]
    for path in middle.parent.glob(f"{middle.stem}.*"):
        path.unlink()
    with tidelog.Broker(tmp_path):
        for thread in threading.enumerate():
            if thread.name == "tidelog-holes":
                thread.join(PATIENCE_S)
        warned = [one.getMessage() for one in caplog.records if "consumers will skip these offsets" in one.getMessage()]
    assert len(warned) == 1
    assert warned[0].startswith("t-0: offsets [1, 2) missing")


def test_a_topic_that_is_deleted() -> None:
    with Broker() as broker:
        broker.create_topic("orders", 2)
        broker.produce("orders", "a", partition=1)
        broker.delete_topic("orders")
        with pytest.raises(UnknownTopicOrPartitionError):
            broker.delete_topic("orders")
        broker.create_topic("orders")
        assert broker.records("orders") == []
        broker.call(lambda running: broker.delete_topic("orders"))
        assert broker.produce("orders", "b") == 0
