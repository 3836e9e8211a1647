"""A data folder that lacks something in each of four ways, and every command there is: those that read a folder have to say so.

| topic | lacks |
|---|---|
| middle | a segment in its middle, with its indexes |
| end | its last segment, with its indexes |
| only-log | the ``.log`` of a segment in its middle |
| part | partition 1 |
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
from confluent_kafka import Consumer, TopicPartition

import tidelog
from tidelog.cli.app import cli

FIRST_MS = 1_700_000_000_000
COUNT = 60
GROUP = "readers"
TOPICS = ("middle", "end", "only-log", "part")
LOST = ("middle-0: offsets [", "end-0: offsets [", "only-log-0: offsets [", "part-1: offsets [")
"""How each thing that is missing is named."""

SILENT = {
    **{f"backup {name}": "is about a backup, and reads no folder" for name in ("list", "show", "verify", "expire", "diff")},
    "backup check-report": "reads a report",
    "restore": "says what the point of a backup lacks (tests/restore/test_hazards.py)",
    "backup take": "says it, and in the point, too (tests/backup/test_brokers.py)",
    "completion": "prints a script",
    "format": "writes what a broker of a cluster begins with, and reads no log",
    "serve": "shows consumers what Kafka would, and logs holes in logs and ends that are cut off",
    "dump": "shows one file",
    "groups list": "says what is missing of its own topic (test_missing_groups.py), and nothing of others",
    "groups reset": "asks brokers",
    "import": "writes a new topic",
    "job backup": "says it as `backup take` does",
    "job restore": "restores a backup, as `restore` does",
    "job verify-backup": "is about a backup",
    "job failover": "asks brokers; what is missing of the commits in a source folder it says as `mirror` does",
}
"""Commands that need not say what a folder lacks, and why."""


def whole_folder(folder: Path) -> Path:
    """Write the topics, each of two partitions and six segments, and a group that has read a part of them."""
    properties = {"log.segment.bytes": 1500, "offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    with tidelog.Broker(folder, **properties) as broker:
        for topic in TOPICS:
            broker.create_topic(topic, 2)
            for partition in range(2):
                for number in range(0, COUNT, 10):
                    broker.produce(topic, [b"v" * 100] * 10, partition=partition, timestamp_ms=FIRST_MS + number * 1000)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP})
        consumer.commit(
            offsets=[TopicPartition(topic, partition, 3) for topic in TOPICS for partition in range(2)], asynchronous=False
        )
        consumer.close()
    return folder


def take_away(folder: Path) -> None:
    """Remove from each topic what the module's table says."""
    middle, last = (sorted((folder / "middle-0").glob("*.log"))[at].stem for at in (2, -1))
    for topic, stem in (("middle", middle), ("end", last)):
        for path in (folder / f"{topic}-0").glob(f"{stem}.*"):
            path.unlink()
    (folder / "only-log-0" / f"{middle}.log").unlink()
    shutil.rmtree(folder / "part-1")


def commands(group: click.Group = cli, prefix: str = "") -> Iterator[str]:
    """Yield every command by its full name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        if isinstance(one, click.Group):
            yield from commands(one, f"{prefix}{name} ")
        else:
            yield prefix + name
