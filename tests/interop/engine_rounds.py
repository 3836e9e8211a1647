"""Passes one data folder back and forth between Tidelog and a Kafka broker, after clean and unclean shutdowns.

| round | writer | starts with | ends |
|---|---|---|---|
| `first` | Kafka | topics that the engine has written and closed cleanly | cleanly |
| `second` | Tidelog | the folder with Kafka's appends | as by a kill |
| `third` | Kafka | that, and topics of a killed engine | killed while it writes |
| `fourth` | Tidelog | the folder of the killed Kafka | cleanly |
| `fifth` | Kafka | that | cleanly |

Each writer reads all topics, appends to them, and reads them again. Kafka's admin client creates the topics; then the engine's
files replace Kafka's empty ones, and the topic's id is written to partition.metadata.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from tests.interop import engine_topics
from tests.interop.engine_judges import Judgement, contents, judge
from tests.interop.engine_topics import BASE, LEGACY_CODECS, Sent
from tests.interop.engine_writer import BUSY, KilledWriter, Written, write_and_close
from tests.interop.live_topics import LiveTopic, Writer, wait_acknowledged
from tests.interop.seen import COMMITTED, UNCOMMITTED, Seen, see, serve
from tests.kafka import Kafka241, Kafka391
from tests.kafka.clients import Row, flush, list_offsets
from tests.kafka.java import wait_until
from tests.kafka.wire import Produced, produce_batch
from tests.patience import PATIENCE_S
from tests.storage.managers import die
from tidelog.clock import SystemClock
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.formats.partition_metadata import read_topic_id, write_topic_id
from tidelog.model import EARLIEST, LATEST, TopicPartition
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.records.records import Record
from tidelog.records.validation import AppendOrigin
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.producers.producer_ids import ProducerIds

KILLED = "killed-"
"""Before the names of the topics whose engine was killed."""
CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)
DEFAULTS = {name: BASE[name] for name in ("segment.bytes", "index.interval.bytes", "segment.index.bytes")}
"""What a folder of small segments goes on with where no topic is known."""
BROKER = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "600000"}


class RecentTopic(LiveTopic):
    """Records of the last hour: Kafka forgets producers of another day."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._begin_ms = SystemClock().now_ms() - engine_topics.HOUR_MS

    def timestamp(self, n: int) -> int:
        return super().timestamp(n) - super().timestamp(0) + self._begin_ms


@dataclass
class Round:
    """What a writer read from the folder before and after its appends."""

    found: dict[str, Seen] = field(default_factory=dict)
    left: dict[str, Seen] = field(default_factory=dict)
    appended: dict[str, list[bytes]] = field(default_factory=dict)
    """The values that were appended in between, by topic; a marker has none."""


