"""KIP-32's migration plan, step by step, with clients that go on: see the table that `Play.rows` becomes.

Three brokers of Kafka 0.9.0.1 become two of 0.10.0.1 (one of them is always the controller) and one of ours, each with the folder
that it has. A rolling bounce restarts them one by one; with `kills` one in each of them is killed in place of being stopped, and
nothing that was acknowledged may be lost by that. Before v2 there are no leader epochs, and replicas that do not know yet what is
committed cut it (KIP-101): each step waits until all replicas are in sync.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.kafka import old_wire
from tests.kafka.java import wait_until
from tests.kafka.java_members import JavaClients
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import ZookeeperCluster
from tests.migration import judge
from tests.migration.clients import Reader, Writer
from tests.migration.java_clients import JavaReader, JavaWriter
from tests.migration.nodes import MODERN, NEW, NEWEST, OLD, TIDELOG, Node
from tests.patience import PATIENCE_S
from tidelog.model import OFFSETS_TOPIC
from tidelog.records.compression import Codec

TOPIC = "orders"
PARTITIONS = 3
BROKERS = (1, 2, 3)
CANARY = 3
"""The broker that becomes ours, and tries the new format first."""

KAFKAS_CANARY = 2

SEGMENT_BYTES = 200_000
"""So that there are closed segments, with indexes at rest."""

COSTS = "costs"
MEASURED = (1, CANARY)
"""Brokers whose down-conversion is measured: each leads a partition of `COSTS`, alone."""

CLIENTS = {0: (OLD,), 1: (NEW, MODERN)}
"""Kafka's own producers and consumers, by the newest message format that brokers know when they come."""

V0, V1, V2 = "0.9.0.1", "0.10.0.1", "2.4"
"""Protocols, and formats of messages, as brokers' properties name them."""


@dataclass
class Step:
    """What was seen at the end of a step."""

    name: str
    brokers: dict[int, str]
    formats: dict[tuple[int, int], list[tuple[int, int]]]
    """By broker and partition: magic and first offset."""
    ends: list[int]
    """By partition: records that consumers have read."""
    costs: dict[tuple[int, int], judge.Cost] = field(default_factory=dict)
    """By broker and version of Fetch."""


