"""The metadata that a data folder is kept by, where it comes from: its own log, or the cluster that its broker is a member of.

| | written by | |
|---|---|---|
| `MetadataStore` | the folder's one broker | ``__cluster_metadata-0`` in the folder |
| `ClusterMetadata` | the controllers of the cluster | handed in by the broker, as far as it has read it |

`MetadataSource` is what both are to those who only ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog.errors import InvalidArgumentError
from tidelog.metadata.image import MetadataImage
from tidelog.storage.metadata.metadata_store import Change
from tidelog.wire.fields import Message


class MetadataSource(Protocol):
    """The image, and which node's folder this is."""

    node_id: int

    @property
    def image(self) -> MetadataImage:
        """What is there now."""

    def append(self, records: Sequence[Message]) -> Change:
        """Change it: see `MetadataStore.append`. Raises InvalidArgumentError where only controllers do."""


class HasImage(Protocol):
    """Whatever follows a cluster's metadata, as a broker's metadata plane."""

    @property
    def image(self) -> MetadataImage:
        """The metadata as far as it was read: another object once a snapshot was loaded."""


class ClusterMetadata:
    """A cluster's metadata as the node `node_id` has read it."""

    def __init__(self, plane: HasImage, node_id: int) -> None:
        self._plane = plane
        self.node_id = node_id

    @property
    def image(self) -> MetadataImage:
        """What is there now."""
        return self._plane.image

    def append(self, records: Sequence[Message]) -> Change:
        """Raise InvalidArgumentError."""
        raise InvalidArgumentError("only the controllers can change a cluster's metadata", found=type(records[0]).__name__)
