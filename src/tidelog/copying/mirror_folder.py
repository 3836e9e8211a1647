"""A mirror's folder: the offset maps, and the facts that a failover needs when the source is gone.

| file | |
|---|---|
| ``<topic>-<partition>.offsetmap`` | source offsets and target offsets (`offset_map`) |
| ``mirror.json`` | the owner of the folder: the job, the clusters, the names of the topics in the target |
| ``groups.json`` | the groups' committed offsets in the source, as last read |

Both JSON files are replaced as a whole. A folder belongs to one mirror. A different source, target or job is refused, because the
stored positions and maps do not apply to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog.errors import InvalidArgumentError
from tidelog.formats.json_files import make_folder, read_json, understanding, write_json, write_new_json
from tidelog.model import TopicPartition

MIRROR_FILE = "mirror.json"
GROUPS_FILE = "groups.json"
VERSION = 1
_WHAT = "a mirror's file"

GroupOffsets = Mapping[str, Mapping[TopicPartition, int]]
"""Group → partition of the source → committed offset."""


@dataclass(frozen=True, slots=True)
class MirrorIdentity:
    """The owner of a folder. `source` and `target` are cluster ids if known, otherwise addresses or a folder's path."""

    job_id: str
    source: str
    target: str
    prefix: str


@dataclass(frozen=True, slots=True)
class SeenGroups:
    """The offsets that groups had committed in the source at `seen_ms`, epoch ms."""

    seen_ms: int
    groups: GroupOffsets


def claim_folder(folder: str | os.PathLike[str], identity: MirrorIdentity) -> None:
    """Create the folder, or check that it belongs to this mirror. Raises InvalidArgumentError, CorruptCheckpointError,
    StorageError.
    """
    path = Path(folder)
    known = read_identity(path)
    if known is None:
        make_folder(path)
        if write_new_json(path / MIRROR_FILE, VERSION, asdict(identity)):
            return
        known = read_identity(path)  # Another mirror has created the file meanwhile.
        assert known is not None
    for name, value in asdict(known).items():
        if value != getattr(identity, name):
            raise InvalidArgumentError(
                f"the folder belongs to a different mirror: its {name} differs",
                path=path / MIRROR_FILE,
                found=getattr(identity, name),
                expected=value,
            )


def read_identity(folder: str | os.PathLike[str]) -> MirrorIdentity | None:
    """Return the folder's owner, None if it has none. Raises CorruptCheckpointError, StorageError."""
    path = Path(folder) / MIRROR_FILE
    content = read_json(path, VERSION, _WHAT)
    if content is None:
        return None
    with understanding(path, _WHAT):
        return MirrorIdentity(*(str(content[name]) for name in ("job_id", "source", "target", "prefix")))


def write_groups(folder: str | os.PathLike[str], seen: SeenGroups) -> None:
    """Replace the stored state of the source's groups. Raises StorageError."""
    groups = {
        group: [[key.topic, key.partition, offset] for key, offset in sorted(offsets.items())]
        for group, offsets in sorted(seen.groups.items())
    }
    write_json(Path(folder) / GROUPS_FILE, VERSION, {"seen_ms": seen.seen_ms, "groups": groups})


def read_groups(folder: str | os.PathLike[str]) -> SeenGroups | None:
    """Return the last known state of the source's groups, None if it was never read. Raises CorruptCheckpointError,
    StorageError.
    """
    path = Path(folder) / GROUPS_FILE
    content = read_json(path, VERSION, _WHAT)
    if content is None:
        return None
    with understanding(path, _WHAT):
        groups = {
            group: {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in offsets}
            for group, offsets in content["groups"].items()
        }
        return SeenGroups(int(content["seen_ms"]), groups)
