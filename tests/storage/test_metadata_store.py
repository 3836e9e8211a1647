"""The folder's own metadata log: flushed in groups, cut back where a disk refuses, kept short, taken over from 0.1."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reader.golden import GOLDEN
from tests.storage.crash_states import CrashStates
from tests.storage.known_topics import write_old_file
from tests.storage.managers import files, fill, managed, started
from tests.storage.partition_logs import NOW_MS
from tidelog.clock import ManualClock
from tidelog.errors import CorruptDataError, InvalidArgumentError, InvalidRecordError, StorageError
from tidelog.metadata.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from tidelog.reader.metadata_log import METADATA_DIR, MetadataLog, list_segments, list_snapshots, metadata_dir, read_metadata_log
from tidelog.storage.metadata import metadata_store
from tidelog.storage.metadata.leading import leading_records
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.topics.topic import Topic

DIRECTORY_ID = uuid.UUID(int=77)


def opened(directory: Path) -> MetadataStore:
    directory.mkdir(exist_ok=True)
    return MetadataStore.open(directory, 1, DIRECTORY_ID, ManualClock(NOW_MS))


def setting(value: object, name: str = "x") -> ConfigRecord:
    return ConfigRecord(TOPIC_RESOURCE, "t", name, str(value))


def on_disk(directory: Path) -> MetadataLog:
    log = read_metadata_log(directory)
    assert log is not None
    return log


def config(directory: Path) -> dict[str, str]:
    return on_disk(directory).image.topic_config("t")


class TestWriting:
    def test_changes_of_one_turn_share_a_flush(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = opened(tmp_path)
        store.commit([setting(0)])
        syncs: list[int] = []
        real = os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: (syncs.append(fd), real(fd)))
        changes = [store.append([setting(i, f"x{i}")]) for i in range(50)]
        assert not any(change.is_settled for change in changes)
        store.flush()
        assert all(change.is_durable for change in changes)
        assert len(syncs) == 1
        assert len(config(tmp_path)) == 51

    def test_an_epoch_begins_with_the_first_change(self, tmp_path: Path) -> None:
        for epoch in (1, 2, 3):
            before = files(tmp_path)
            store = opened(tmp_path)
            assert files(tmp_path) == before
            store.commit([setting(epoch)])
            log = on_disk(tmp_path)
            assert (log.epoch, log.leader_id, log.voters) == (epoch, 1, (1,))
            assert json.loads((metadata_dir(tmp_path) / "quorum-state").read_text())["leaderEpoch"] == epoch
            assert log.image.metadata_version == 21

    def test_a_large_change_is_a_transaction(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata_store, "MAX_BATCH_RECORDS", 10)
        store = opened(tmp_path)
        store.commit([setting(0)])
        path = list_segments(metadata_dir(tmp_path))[0]
        size = path.stat().st_size
        store.commit([setting(i, f"x{i}") for i in range(25)])
        assert len(config(tmp_path)) == 26
        whole = path.read_bytes()
        for cut in range(size, len(whole), 40):
            path.write_bytes(whole[:cut])
            assert config(tmp_path) == {"x": "0"}
        # The next leader aborts what is left of it.
        opened(tmp_path).commit([setting("next")])
        assert config(tmp_path) == {"x": "next"}
        assert not on_disk(tmp_path).is_in_transaction

    @given(st.lists(st.integers(0, 40), min_size=1, max_size=8))
    @settings(max_examples=25, deadline=None)
    def test_what_is_flushed_is_what_the_image_has(self, tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
        folder = tmp_path_factory.mktemp("any")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_store, "MAX_BATCH_RECORDS", 16)
            store = opened(folder)
            for number, size in enumerate(sizes):
                store.append([setting(number, f"x{i}") for i in range(size)])
                if number % 3 == 2:
                    store.flush()
            store.flush()
            if any(sizes):
                assert config(folder) == store.image.topic_config("t")
                store.take_snapshot()
                store.commit([setting("after")])
                assert sorted(on_disk(folder).image.to_values()) == sorted(store.image.to_values())


class TestRefusals:
    @pytest.mark.parametrize("call", ["pwrite", "fsync"])
    def test_what_is_refused_does_not_count(self, tmp_path: Path, call: str) -> None:
        store = opened(tmp_path)
        store.commit([setting(0)])
        restored: list[int] = []
        store.on_restore = lambda: restored.append(1)
        before = list_segments(metadata_dir(tmp_path))[0].read_bytes()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, call, refuse)
            first, second = store.append([setting(1)]), store.append([setting(2)])
            for change in (first, second):
                with pytest.raises(StorageError, match="cannot write the metadata log: No space left"):
                    store.settle(change)
        assert store.image.topic_config("t") == config(tmp_path) == {"x": "0"}
        assert list_segments(metadata_dir(tmp_path))[0].read_bytes() == before
        assert restored == [1]
        store.commit([setting(3)])
        assert config(tmp_path) == {"x": "3"}

    def test_a_record_that_cannot_be_written_changes_nothing(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        store.commit([setting(0)])
        store.append([setting(1, "y")])
        for value in ("x" * 32_768, "\u00e9" * 16_384, "\ud800"):
            with pytest.raises(InvalidArgumentError, match="ConfigRecord v0 cannot be written"):
                store.append([setting(2), setting(value)])
        user = EntityData("user", "u" * 32_768)
        with pytest.raises(InvalidArgumentError, match="ClientQuotaRecord v0 cannot be written"):
            store.append([ClientQuotaRecord([user], "producer_byte_rate", 1.0, remove=False)])
        store.commit([setting("\u00e9" * 16_383, "z")])
        assert store.image.topic_config("t") == config(tmp_path) == {"x": "0", "y": "1", "z": "\u00e9" * 16_383}
        assert not store.image.quotas

    def test_a_change_that_does_not_fit_changes_nothing(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        store.commit([setting(0)])
        waiting = store.append([setting(1)])
        with pytest.raises(InvalidRecordError, match="an unknown topic"):
            store.append([setting(2), RemoveTopicRecord(uuid.uuid4())])
        # What the image no longer has must not be written either.
        with pytest.raises(StorageError, match="cannot write the metadata log: RemoveTopicRecord is for an unknown topic"):
            store.settle(waiting)
        assert store.image.topic_config("t") == config(tmp_path) == {"x": "0"}
        store.commit([setting(3)])
        assert store.image.topic_config("t") == config(tmp_path) == {"x": "3"}

    @pytest.mark.parametrize("error", [RuntimeError("unforeseen"), MemoryError(), KeyboardInterrupt()])
    def test_whatever_fails_each_change_has_its_error(self, tmp_path: Path, error: BaseException) -> None:
        store = opened(tmp_path)
        store.commit([setting(0)])
        first, second = store.append([setting(1)]), store.append([setting(2, "y")])

        def fail(*_: object) -> bytes:
            raise error

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_store, "build_batch", fail)
            with pytest.raises(StorageError if isinstance(error, Exception) else KeyboardInterrupt):
                store.flush()
        for change in (first, second):
            with pytest.raises(StorageError, match=f"cannot write the metadata log: {str(error) or type(error).__name__}"):
                store.settle(change)
        assert store.image.topic_config("t") == config(tmp_path) == {"x": "0"}
        store.commit([setting(3)])
        assert config(tmp_path) == {"x": "3"}

    def test_at_the_first_change(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        for call in ("mkdir", "fsync", "replace"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, call, refuse)
                with pytest.raises(StorageError):
                    store.commit([setting(1)])
            shutil.rmtree(metadata_dir(tmp_path), ignore_errors=True)
        store.commit([setting(2)])
        assert config(tmp_path) == {"x": "2"}

    def test_damage_in_the_middle(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        for i in range(5):
            store.commit([setting(i)])
        path = list_segments(metadata_dir(tmp_path))[0]
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptDataError, match=r"the metadata log is damaged at offset \d.*\.log at byte"):
            started(tmp_path)
        assert path.read_bytes() == data

    def test_a_torn_tail_is_cut(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        store.commit([setting(1)])
        store.commit([setting(2)])
        path = list_segments(metadata_dir(tmp_path))[0]
        path.write_bytes(path.read_bytes()[:-5])
        opened(tmp_path).commit([setting(3, "y")])
        assert config(tmp_path) == {"x": "1", "y": "3"}

    def test_a_quorums_log_is_not_ours(self, tmp_path: Path) -> None:
        opened(tmp_path).commit([setting(1)])
        state = metadata_dir(tmp_path) / "quorum-state"
        content = json.loads(state.read_text())
        content["currentVoters"] = [{"voterId": 1}, {"voterId": 2}, {"voterId": 3}]
        state.write_text(json.dumps(content))
        with pytest.raises(InvalidArgumentError, match="voters 1, 2, 3, expected 1 alone"):
            opened(tmp_path)

    def test_killed_at_any_moment(self, tmp_path: Path) -> None:
        store = opened(tmp_path / "data")
        store.commit([setting(0)])
        with CrashStates(tmp_path / "data", tmp_path / "states") as states:
            again = opened(tmp_path / "data")
            again.commit([setting(1)])
            again.take_snapshot()
            again.commit([setting(2)])
        values = [int(config(folder)["x"]) for folder in states.folders]
        assert values == sorted(values)
        assert set(values) == {0, 1, 2}
        for folder in states.folders:
            opened(folder).commit([setting("end")])
            assert config(folder) == {"x": "end"}


class TestSnapshots:
    def test_a_snapshot_stands_for_the_log(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        for i in range(20):
            store.commit([setting(i, f"x{i}")])
        before = sorted(store.image.to_values())
        store.take_snapshot()
        folder = metadata_dir(tmp_path)
        (snapshot,) = list_snapshots(folder)
        (segment,) = list_segments(folder)
        assert (int(segment.stem), segment.stat().st_size) == (snapshot.end_offset, 0)
        assert sorted(on_disk(tmp_path).image.to_values()) == before
        store.take_snapshot()
        assert list_snapshots(folder) == [snapshot]
        store.commit([setting("more")])
        again = opened(tmp_path)
        again.commit([setting("again")])
        assert config(tmp_path)["x"] == "again"
        again.take_snapshot()
        assert len(list_snapshots(folder)) == 1

    def test_one_is_due_when_the_log_has_grown(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata_store, "SNAPSHOT_BYTES", 10_000)
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            for i in range(80):
                manager.create_topic(f"topic-{i}", 1)
            assert list_snapshots(metadata_dir(tmp_path)) == []
            clock.advance(61_000)
            manager.tick()
            assert len(list_snapshots(metadata_dir(tmp_path))) == 1
            manager.create_topic("last", 1)
        with managed(tmp_path) as manager:
            assert len(manager.topics()) == 81

    def test_an_end_takes_one_that_is_due(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Brokers that live for moments, one after the other, keep the log bounded as well."""
        monkeypatch.setattr(metadata_store, "SNAPSHOT_BYTES", 2_000)
        for number in range(20):
            with managed(tmp_path) as manager:
                if not number:
                    manager.create_topic("a", 1)
                for value in range(5):
                    manager.alter_config("a", {"retention.ms": str(10**6 * number + value)})
            assert sum(path.stat().st_size for path in metadata_dir(tmp_path).iterdir()) < 8_000
        with managed(tmp_path) as manager:
            assert manager.topics()["a"].properties == {"retention.ms": "19000004"}

    @pytest.mark.parametrize("release", ["kafka-3.9.1", "kafka-4.2.0"])
    def test_of_kafkas_log(self, tmp_path: Path, release: str) -> None:
        folder = tmp_path / "data"
        shutil.copytree(GOLDEN / "metadata" / release / "stopped", folder)
        store = opened(folder)
        before = sorted(store.image.to_values())
        store.take_snapshot()
        assert sorted(on_disk(folder).image.to_values()) == before
        assert len(list_segments(folder / METADATA_DIR)) == 1


