"""Prepares a data folder for its first broker without loading its logs, which are all closed.

Use it only for a folder without an owner, in which `topics.new_topics` has written every log: the logs are synced, and the
checkpoints say so. Loading and closing each log again would write and sync three files per partition, and change nothing.
"""

from __future__ import annotations

from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import IllegalStateError
from tidelog.formats.dir_lock import DirLock
from tidelog.storage.folder import data_folder
from tidelog.storage.folder.clean_shutdown import write_clean_shutdown
from tidelog.storage.folder.dir_checkpoints import DirCheckpoints
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.metadata.leading import claiming_records
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.producers.producer_ids import ProducerIds
from tidelog.storage.topics.new_topics import finish_interrupted


def claim_closed(directory: Path, clock: Clock) -> None:
    """Give the folder an owner, reserve producer ids that its records do not use, and write the clean-shutdown file.

    If the process ends before it writes that file, the next start recovers the logs. Raises IllegalStateError if the folder has
    an owner, StorageError, CorruptDataError.
    """
    with DirLock(directory):
        if data_folder.is_claimed(directory):
            raise IllegalStateError("the folder already has an owner, so its logs might not be closed", path=directory)
        finish_interrupted(directory)
        owner = data_folder.claim(directory, ManagerConfig.from_properties({}))
        store = MetadataStore.open(directory, owner.node_id, owner.directory_uuid, clock)
        store.commit(claiming_records(store))
        store.begin()
        ProducerIds(store).keep_clear()  # A new producer must not get the id of a producer in the records.
        DirCheckpoints(directory).begin()
        write_clean_shutdown(directory)
