"""The manifests of a backup: a tree in which each manifest names its children by their SHA-256.

::

    point ── catalog ── topic ── partition ── page      of 64 closed segments
                                         └─── segments  the others

So a point adds only what has changed since the previous point. A point of an idle cluster names the same catalog again. A
manifest is JSON, compressed with gzip, with a `version` and a `kind`. The SHA-256 is that of the compressed bytes. An
`end_offset` is exclusive. Times are epoch milliseconds, -1 if records have none.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tidelog.backup.layout import VERSION, PointName, data_stem
from tidelog.backup.shapes import shaped
from tidelog.errors import CorruptDataError
from tidelog.formats import names
from tidelog.model import NO_TIMESTAMP

PAGE_SEGMENTS = 64
"""The number of closed segments in a page. A page is written once and never changes."""


class StoredFile(NamedTuple):
    """The size and SHA-256 of an object."""

    size_bytes: int
    sha256: str

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> StoredFile:
        """Return the size and SHA-256 of some bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


class Piece(NamedTuple):
    """A piece of a segment: batches that were written together. A segment's files are the concatenated files of its pieces."""

    base_offset: int
    """The base offset of the first batch."""
    first_end: int
    """The offset after the first batch. For a piece without indexes, readers use an index entry for that batch."""
    end_offset: int
    first_epoch: int
    """Leader epochs of the first and the last batch; -1 in old message formats."""
    last_epoch: int
    first_time: int
    """The largest timestamp of the first batch, and of the last batch."""
    last_time: int
    max_time: int
    max_time_offset: int
    """The last offset of the first batch that has the largest timestamp."""
    files: Mapping[str, StoredFile]
    """The piece's files by suffix: ``.log`` always; ``.index`` and ``.timeindex`` if the piece is large; ``.txnindex`` if it has
    aborted transactions.
    """

    @property
    def size_bytes(self) -> int:
        """The size of the batches, in bytes."""
        return self.files[names.LOG_SUFFIX].size_bytes

    @property
    def stem(self) -> str:
        """The common beginning of the names of the piece's objects."""
        return data_stem(self.base_offset, self.files[names.LOG_SUFFIX].sha256)


class Segment(NamedTuple):
    """A segment. Its name in a data folder is its base offset."""

    base_offset: int
    pieces: tuple[Piece, ...]
    snapshot: StoredFile | None = None
    """The producer state before the segment; None for the log's first segment."""

    @property
    def end_offset(self) -> int:
        return self.pieces[-1].end_offset if self.pieces else self.base_offset

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)

    @property
    def max_time(self) -> int:
        return max((piece.max_time for piece in self.pieces), default=NO_TIMESTAMP)


class Page(NamedTuple):
    """A reference to a page of closed segments, and the offsets that the page covers."""

    sha256: str
    base_offset: int
    end_offset: int
    segments: int
    size_bytes: int
    max_time: int


class Gap(NamedTuple):
    """Records that were removed from the source before the backup had read them. The times are bounds of the records' timestamps,
    if known.
    """

    start_offset: int
    end_offset: int
    noticed_ms: int
    after_time: int
    """The largest timestamp before the gap, -1 if unknown."""
    reason: str


class Snapshot(NamedTuple):
    """One of Kafka's producer snapshots: the producer state before an offset."""

    offset: int
    file: StoredFile

    @property
    def stem(self) -> str:
        """The object's name without the suffix."""
        return data_stem(self.offset, self.file.sha256)


class PartitionManifest(NamedTuple):
    """A partition at a point."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    log_start_offset: int
    """The log start offset of the source. Earlier records in the first segment are not part of the point."""
    end_offset: int
    stable_offset: int
    """The partition's offset in the cut: every transaction below it is decided. The point also has the records from here to
    `end_offset`."""
    leader_epochs: tuple[tuple[int, int], ...]
    """Leader epochs and their start offsets, as in ``leader-epoch-checkpoint``."""
    pages: tuple[Page, ...]
    segments: tuple[Segment, ...]
    """The segments after those in the pages, in order."""
    snapshot: Snapshot | None
    """The producer state at the log end offset, or None if there are no producers. The state before a segment is in the
    segment.
    """
    gaps: tuple[Gap, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the batches, in bytes."""
        return sum(page.size_bytes for page in self.pages) + sum(segment.size_bytes for segment in self.segments)

    @property
    def ends(self) -> PartitionEnds:
        """The partition's entry in the catalog."""
        offsets = (self.log_start_offset, self.end_offset, self.stable_offset)
        return PartitionEnds(self.partition, *offsets, self.size_bytes, self.max_time)

    @property
    def max_time(self) -> int:
        """The largest timestamp, -1 if there is none."""
        times = [*(page.max_time for page in self.pages), *(segment.max_time for segment in self.segments)]
        return max(times, default=NO_TIMESTAMP)