class Play:
    """Plays it in a folder. `say` gets lines for people; for `measure_s` the cost of each fetch is measured at each step."""

    def __init__(self, folder: Path, say: Callable[[str], object] = print, *, kills: bool = True, measure_s: float = 0) -> None:
        self.steps: list[Step] = []
        self.wrong: list[str] = []
        self._folder = folder
        self._say = say
        self._kills = kills
        self._measure_s = measure_s
        self._stack = ExitStack()
        self.writers: list[Writer | JavaWriter] = []
        self.readers: list[Reader | JavaReader] = []
        self._magic = 0
        """The newest message format that clients send."""
        self.sent_to_old: dict[str, int] = {}
        """By kind of broker: in which format it sends v1 to a client that knows v0, once its own format is v0 again."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            properties = {
                "replica.high.watermark.checkpoint.interval.ms": "200",
                "replica.lag.time.max.ms": "6000",
                "log.retention.ms": "-1",
                "controlled.shutdown.retry.backoff.ms": "500",
                "min.insync.replicas": "2",
                "unclean.leader.election.enable": "false",
            }
            self.cluster = stack.enter_context(ZookeeperCluster(self._folder, release=OLD, zookeeper=OLD, properties=properties))
            self.nodes = {node_id: Node(self.cluster, node_id) for node_id in BROKERS}
            for node in self.nodes.values():
                stack.callback(node.kill)
            self.admin = ZookeeperAdmin(stack.enter_context(self.cluster.client()))
            self._java = stack.enter_context(JavaClients())
            stack.callback(self._close_clients)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    # --- the plan

    def begin(self) -> None:
        """Three brokers of 0.9.0.1, a producer and a consumer of 0.9.0.1."""
        for node in self.nodes.values():
            node.start(OLD, V0, V0)
        # Consumers of 0.9.0.1 want a coordinator at any time.
        self.admin.create(OFFSETS_TOPIC, [[1, 2, 3], [2, 3, 1]], **{"cleanup.policy": "compact"})
        self.admin.create(TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]], **{"segment.bytes": str(SEGMENT_BYTES)})
        self.wait_in_sync()
        if self._measure_s:
            self.admin.create(COSTS, [[node_id] for node_id in MEASURED], **{"min.insync.replicas": "1"})
        self._join(0)
        self._end_of_step("before: three brokers of 0.9.0.1, old clients")

    def phase_1_code(self) -> None:
        """New code, old protocol, old format: the new code is ours at one broker."""
        self.roll({CANARY: TIDELOG, 2: NEW, 1: NEW}, V0, V0, killed=2)
        self._end_of_step("phase 1: new code, protocol and format 0.9.0")

    def canary_before(self) -> None:
        """One broker writes the new format, while the others fetch with v1; then back, by KIP-32's four steps."""
        self._canary(CANARY, TIDELOG, "canary: one broker writes v1, the others fetch with version 1")

    def kafkas_canary(self) -> None:
        """The same by a broker of Kafka 0.10.0.1, and ours is one of the others."""
        self._canary(KAFKAS_CANARY, NEW, "the canary is Kafka's: ours fetches with version 1")

    def _canary(self, node_id: int, kind: str, name: str) -> None:
        canary = self.nodes[node_id]
        self.roll({node_id: kind}, V1, V1)
        self.lead_by_preferred()
        self._flow()
        self._end_of_step(name)
        self.wait_in_sync()
        canary.stop()
        self.admin.wait_until_missed(node_id, lambda controller: self.nodes[controller].port)
        canary.delete(TOPIC)
        canary.start(kind, V0, V0)
        self.lead_by_preferred()
        self._end_of_step("canary, back: its replicas deleted and fetched again")

    def protocol_raised(self) -> None:
        """Replication by Fetch v2; then clients of 0.10.0.1 come."""
        self.roll({1: NEW, 2: NEW, CANARY: TIDELOG}, V1, V0, killed=CANARY)
        self._join(1, Codec.GZIP)
        self._end_of_step("protocol raised: fetch v2 between brokers; new clients")

    def canary_after(self) -> None:
        """The same canary, now that the others fetch with v2: what it writes is v1 on all of them.

        They send it as it is to consumers of 0.9, as their own format is v0.
        """
        self._old_consumers_go()
        self.roll({CANARY: TIDELOG}, V1, V1)
        self.lead_by_preferred()
        self._flow()
        self._end_of_step("canary after the protocol was raised: v1 spreads to all replicas")
        self.roll({CANARY: TIDELOG}, V1, V0)
        self.lead_by_preferred()
        self._end_of_step("and back: the old format from here on, what is v1 stays")

    def phase_2(self) -> None:
        """The new format on disk."""
        self.roll({1: NEW, 2: NEW, CANARY: TIDELOG}, V1, V1, killed=1)
        if not any(reader.name.endswith(" of 0.9.0.1") for reader in self.readers):
            self._old_consumers_come()
        self._end_of_step("phase 2: message format v1; old consumers are down-converted for")

    def way_back(self) -> None:
        """The old format again, after the new one was written: no consumer of 0.9 may have to read that any more."""
        self._old_consumers_go()
        self.roll({1: NEW, 2: NEW, CANARY: TIDELOG}, V1, V0, killed=CANARY)
        self._end_of_step("the way back: format 0.9.0 again, logs hold both")
        self._sent_to_old()
        self.roll({1: NEW, 2: NEW, CANARY: TIDELOG}, V1, V1)
        self._old_consumers_come()
        self._end_of_step("and forward once more")

    def newest(self) -> None:
        """The next migration, by the same plan: brokers of 2.4.1, then protocol and format v2."""
        self.roll({1: NEWEST, 2: NEWEST}, V1, V1, killed=2)
        self._end_of_step("Kafka 2.4.1, protocol and format 0.10.0")
        self.roll({1: NEWEST, 2: NEWEST, CANARY: TIDELOG}, V2, V1)
        self.roll({1: NEWEST, 2: NEWEST, CANARY: TIDELOG}, V2, V2, killed=CANARY)
        self._end_of_step("protocol and format 2.4: message format v2")
        self.writers.append(JavaWriter(self._java, MODERN, self.bootstrap, TOPIC, PARTITIONS, is_idempotent=True))
        self._flow()
        self.roll({1: NEWEST, CANARY: TIDELOG}, V2, V2, killed=CANARY)
        self._end_of_step("an idempotent producer, and two more restarts")

    def end(self) -> None:
        """Stop clients, and check all that was promised."""
        for writer in self.writers:
            writer.close()
        judge.wait_until_read(self.writers, self.readers, PARTITIONS)
        for reader in self.readers:
            reader.close()
        self.wrong += judge.wrong(self.writers, self.readers)
        self.wait_same()
        self._check_times()
        acknowledged = sum(len(writer.acknowledged) for writer in self.writers)
        self._say(f"== the end: {acknowledged} records acknowledged, {len(self.wrong)} things are wrong")
        for partition in range(PARTITIONS):
            digests = {judge.digest(node, TOPIC, partition)[:16] for node in self.nodes.values()}
            self._say(
                f"   {TOPIC}-{partition}: {self.readers[0].next[partition]} records, sha256 {' '.join(digests)} on all brokers"
            )
        for writer in self.writers:
            said = f"; sent again: {dict(writer.failures)}" if isinstance(writer, JavaWriter) and writer.failures else ""
            self._say(f"   {writer.name}: {len(writer.acknowledged)} acknowledged{said}")
        for reader in self.readers:
            self._say(f"   {reader.name}: has read {len(reader.read)}")

    def _check_times(self) -> None:
        """Each replica answers for times by its own indexes, those of closed segments among them.

        Of ours all indexes are complete. Kafka's 0.10.0.1 writes no time indexes, and 2.4.1 makes empty ones for its segments.
        """
        dated = [reader for reader in self.readers if isinstance(reader, Reader)][-1]
        for partition in range(PARTITIONS):
            self.wrong += judge.wrong_times(self.nodes.values(), dated, partition)
        for node in (one for one in self.nodes.values() if one.kind == TIDELOG):
            done = judge.sound(node, TOPIC)
            if done.returncode:
                self.wrong.append(f"{node}: {done.stdout}{done.stderr}")
        for writer in self.writers:
            if isinstance(writer, JavaWriter) and writer.is_idempotent:
                self.wrong += judge.repeated(writer, dated)

    # --- parts of it

    def roll(self, kinds: dict[int, str], protocol: str, message_format: str, *, killed: int | None = None) -> None:
        """Restart brokers, one after the other; each leads again what it led before the next one goes."""
        for node_id, kind in kinds.items():
            node = self.nodes[node_id]
            self.wait_in_sync()
            if self._kills and node_id == killed:
                node.kill()
                wait_until(lambda node_id=node_id: not self.admin.is_registered(node_id), "the session's end", PATIENCE_S)  # type: ignore[misc]
            else:
                node.stop()
                self.admin.wait_until_missed(node_id, lambda controller: self.nodes[controller].port)
            self._flow(without=node_id)
            node.start(kind, protocol, message_format)
            self._say(f"  {node}, protocol {protocol}, format {message_format}{', was killed' if node_id == killed else ''}")
        self.lead_by_preferred()

    def wait_in_sync(self) -> None:
        for partition in range(PARTITIONS):
            self.admin.wait_for(TOPIC, BROKERS, partition=partition)

    def lead_by_preferred(self) -> None:
        """Have each broker lead a partition."""
        self.wait_in_sync()
        for partition in range(PARTITIONS):
            state, first = self.admin.state(TOPIC, partition), BROKERS[partition]
            if state is not None and state.leader != first:
                self.admin.elect(TOPIC, partition)
                self.admin.wait_for(TOPIC, BROKERS, first, partition)

    def _join(self, magic: int, codec: Codec = Codec.NONE) -> None:
        self.writers.append(Writer(magic, TOPIC, PARTITIONS, self._leader_port, codec=codec))
        self.readers.append(Reader(magic, TOPIC, PARTITIONS, self._leader_port))
        for release in CLIENTS[magic]:
            self.writers.append(JavaWriter(self._java, release, self.bootstrap, TOPIC, PARTITIONS))
            if release != OLD:
                self.readers.append(JavaReader(self._java, release, self.bootstrap, TOPIC, PARTITIONS))
        if magic == 0:
            self._old_consumers_come()
        self._magic = magic

    def _old_consumers_come(self) -> None:
        """Kafka's own of 0.9.0.1, from the beginning on."""
        zookeeper = self.cluster.common["zookeeper.connect"]
        for through in (None, zookeeper):
            self.readers.append(JavaReader(self._java, OLD, self.bootstrap, TOPIC, PARTITIONS, through=through))

    def _old_consumers_go(self) -> None:
        """They have read all so far, and cannot read what Kafka's brokers are about to send them: see `_sent_to_old`."""
        self._flow()
        for reader in [one for one in self.readers if isinstance(one, JavaReader) and one.release == OLD]:
            reader.close()
            self.readers.remove(reader)
            judge.wait_for_places(self.readers[0], reader.next)
            self.wrong += judge.differences(reader, self.readers[0])
            self._say(f"   {reader.name} has read {len(reader.read)}, and leaves")

    def _sent_to_old(self) -> None:
        """What leaders whose format is lowered send to Fetch 1 of what they have in v1: Kafka's send v1."""
        for partition, node_id in enumerate(BROKERS):
            node = self.nodes[node_id]
            (first, *_) = [offset for magic, offset in judge.formats(node, TOPIC, partition) if magic == 1]
            got = old_wire.fetch(lambda node=node: node.port, TOPIC, first, version=1, partition=partition)  # type: ignore[misc]
            self.sent_to_old[node.kind] = old_wire.magics(bytes(got.records or b""))[0]
            self._say(f"   {node} answers Fetch 1 of what is v1 with v{self.sent_to_old[node.kind]}")

    def _leader_port(self, partition: int) -> int:
        state = self.admin.state(TOPIC, partition)
        return self.nodes[state.leader if state is not None and state.leader in self.nodes else CANARY].port

    def _close_clients(self) -> None:
        for client in (*self.writers, *self.readers):
            with suppress(Exception):
                client.close()

    def _flow(self, without: int | None = None) -> None:
        """Wait until every producer has written to every partition once more, and every consumer has read that."""
        for writer in self.writers:
            counts = writer.counts()
            wait_until(
                lambda writer=writer, counts=counts: all(  # type: ignore[misc]
                    now > before + 5 for now, before in zip(writer.counts(), counts, strict=True)
                ),
                f"{writer.name} to be acknowledged{'' if without is None else f' without broker {without}'}",
                PATIENCE_S,
            )
        judge.wait_until_read(self.writers, self.readers, PARTITIONS)

    def wait_same(self) -> None:
        """Wait until all replicas of a partition are the same, byte for byte: nobody writes."""
        for partition in range(PARTITIONS):
            wait_until(
                lambda partition=partition: len({judge.digest(node, TOPIC, partition) for node in self.nodes.values()}) == 1,  # type: ignore[misc]
                f"equal replicas of {TOPIC}-{partition}",
                PATIENCE_S,
            )

    def _end_of_step(self, name: str) -> None:
        self._flow()
        self.wait_in_sync()
        step = Step(
            name,
            {node.node_id: f"{node}, {node.protocol}/{node.format}" for node in self.nodes.values()},
            {
                (node.node_id, partition): judge.formats(node, TOPIC, partition)
                for node in self.nodes.values()
                for partition in range(PARTITIONS)
            },
            list(self.readers[0].next),
        )
        if self._measure_s and any(node.kind == TIDELOG for node in self.nodes.values()):
            step.costs = {
                (node_id, version): judged
                for number, node_id in enumerate(MEASURED)
                for version, judged in self._costs(number, self.nodes[node_id], magic=self._magic)
            }
        self.steps.append(step)
        self._say(f"== {name}")
        for node in self.nodes.values():
            shown = [judge.text_of(step.formats[node.node_id, partition]) for partition in range(PARTITIONS)]
            self._say(f"   {step.brokers[node.node_id]:<40} {' | '.join(shown)}")
        for (node_id, version), one in step.costs.items():
            how = "as it is stored" if one.is_as_stored else f"converted to v{one.magics[-1]}"
            self._say(f"   {self.nodes[node_id]} answers Fetch {version} {how}: {one.cpu_ms_per_mb:.1f} ms of processor a MB")

    def _costs(self, partition: int, node: Node, magic: int) -> Iterator[tuple[int, judge.Cost]]:
        """Yield what a fetch of each version costs a leader, of records that the newest clients have just written."""
        self.admin.wait_for(COSTS, [node.node_id], node.node_id, partition)
        values = [bytes([65 + i % 26]) * 1000 for i in range(900)]
        first = old_wire.produce(lambda: node.port, COSTS, values, magic=magic, partition=partition)
        for version in (1, 2):
            yield version, judge.cost(node, COSTS, partition, first, version, self._measure_s)


@contextmanager
def playing(folder: Path, say: Callable[[str], object] = print, *, kills: bool = True, measure_s: float = 0) -> Iterator[Play]:
    """Play in a folder that is made for it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Play(folder, say, kills=kills, measure_s=measure_s) as play:
        yield play
