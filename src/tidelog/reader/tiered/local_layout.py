"""The layout of LocalTieredStorage (org.apache.kafka:kafka-storage), which stores segments in a folder. Kafka's own tests use it.

::

    kafka-tiered-storage/<topic>-<partition>-<topic id>/<base offset>-<segment id>.log
                                                                                  .index  .timeindex  .txnindex  .snapshot
                                                                                  .leader_epoch_checkpoint

The root may be the folder ``kafka-tiered-storage`` or the one above it (``dir`` in its configuration).
"""

from __future__ import annotations

from tidelog.errors import InvalidArgumentError
from tidelog.formats import names
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.formats.paths.file_path import FilePath, Handle
from tidelog.formats.paths.local_handle import open_handle
from tidelog.reader.tiered.remote_segments import RemoteSegment

ROOT = "kafka-tiered-storage"
_ENDINGS = {names.LEADER_EPOCH_CHECKPOINT: ".leader_epoch_checkpoint"}


class LocalLayout:
    """Reads files with the same content as in Kafka's local log, but with the segment id in their names."""

    name = "LocalTieredStorage"

    def __init__(self, root: FilePath, key_files: tuple[str, ...]) -> None:
        self._root = root if root.name == ROOT else root / ROOT
        self._key_files = key_files

    def holds(self, segment: RemoteSegment) -> bool:
        return self.path(segment).exists()

    def check_keys(self) -> None:
        what = f"a tier's key is given, but {self.name} does not encrypt"
        raise InvalidArgumentError(what, path=self._root, found=", ".join(self._key_files), expected="no tier keys")

    def open(self, segment: RemoteSegment, suffix: str) -> Handle:
        return open_handle(self._path(segment, _ENDINGS.get(suffix, suffix)))

    def path(self, segment: RemoteSegment) -> FilePath:
        return self._path(segment, names.LOG_SUFFIX)

    def _path(self, segment: RemoteSegment, ending: str) -> FilePath:
        topic, topic_id, number = segment.partition
        folder = self._root / f"{topic}-{number}-{format_topic_id(topic_id)}"
        return folder / f"{names.file_name(segment.start_offset, '')}-{format_topic_id(segment.id)}{ending}"