class TopicManifest(NamedTuple):
    """A topic at a point."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    replication_factor: int
    """The replication factor; 0 if it is unknown."""
    settings: Mapping[str, str] | None
    """The properties set for the topic, or None if they could not be described."""
    partitions: Mapping[int, str]
    """The checksums of the partitions' manifests, by partition number."""


class PartitionEnds(NamedTuple):
    """A partition's entry in a catalog. Its values equal those in the partition's manifest."""

    partition: int
    log_start_offset: int
    end_offset: int
    stable_offset: int
    size_bytes: int
    max_time: int


class TopicEntry(NamedTuple):
    """A topic in a catalog. The `stable_offset`s of all topics' partitions are the point's cut."""

    name: str
    topic_id: uuid.UUID
    is_compacted: bool
    sha256: str
    partitions: tuple[PartitionEnds, ...]


class _Topics(NamedTuple):
    topics: tuple[TopicEntry, ...]


class _Segments(NamedTuple):
    segments: tuple[Segment, ...]


class Point(NamedTuple):
    """A point of a backup."""

    backup_id: uuid.UUID
    sequence: int
    taken_ms: int
    """The time at which the cut was taken."""
    finished_ms: int
    previous: str | None
    """The SHA-256 of the previous point's bytes."""
    source: str
    cluster_id: str | None
    catalog: str
    rights: str | None
    """The checksum of the manifest with ACLs, quotas and SCRAM users; None if they were not requested."""
    is_cut_consistent: bool
    """Whether the cut is consistent: the markers of each transaction are below the cut in all of its partitions, or in none."""
    topics: int
    partitions: int
    size_bytes: int
    """The size of the segments that the point needs."""
    written_bytes: int
    """The size of the objects that this point added."""
    max_time: int
    gaps: int
    """The number of gaps noticed since the previous point."""
    incomplete: tuple[str, ...]
    """The topics and partitions that could not be read for this point, with the reasons. The point has their state of the
    previous point."""

    @property
    def name(self) -> PointName:
        return PointName(self.sequence, self.taken_ms)


