"""The data folder of a member of a ZooKeeper cluster: like any member's, but without formatting.

As in Kafka, the broker asks ZooKeeper for the cluster id, and stores it in the folder (`claim`). Topics may have no ids, and
older releases use message formats (KIP-516, KIP-724).
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.errors import InvalidArgumentError
from tidelog.storage.folder import data_folder
from tidelog.storage.folder.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties, write_meta_properties
from tidelog.storage.member_log_manager import MemberLogManager


class ZookeeperLogManager(MemberLogManager):
    """Manages the folder of a broker in a cluster whose metadata is in ZooKeeper."""

    newest_magic: int | None = 2
    """The newest message format to be used, None if message.format.version has no effect; to be set before `open`."""

    def open(self) -> None:
        """Lock the folder, which is created if missing, and read its owner. Idempotent. Raises what `MemberLogManager.open`
        raises.
        """
        data_folder.check_is_data_folder(self.directory)
        data_folder.create(self.directory)
        self._configured = replace(
            self._configured,
            has_topics_without_ids=True,
            has_message_formats=self.newest_magic is not None,
            newest_magic=2 if self.newest_magic is None else self.newest_magic,
        )
        super().open()

    def _read_owner(self) -> MetaProperties:
        owner = read_meta_properties(self.directory)
        node_id = self._configured.node_id
        if owner is None:
            if node_id is None:
                raise InvalidArgumentError("a broker of a cluster needs a broker.id", path=self.directory)
            return MetaProperties(node_id, version=0)
        data_folder.check_owner(self.directory, owner, self._configured)
        return owner

    def claim(self, cluster_id: str) -> None:
        """Store the folder's cluster id. Raises InvalidArgumentError if the folder has a different one, StorageError."""
        owner = self.owner
        if owner.cluster_id not in (None, cluster_id):
            raise InvalidArgumentError(
                "the folder belongs to a different cluster",
                path=self.directory / META_PROPERTIES,
                found=owner.cluster_id,
                expected=cluster_id,
            )
        if owner.cluster_id is None or read_meta_properties(self.directory) is None:
            self._owner = replace(owner, cluster_id=cluster_id)
            write_meta_properties(self.directory, self._owner)
