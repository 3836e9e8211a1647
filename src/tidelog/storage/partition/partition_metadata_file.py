"""``partition.metadata`` of a written log: the topic's id, written before the first record (spec §5.1, §7; KIP-516).

The id is set at once and written lazily: with the next append, close or rename, whichever is first. Thousands of new partitions
therefore cost no file writes before they are used, and a folder with records always has its topic's id.
`formats.partition_metadata` has the format. Each `PartitionLog` has a `PartitionMetadataFile`.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from tidelog.errors import InconsistentTopicIdError
from tidelog.formats.names import PARTITION_METADATA
from tidelog.formats.partition_metadata import encode_topic_id, format_topic_id, read_topic_id, write_topic_id
from tidelog.storage.partition.held_directory import HeldDirectory


class PartitionMetadataFile:
    """The file of one partition. `topic_id` is its present or future content; `is_dirty` is True while the id must still be
    written.
    """

    def __init__(self, directory: Path) -> None:
        """Read the file, if it exists. Raises CorruptCheckpointError, StorageError."""
        self.path = directory / PARTITION_METADATA
        self.topic_id: uuid.UUID | None = read_topic_id(self.path)
        self.is_dirty = False

    def record(self, topic_id: uuid.UUID) -> None:
        """Set the topic's id. Raises InconsistentTopicIdError if a different id is known."""
        if self.topic_id is None:
            self.topic_id = topic_id
            self.is_dirty = True
        elif self.topic_id != topic_id:
            raise InconsistentTopicIdError(
                "the folder belongs to a different topic with the same name",
                path=self.path,
                found=format_topic_id(self.topic_id),
                expected=format_topic_id(topic_id),
            )

    def maybe_flush(self, held: HeldDirectory | None = None) -> None:
        """Write the file if necessary. A caller on another thread passes the folder as `held`. Raises StorageError."""
        if self.is_dirty and self.topic_id is not None:
            if held is None:
                write_topic_id(self.path, self.topic_id)
            else:
                held.replace_file(self.path.name, encode_topic_id(self.topic_id))
            self.is_dirty = False

    def update_parent_dir(self, directory: Path) -> None:
        """Update the path after the folder has been renamed."""
        self.path = directory / self.path.name
