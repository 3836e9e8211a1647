"""The source of a data folder's metadata: its own log, or the broker's cluster.

| | written by | |
|---|---|---|
| `MetadataStore` | the folder's one broker | ``__cluster_metadata-0`` in the folder |
| `ClusterMetadata` | the controllers of the cluster | passed in by the broker, up to the offset that it has read |

`MetadataSource` is their common interface for readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog.errors import InvalidArgumentError
from tidelog.metadata.image import MetadataImage
from tidelog.storage.metadata.metadata_store import Change
from tidelog.wire.fields import Message


class MetadataSource(Protocol):
    """The metadata image, and the node that owns the folder."""

    node_id: int

    @property
    def image(self) -> MetadataImage:
        """The current metadata."""

    def append(self, records: Sequence[Message]) -> Change:
        """Change the metadata: see `MetadataStore.append`. Raises InvalidArgumentError if only controllers may change it."""


class HasImage(Protocol):
    """Follows a cluster's metadata, as a broker's connection to its controllers does (`peers.metadata_plane`)."""

    @property
    def image(self) -> MetadataImage:
        """The metadata read so far. Loading a snapshot replaces the object."""


class ClusterMetadata:
    """A cluster's metadata, as read by the node `node_id`."""

    def __init__(self, plane: HasImage, node_id: int) -> None:
        self._plane = plane
        self.node_id = node_id

    @property
    def image(self) -> MetadataImage:
        """The current metadata."""
        return self._plane.image

    def append(self, records: Sequence[Message]) -> Change:
        """Raise InvalidArgumentError, because only controllers may change the metadata."""
        raise InvalidArgumentError("only the controllers can change a cluster's metadata", found=type(records[0]).__name__)
