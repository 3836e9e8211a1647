"""Apache Kafka 3.9.1 with tiered storage (KIP-405): LocalTieredStorage, or Aiven's plugin.

    folder/remote      what was copied to remote storage

Aiven's plugin is in no registry: its jars are built from its source, and given as a folder. Everything that must wait (copies,
deletions, retention) is done twice a second.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.kafka.brokers import Kafka391
from tests.kafka.jars import classpath
from tests.kafka.java import wait_until
from tests.kafka.tiered_key import private_pem, public_pem
from tests.patience import PATIENCE_S
from tidelog.formats import names
from tidelog.model import TopicPartition
from tidelog.objects.tier import Tier
from tidelog.reader.log_dir import LogDir
from tidelog.reader.tiered.tiered_log_dir import TieredLogDir

SYSTEM = {
    "remote.log.storage.system.enable": "true",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "500",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "300",
}
TOPIC = {
    "remote.storage.enable": "true",
    "segment.bytes": "4096",
    "index.interval.bytes": "512",
    "segment.index.bytes": "1200",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "message.timestamp.before.max.ms": str(2**62),
}
"""A topic of which little stays local."""


JARS = "kafka-tiered-3.9.1"


def local_tiered_storage(remote: Path) -> dict[str, str]:
    """Return the properties of brokers that share the remote storage in a folder."""
    return {
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "rsm.config.dir": str(remote),
        "rsm.config.delete.on.close": "false",
    }


class TieredKafka(Kafka391):
    """A broker whose topics may be tiered. With `aiven_jars`, the folder of the plugin's jars, Aiven's plugin encrypts,
    compresses and cuts segments into chunks of 1 KiB.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None, *, aiven_jars: Path | None = None) -> None:
        self.remote = folder / "remote"
        self.key_files: tuple[str, ...] = ()
        if aiven_jars is None:
            plugin = local_tiered_storage(self.remote)
        else:
            self.remote.mkdir(parents=True)
            keys = {"public": folder / "public.pem", "private": folder / "private.pem"}
            keys["public"].write_bytes(public_pem())
            keys["private"].write_bytes(private_pem())
            self.key_files = (f"golden={keys['private']}",)
            plugin = {
                "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
                "remote.log.storage.manager.class.path": f"{aiven_jars}/*",
                "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
                "rsm.config.storage.root": str(self.remote),
                "rsm.config.key.prefix": "backup/",
                "rsm.config.chunk.size": "1024",
                "rsm.config.custom.metadata.fields.include": "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY",
                "rsm.config.compression.enabled": "true",
                "rsm.config.encryption.enabled": "true",
                "rsm.config.encryption.key.pair.id": "golden",
                "rsm.config.encryption.key.pairs": "golden",
                **{f"rsm.config.encryption.key.pairs.golden.{kind}.key.file": str(path) for kind, path in keys.items()},
            }
        super().__init__(folder, {**SYSTEM, **plugin, **(properties or {})})

    def classpath(self) -> str:
        return os.pathsep.join((super().classpath(), classpath(JARS)))

    def _share_classes(self) -> None:
        with tempfile.TemporaryDirectory(prefix="plain-") as folder:
            Kafka391(Path(folder))._share_classes()  # An archive made with further jars is of no use to other brokers.

    def opened(self) -> TieredLogDir:
        """Open the broker's folder with its remote storage."""
        return TieredLogDir(LogDir(self.data), Tier(str(self.remote), self.key_files))

    def wait_until_tiered(self, topic: str, partition: int = 0, *, local: int = 2) -> None:
        """Wait until all closed segments are copied, and at most `local` are left in the broker's folder."""
        wait_until(lambda: self._is_tiered(TopicPartition(topic, partition), local), f"{topic} to be tiered", PATIENCE_S)

    def _is_tiered(self, key: TopicPartition, local: int) -> bool:
        bases = sorted(names.offset_from_file_name(path.name) for path in self.partition_folder(*key).glob("*.log"))
        if not self.remote.exists() or not bases or len(bases) > local:
            return False
        folder = self.opened()
        partition = folder.partition_id(key)
        ends = [] if partition is None else [one.end_offset for one in folder.remote.readable(partition)]
        return max(ends, default=-1) == bases[-1] - 1