class TestLeading:
    @pytest.mark.parametrize("release", ["kafka-3.9.1", "kafka-4.2.0"])
    def test_what_a_stopped_kafka_left(self, tmp_path: Path, release: str) -> None:
        folder = tmp_path / "data"
        shutil.copytree(GOLDEN / "metadata" / release / "stopped", folder)
        store = opened(folder)
        before = {
            (name, number): partition.leader_epoch
            for name, topic in store.image.topics.items()
            for number, partition in topic.partitions.items()
        }
        store.commit(leading_records(store, {}, may_have_lost=False))
        for name, topic in on_disk(folder).image.topics.items():
            for number, partition in topic.partitions.items():
                assert (partition.leader, partition.isr, partition.directories) == (1, [1], [DIRECTORY_ID])
                assert partition.leader_epoch == before[name, number] + 1
        assert leading_records(store, {}, may_have_lost=False) == []

    def test_a_registration_that_was_left_is_fenced(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        store.commit([RegisterBrokerRecord(1, incarnation_id=DIRECTORY_ID, broker_epoch=9, rack=None, fenced=False)])
        store.commit(leading_records(store, {}, may_have_lost=False))
        assert on_disk(tmp_path).image.brokers[1].fenced

    def test_an_epoch_that_only_the_log_knows(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            topic = manager.create_topic("t", 1)
            fill(manager.log("t", 0), 1)
            manager.log("t", 0).maybe_assign_epoch_start_offset(7, 1)
            store = manager.metadata
            store.commit(leading_records(store, manager.logs, may_have_lost=False))
            assert store.image.topics_by_id[topic.topic_id].partitions[0].leader_epoch == 7
            store.commit(leading_records(store, manager.logs, may_have_lost=True))
        partition = on_disk(tmp_path).image.topics["t"].partitions[0]
        assert (partition.leader_epoch, partition.leader, partition.isr) == (8, 1, [1])


class TestTakeover:
    def old_folder(self, folder: Path) -> dict[str, Topic]:
        """A folder as 0.1 left it."""
        with managed(folder) as manager:
            topics = {"a": manager.create_topic("a", 2, {"retention.ms": 5}), "b": manager.create_topic("b", 1)}
            fill(manager.log("a", 1), 3)
            manager.create_topic("gone", 1)
        shutil.rmtree(metadata_dir(folder))
        write_old_file(folder, topics | {"gone": Topic("gone", uuid.UUID(int=9), 1)}, deleting="gone")
        (folder / "tidelog-producer-ids.json").write_text('{"version": 1, "next": 2305843009213694000}')
        (folder / "tidelog-leader-epoch.json").write_text('{"version": 1, "leader_epoch": 3}')
        return topics

    def test_once(self, tmp_path: Path) -> None:
        topics = self.old_folder(tmp_path)
        for _ in range(2):
            with managed(tmp_path) as manager:
                assert manager.topics() == topics
                assert manager.partitions() == [("a", 0), ("a", 1), ("b", 0)]
                assert manager.log("a", 1).log_end_offset == 3
            assert {name for name in files(tmp_path) if name.startswith("tidelog-")} == {
                "tidelog-leader-epoch.json.taken-over",
                "tidelog-producer-ids.json.taken-over",
                "tidelog-topics.json.taken-over",
            }
        image = on_disk(tmp_path).image
        assert image.topics["a"].partitions[1].leader_epoch == 3
        assert image.next_producer_id == 2305843009213694000

    def test_killed_at_any_moment(self, tmp_path: Path) -> None:
        topics = self.old_folder(tmp_path / "data")
        with CrashStates(tmp_path / "data", tmp_path / "states") as states, managed(tmp_path / "data"):
            pass
        for folder in states.folders:
            with managed(folder) as manager:
                assert manager.topics() == topics
                assert manager.log("a", 1).log_end_offset == 3
            assert "tidelog-topics.json" not in files(folder)

    @pytest.mark.parametrize("content", [b"", b"{", b'{"version": 2}', b'{"version": 1, "topics": {"t": {}}}', b"\xff"])
    def test_a_damaged_topics_file_stops_the_start(self, tmp_path: Path, content: bytes) -> None:
        self.old_folder(tmp_path)
        (tmp_path / "tidelog-topics.json").write_bytes(content)
        with pytest.raises(CorruptDataError, match=r"tidelog-topics\.json"):
            started(tmp_path)
        assert (tmp_path / "tidelog-topics.json").read_bytes() == content

    def test_damaged_numbers_are_told(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.old_folder(tmp_path)
        (tmp_path / "tidelog-producer-ids.json").write_text("{")
        (tmp_path / "tidelog-leader-epoch.json").write_text('{"version": 1, "leader_epoch": -1}')
        with caplog.at_level(logging.WARNING), managed(tmp_path) as manager:
            assert len(manager.topics()) == 2
        assert sum("because it cannot be read" in text for text in caplog.messages) == 2


def test_a_brokers_dynamic_settings_are_defaults(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.commit(
        [
            ConfigRecord(BROKER_RESOURCE, "", "log.retention.ms", "1000"),
            ConfigRecord(BROKER_RESOURCE, "1", "log.segment.bytes", "2000"),
            ConfigRecord(BROKER_RESOURCE, "", "log.cleaner.threads", "2"),
            ConfigRecord(BROKER_RESOURCE, "2", "log.segment.bytes", "5000"),
        ]
    )
    with managed(tmp_path, log_retention_ms=7) as manager:
        manager.create_topic("t", 1)
        config = manager.log("t", 0).config
        assert (config.retention_ms, config.segment_bytes) == (1000, 2000)


def test_a_folder_without_an_owner_becomes_its_first_brokers(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path, 1, None, ManualClock(NOW_MS))
    from tidelog.storage.metadata.topic_records import topic_records

    store.commit(topic_records(Topic("t", uuid.UUID(int=5), 2), 1, store.directory_id))
    with managed(tmp_path, node_id=5) as manager:
        assert manager.partitions() == [("t", 0), ("t", 1)]
        partition = manager.metadata.image.topics["t"].partitions[0]
        assert (partition.replicas, partition.leader, partition.directories) == ([5], 5, [manager.owner.directory_uuid])


def refuse(*arguments: object, **_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
