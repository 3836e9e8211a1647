"""The folder of a member of a cluster, and the metadata of that cluster, as tests want them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

from tests.storage.managers import dotted
from tests.storage.partition_logs import NOW_MS
from tidelog.clock import ManualClock
from tidelog.config import PropertyValue
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidelog.model import TopicPartition
from tidelog.storage.folder.meta_properties import MetaProperties, write_meta_properties
from tidelog.storage.member_log_manager import MemberLogManager
from tidelog.storage.steps import run_steps

NODE = 4
OTHERS = [5, 6]
CLUSTER_ID = "cluster-of-the-tests--"


def formatted(directory: Path, directory_id: str | None = "hHa37Y8VmWSBv1MUzYPlVw") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    write_meta_properties(directory, MetaProperties(NODE, CLUSTER_ID, directory_id))
    return directory


class Cluster:
    """What the controllers say; `image` is as a member has read it."""

    def __init__(self) -> None:
        self.image = MetadataImage()

    def create(self, name: str, partitions: int = 1, replicas: Iterable[int] = (NODE, *OTHERS), **settings: str) -> uuid.UUID:
        topic_id = uuid.uuid4()
        self.image.replay(TopicRecord(name, topic_id))
        for number in range(partitions):
            self.assign(name, number, replicas)
        for setting, value in settings.items():
            self.set(TOPIC_RESOURCE, name, setting.replace("_", "."), value)
        return topic_id

    def assign(self, name: str, number: int, replicas: Iterable[int]) -> None:
        there = list(replicas)
        topic_id = self.image.topics[name].topic_id
        self.image.replay(PartitionRecord(number, topic_id, there, there, leader=there[0], leader_epoch=0, partition_epoch=0))

    def delete(self, name: str) -> None:
        self.image.replay(RemoveTopicRecord(self.image.topics[name].topic_id))

    def set(self, kind: int, name: str, setting: str, value: str | None) -> None:
        self.image.replay(ConfigRecord(kind, name, setting, value))

    def set_broker(self, name: str, setting: str, value: str | None) -> None:
        self.set(BROKER_RESOURCE, name, setting, value)

    def assigned(self) -> dict[TopicPartition, uuid.UUID]:
        """The replicas of `NODE`."""
        return {
            TopicPartition(topic.name, number): topic.topic_id
            for topic in self.image.topics.values()
            for number in self.image.partitions_on(topic, NODE)
        }


def member(directory: Path, cluster: Cluster, clock: ManualClock | None = None, **properties: PropertyValue) -> MemberLogManager:
    """A manager that has started, with every replica that it is to have."""
    manager = MemberLogManager(directory, clock or ManualClock(NOW_MS), properties={"node.id": NODE, **dotted(properties)})
    manager.startup(cluster)
    follow(manager, cluster)
    return manager


def follow(manager: MemberLogManager, cluster: Cluster) -> None:
    """Do what a broker does when its metadata has changed."""
    wanted = cluster.assigned()
    there = {key: log.topic_id for key, log in manager.logs.items()}
    run_steps(manager.replicas.deletion([key for key in manager.partitions() if key not in wanted]))
    run_steps(manager.replicas.creations({key: topic_id for key, topic_id in wanted.items() if there.get(key) != topic_id}))