class Rounds:
    """The folder, the broker, and their observations: `play` runs all rounds."""

    def __init__(self, root: Path, release: str) -> None:
        self.root = root
        self.release = release
        self.broker = (Kafka391 if release == "3.9.1" else Kafka241)(root / "kafka", BROKER)
        self.topics = engine_topics.topics(release)
        self.killed_topics = {KILLED + name: topic for name, topic in self.topics.items()}
        self.killed_topics[KILLED + BUSY] = engine_topics.Topic(BASE, lambda _: None)
        self.live = [RecentTopic("live"), RecentTopic("live-rolling")]
        self.written = Written()
        self.written_by_killed = Written()
        self.acknowledged_by_killed: dict[int, int] = {}
        self.first, self.second, self.third, self.fourth, self.fifth = (Round() for _ in range(5))
        self.producers: dict[str, list[Produced]] = {}
        self.repeated: dict[str, tuple[bool, int]] = {}
        self.before_recovery = root / "before-recovery"
        self.recovered: dict[str, dict[str, object]] = {}
        self.busy_found: list[Row] = []
        self.live_acknowledged: list[int] = []
        self.live_found: list[list[Row]] = []
        self.compacted: list[tuple[list[Row], list[Row]]] = []
        self.judgements: dict[str, Future[Judgement]] = {}
        self.folders: list[str] = []
        self._pool = ThreadPoolExecutor(1)

    @property
    def printed(self) -> str:
        """The broker's log output."""
        return (self.broker.folder / "broker.out").read_text()

    def play(self) -> None:
        broker = self.broker
        self._write()
        with broker:
            configs = {name: topic.kafka_settings for name, topic in (self.topics | self.killed_topics).items()}
            configs |= {topic.name: BASE | ({"segment.bytes": "2000"} if "rolling" in topic.name else {}) for topic in self.live}
            broker.create_topics(configs)
            broker.stop()
            put_under(broker, self.root / "clean", self.topics)
            self._first()
            self._second()
            put_under(broker, self.root / "killed", self.killed_topics)
            self._third_to_fifth()
        self._compact_by_tidelog()
        self._judge("fifth")
        self._pool.shutdown(wait=False)

    # --- before all

    def _write(self) -> None:
        """Have an engine write and end cleanly, and another one write until it is killed."""
        writer = KilledWriter(self.root / "killed", self.release, KILLED)
        self.written = write_and_close(self.root / "clean", self.release)
        self.written_by_killed, self.acknowledged_by_killed = writer.kill()

    # --- rounds

    def _first(self) -> None:
        this, broker = self.first, self.broker
        broker.start()
        asked = {topic: seen.targets for topic, seen in self.written.seen.items()}
        this.found = serve(broker, asked)
        for topic, sent in self.written.sent.items():
            self.producers[topic] = [produce_batch(broker.port, topic, 0, data) for data in self._continued(sent)]
            this.appended[topic] = [b"next"]
        self._append_by_kafka(this, "first")
        this.left = serve(broker, asked)
        broker.stop()
        self._judge("first")

    def _second(self) -> None:
        manager = self._start_tidelog()
        self._look_by_tidelog(self.second.found, manager, self.first.left)
        for topic, sent in self.written.sent.items():
            _, following, _ = self._continued(sent)
            log = manager.log(topic, 0)
            info = log.append_as_leader(bytearray(following), _epoch(log))
            self.repeated[topic] = info.is_duplicate, info.first_offset
        self._append_by_tidelog(self.second, manager, "second")
        self._look_by_tidelog(self.second.left, manager, self.first.left)
        die(manager)

    def _third_to_fifth(self) -> None:
        this, broker = self.third, self.broker
        shutil.copytree(broker.data, self.before_recovery)
        broker.start()
        if self.release == "3.9.1":  # Older releases build their indexes by other rules.
            self.recovered = {topic: contents(broker.partition_folder(topic)) for topic in self.topics | self.killed_topics}
        asked = {topic: seen.targets for topic, seen in (self.second.left | self.written_by_killed.seen).items()}
        this.found = serve(broker, asked | {KILLED + BUSY: [EARLIEST, LATEST]})
        self.busy_found = this.found.pop(KILLED + BUSY).rows[UNCOMMITTED]
        self._append_by_kafka(this, "third")
        this.left = serve(broker, asked)
        # One request at a time, so that the last batch of a producer is known after its broker was killed.
        settings = {"compression_type": "lz4", "max_in_flight": 1, "message_timeout_ms": 0}
        with Writer(broker, self.live, 0.005, **settings):
            wait_acknowledged(self.live, 1000)
            broker.kill()
            self.live_acknowledged = [topic.acknowledged for topic in self.live]
            self._fourth()
            broker.start()
        self._fifth(asked)

    def _fourth(self) -> None:
        this, manager = self.fourth, self._start_tidelog()
        self._look_by_tidelog(this.found, manager, self.third.left)
        self.live_found = [see(manager.log(topic.name, 0)).rows[UNCOMMITTED] for topic in self.live]
        self._append_by_tidelog(this, manager, "fourth")
        self._look_by_tidelog(this.left, manager, self.third.left)
        assert manager.shutdown()
        self._judge("fourth")

    def _fifth(self, asked: Mapping[str, list[int]]) -> None:
        this, broker = self.fifth, self.broker
        this.found = serve(broker, asked)
        self._append_by_kafka(this, "fifth")
        this.left = serve(broker, asked | {topic.name: [EARLIEST, LATEST] for topic in self.live})
        self._compact_by_kafka()
        self.folders = [path.name for path in broker.data.iterdir()]

    # --- Kafka

    def _is_v2(self, topic: str) -> bool:
        settings = (self.topics | self.killed_topics)[topic].settings
        return settings.get("message.format.version", "2.4") == "2.4"

    def _append_by_kafka(self, this: Round, word: str) -> None:
        """Append with a plain and an idempotent producer, and in transactions of which one is aborted."""
        config = {"bootstrap.servers": self.broker.bootstrap, "batch.num.messages": 5, "linger.ms": 1, "log_level": 0}
        plain = KafkaProducer(config | {"compression.type": "gzip", "max.in.flight": 1})  # keeps the order after a retry
        idempotent = KafkaProducer(config | {"enable.idempotence": True, "compression.type": "none"})
        for kind, producer in (("plain", plain), ("idempotent", idempotent)):
            for topic in this.found:
                if kind == "plain" or self._is_v2(topic):
                    self._produce(this, producer, topic, f"{word} {kind}", 12)
            flush(producer)
        ends = {topic: seen.end + len(this.appended[topic]) for topic, seen in this.found.items()}
        transactional = KafkaProducer(config | {"transactional.id": word})
        transactional.init_transactions(PATIENCE_S)
        for end in (transactional.abort_transaction, transactional.commit_transaction):
            transactional.begin_transaction()
            for topic in this.found:
                if topic.endswith("transactions"):
                    self._produce(this, transactional, topic, f"{word} {end.__name__}", 3)
                    ends[topic] += 4
            flush(transactional)  # An abort drops what is not sent yet.
            end(PATIENCE_S)
        # Markers are written a moment after the coordinator's response.
        latest = {topic: OffsetSpec.latest() for topic in this.found}  # type: ignore[no-untyped-call]
        wanted = {(topic, (end, -1)) for topic, end in ends.items()}
        try:
            wait_until(lambda: list_offsets(self.broker.admin, latest).items() >= wanted, "the log ends", PATIENCE_S)
        except TimeoutError:
            raise TimeoutError(f"log ends: {list_offsets(self.broker.admin, latest).items() ^ wanted}") from None

    def _produce(self, this: Round, producer: KafkaProducer, topic: str, word: str, count: int) -> None:
        now_ms = SystemClock().now_ms()
        values = [f"{topic} {word} {n}".encode() for n in range(count)]
        for n, value in enumerate(values):
            producer.produce(topic, value, b"k%d" % n, 0, timestamp=now_ms + n)
        this.appended.setdefault(topic, []).extend(values)

    def _continued(self, sent: Sent) -> tuple[bytes, bytes, bytes]:
        """Return an idempotent producer's last batch once more, the next one, and one that comes too early."""
        producer = sent.producer._replace(base_sequence=sent.next_sequence)
        record = Record(0, SystemClock().now_ms(), CREATE_TIME, b"k", b"next")
        following = build_batch_v2([record], producer=producer)
        early = build_batch_v2([record], producer=producer._replace(base_sequence=sent.next_sequence + 7))
        return sent.data, bytes(following), bytes(early)

    # --- Tidelog

    def _start_tidelog(self) -> LogManager:
        manager = LogManager(self.broker.data, SystemClock(), properties=DEFAULTS)
        manager.startup()
        assert manager.offline_partitions() == {}
        for (topic, _), log in manager.logs.items():
            # Of most topics it knows no configuration; but only who knows that a topic is of v0 refuses to search it by time.
            if "v0-" in topic and not manager.is_configuration_known(topic) and log.log_end_offset > 0:
                manager.adopt_topic(topic, (self.topics | self.killed_topics)[topic].settings)
        for log in manager.logs.values():
            log.update_high_watermark(log.log_end_offset)  # As a leader without followers does.
        return manager

    def _look_by_tidelog(self, into: dict[str, Seen], manager: LogManager, asked: Mapping[str, Seen]) -> None:
        into.update((topic, see(manager.log(topic, 0), seen.targets)) for topic, seen in asked.items())

    def _append_by_tidelog(self, this: Round, manager: LogManager, word: str) -> None:
        """Append plain batches and those of an idempotent producer; end the transactions that are open; leave one open."""
        ids = ProducerIds(manager.metadata)
        for turn, topic in enumerate(this.found):
            log = manager.log(topic, 0)
            epoch = _epoch(log)
            values = this.appended.setdefault(topic, [])
            self._append(log, epoch, values, f"{topic} {word} plain", codec=LEGACY_CODECS[turn % 4])
            if self._is_v2(topic):
                producer_id = ids.next_id()
                for n in range(2):
                    producer = Producer(producer_id, 0, 10 * n)
                    self._append(log, epoch, values, f"{topic} {word} idempotent {n}", producer=producer)
            if topic.endswith("-transaction"):
                for producer_id in self._open_transactions(log):
                    marker = build_end_txn_marker(0, SystemClock().now_ms(), ControlType.ABORT, Producer(producer_id, 0, -1))
                    log.append_as_leader(marker, epoch, origin=AppendOrigin.COORDINATOR)
                producer = Producer(ids.next_id(), 0, 0)
                self._append(log, epoch, values, f"{topic} {word} open", producer=producer, is_transactional=True)
            log.update_high_watermark(log.log_end_offset)
        manager.tick()

    def _append(self, log: PartitionLog, epoch: int, values: list[bytes], word: str, **settings: object) -> None:
        now_ms = SystemClock().now_ms()
        records = [Record(n, now_ms + n, CREATE_TIME, b"k%d" % n, f"{word} {n}".encode()) for n in range(10)]
        log.append_as_leader(build_batch_v2(records, **settings), epoch)  # type: ignore[arg-type]
        values += [record.value or b"" for record in records]

    def _open_transactions(self, log: PartitionLog) -> list[int]:
        state = log.producer_state
        return [one for one in state.active_producers if state.last_entry(one).current_txn_first_offset is not None]

    # --- compaction

    def _compact_by_kafka(self) -> None:
        """Let Kafka's cleaner continue after the engine's, on topics that the engine has compacted before."""
        topics = [topic for topic in self.fifth.left if topic.endswith("compacted")]
        producer = KafkaProducer({"bootstrap.servers": self.broker.bootstrap, "batch.num.messages": 5, "log_level": 0})
        for topic in topics:
            for n in range(150):  # More than a segment.
                producer.produce(topic, b"%d " % n + b"x" * 80, b"k%d" % (n % 30), 0)
        flush(producer)
        left = serve(self.broker, {topic: [EARLIEST] for topic in topics})
        checkpoint = self.broker.data / names.CLEANER_CHECKPOINT
        before = read_offset_checkpoint(checkpoint)
        for topic in left:
            self.broker.alter_topic(topic, {"min.cleanable.dirty.ratio": "0.01"})
        keys = [TopicPartition(topic, 0) for topic in left]

        def is_compacted() -> bool:
            now = read_offset_checkpoint(checkpoint)
            return all(now.get(key, 0) > before.get(key, 0) for key in keys)

        wait_until(is_compacted, "compaction", PATIENCE_S)
        found = serve(self.broker, {topic: [EARLIEST] for topic in left})
        self.compacted += [(left[topic].rows[COMMITTED], found[topic].rows[COMMITTED]) for topic in left]

    def _compact_by_tidelog(self) -> None:
        manager = self._start_tidelog()
        for name, topic in (self.topics | self.killed_topics).items():
            if name.endswith("compacted"):
                manager.adopt_topic(name, topic.settings)
                manager.log(name, 0).roll()
                before = see(manager.log(name, 0)).rows[COMMITTED]
                assert manager.cleaner is not None
                assert manager.cleaner.clean_filthiest_log()
                self.compacted.append((before, see(manager.log(name, 0)).rows[COMMITTED]))
        assert manager.shutdown()

    # --- the tools' word

    def _judge(self, name: str) -> None:
        folder = self.root / f"judged-{name}"
        shutil.copytree(self.broker.data, folder)
        self.judgements[name] = self._pool.submit(judge, folder)


def put_under(broker: Kafka391 | Kafka241, source: Path, topics: Iterable[str]) -> None:
    """Move the files of these topics, with their checkpoints, to the stopped broker under its topic ids."""
    for topic in topics:
        folder = broker.partition_folder(topic)
        topic_id = read_topic_id(folder / names.PARTITION_METADATA)
        shutil.rmtree(folder)
        shutil.copytree(source / folder.name, folder)
        if topic_id is not None:
            write_topic_id(folder / names.PARTITION_METADATA, topic_id)
    keys = {TopicPartition(topic, 0) for topic in topics}
    for name in CHECKPOINTS:
        kept = {key: offset for key, offset in read_offset_checkpoint(broker.data / name).items() if key not in keys}
        given = {key: offset for key, offset in read_offset_checkpoint(source / name).items() if key in keys}
        write_offset_checkpoint(broker.data / name, kept | given)


def _epoch(log: PartitionLog) -> int:
    latest = log.leader_epochs.latest
    return 0 if latest is None else latest.epoch