def encode(kind: str, content: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return a manifest's checksum and bytes."""
    data = gzip.compress(_json({"version": VERSION, "kind": kind, **content}), 6, mtime=0)
    return hashlib.sha256(data).hexdigest(), data


def decode(kind: str, sha256: str, data: bytes | memoryview, place: object) -> dict[str, Any]:
    """Return a manifest's content. Raises CorruptDataError for a wrong checksum, a different kind of manifest or an
    unknown version.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise CorruptDataError(
            "a manifest does not match its checksum", path=str(place), found=f"SHA-256 {found}", expected=sha256
        )
    with _understanding(place):
        content = json.loads(gzip.decompress(data))
    return _checked(kind, content, place)


@contextmanager
def _understanding(place: object) -> Iterator[None]:
    """Raise CorruptDataError if content with a correct checksum is not as this release writes it."""
    try:
        yield
    except (ValueError, OSError, EOFError, OverflowError, zlib.error) as error:
        text = f"the content is not as this release of Tidelog writes it: {error}"
        raise CorruptDataError(text, path=str(place), expected=f"a backup of version {VERSION}") from None


def shaped_manifest(kind: str, sha256: str, data: bytes | memoryview, place: object) -> Any:
    """Return a manifest of the kind `catalog` (a tuple of its topics), `topic`, `partition`, `page` (a tuple of its segments), or
    `rights`. Raises the errors of `decode`.
    """
    content = decode(kind, sha256, data, place)
    del content["version"], content["kind"]
    with _understanding(place):
        return _SHAPES[kind](content)


def _checked(kind: str, content: Any, place: object) -> dict[str, Any]:
    if not isinstance(content, dict) or content.get("kind") != kind:
        found = content.get("kind") if isinstance(content, dict) else type(content).__name__
        raise CorruptDataError("a manifest is of the wrong kind", path=str(place), found=found, expected=kind)
    if content.get("version") != VERSION:
        raise CorruptDataError(
            "a manifest has an unknown version", path=str(place), found=content.get("version"), expected=VERSION
        )
    return content


def checksum_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an object as JSON with sorted names, without spaces, in UTF-8."""
    return hashlib.sha256(_json(content)).hexdigest()


def encode_point(point: Point) -> bytes:
    """Return a point's bytes: JSON whose `checksum` covers its other fields (`checksum_of`)."""
    content = {**point._asdict(), "version": VERSION, "kind": "point", "backup_id": str(point.backup_id)}
    return json.dumps({**content, "checksum": checksum_of(content)}, indent=1, ensure_ascii=False).encode() + b"\n"


def decode_point(data: bytes | memoryview, name: PointName, place: object) -> Point:
    """Return a point from its bytes. Raises CorruptDataError if it is damaged, or if its name belongs to a different point."""
    try:
        content = json.loads(bytes(data))
        checksum = content.pop("checksum")
        found = checksum_of(content)
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise CorruptDataError(
            f"a point is damaged: expected JSON with a checksum, found an error: {error}", path=str(place)
        ) from None
    if found != checksum:
        raise CorruptDataError(
            "a point does not match its checksum", path=str(place), found=f"SHA-256 {found}", expected=checksum
        )
    _checked("point", content, place)
    del content["version"], content["kind"]
    with _understanding(place):
        point = shaped(Point, content)
        is_other = point.name.key != name.key
    if is_other:
        raise CorruptDataError("the file holds a different point", path=str(place), found=point.name.key, expected=name.key)
    return point


def encode_catalog(topics: Iterable[TopicEntry]) -> tuple[str, bytes]:
    """Return a catalog's checksum and bytes."""
    return encode("catalog", {"topics": [{**one._asdict(), "topic_id": str(one.topic_id)} for one in topics]})


def encode_topic(topic: TopicManifest) -> tuple[str, bytes]:
    """Return a topic's checksum and bytes."""
    content = {**topic._asdict(), "topic_id": str(topic.topic_id)}
    content["partitions"] = {str(number): sha256 for number, sha256 in topic.partitions.items()}
    return encode("topic", content)


def encode_partition(partition: PartitionManifest) -> tuple[str, bytes]:
    """Return a partition's checksum and bytes."""
    content = {**partition._asdict(), "topic_id": str(partition.topic_id)}
    content["segments"] = [_segment_json(one) for one in partition.segments]
    content["gaps"] = [one._asdict() for one in partition.gaps]
    content["pages"] = [one._asdict() for one in partition.pages]
    snapshot = partition.snapshot
    content["snapshot"] = None if snapshot is None else {"offset": snapshot.offset, **snapshot.file._asdict()}
    return encode("partition", content)


def encode_page(segments: Sequence[Segment]) -> tuple[Page, bytes]:
    """Return a page of closed segments, and its bytes."""
    sha256, data = encode("page", {"segments": [_segment_json(one) for one in segments]})
    size_bytes, max_time = sum(one.size_bytes for one in segments), max(one.max_time for one in segments)
    return Page(sha256, segments[0].base_offset, segments[-1].end_offset, len(segments), size_bytes, max_time), data


def _segment_json(segment: Segment) -> dict[str, Any]:
    pieces = [{**one._asdict(), "files": {name: list(file) for name, file in one.files.items()}} for one in segment.pieces]
    snapshot = None if segment.snapshot is None else list(segment.snapshot)
    return {"base_offset": segment.base_offset, "pieces": pieces, "snapshot": snapshot}


def _partition(content: dict[str, Any]) -> PartitionManifest:
    found = content.get("snapshot")
    if isinstance(found, dict):
        content["snapshot"] = {"file": found, "offset": found.pop("offset", None)}
    return shaped(PartitionManifest, content)


_SHAPES: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "catalog": lambda content: shaped(_Topics, content).topics,
    "topic": lambda content: shaped(TopicManifest, content),
    "partition": _partition,
    "page": lambda content: shaped(_Segments, content).segments,
    "rights": dict,
}


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
