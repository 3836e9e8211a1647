"""The layout of Aiven's plugin (Aiven-Open/tiered-storage-for-apache-kafka), with manifests of version 1.

::

    [prefix]<topic>-<topic id>/<partition>/<start offset>-<segment id>.log           the records, in chunks
                                                                      .indexes       all other files, one after the other
                                                                      .rsm-manifest  JSON: where chunks and files are

A chunk is compressed with zstd and then encrypted, if the broker is configured to do so. The indexes may be encrypted, but are
never compressed. The manifest has the data key, encrypted with the broker's RSA key (OAEP with SHA3-512). An encrypted chunk is
12 bytes of nonce, then the output of AES-GCM with its tag. The additional data (AAD) is the manifest's ``aad``.

The broker may keep object names in the segment's custom metadata, as tagged fields (``OBJECT_PREFIX``, ``OBJECT_KEY``). Such
names are resolved below the tier's address. Segments that the plugin wrote as Iceberg tables are not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.errors import CorruptDataError, InvalidArgumentError, ProtocolError, StorageError, UnsupportedVersionError
from tidelog.extras import imported_from
from tidelog.formats import names
from tidelog.formats.files import read_whole
from tidelog.formats.json_files import read_object, understanding
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.formats.paths.file_path import FilePath, Handle, with_ending
from tidelog.formats.paths.local_handle import open_handle
from tidelog.reader.tiered.chunked_file import ChunkedHandle, Chunks
from tidelog.reader.tiered.layout import BytesHandle
from tidelog.reader.tiered.remote_segments import RemoteSegment
from tidelog.records.compression import Codec, decompress
from tidelog.wire.codec import decoder
from tidelog.wire.fields import Message, string

MANIFEST, INDEXES = ".rsm-manifest", ".indexes"
MAX_SIZES_BYTES = 10 * 1024 * 1024
"""The plugin's own limit for the list of chunk sizes, uncompressed."""
NONCE_BYTES = 12

_PARTS = {
    names.INDEX_SUFFIX: "offset",
    names.TIME_INDEX_SUFFIX: "timestamp",
    names.SNAPSHOT_SUFFIX: "producerSnapshot",
    names.LEADER_EPOCH_CHECKPOINT: "leaderEpoch",
    names.TXN_INDEX_SUFFIX: "transaction",
}
"""Maps Kafka's suffix of a file to the file's name in the manifest."""


class ObjectNames(Message, versions="0", flexible="0+"):
    """The object names in a segment's custom metadata. The size (tag 0) is not needed."""

    object_prefix: str = string(tag=1)
    object_key: str = string(tag=2)


class Manifest(NamedTuple):
    """The fields of a manifest that readers need."""

    chunks: Chunks
    parts: dict[str, tuple[int, int]]
    """The position and size of each file in ``.indexes``, by Kafka's suffix."""
    is_compressed: bool
    data_key: bytes | None
    aad: bytes


class AivenLayout:
    """Reads segments as Aiven's plugin stores them."""

    name = "tiered-storage-for-apache-kafka"

    def __init__(self, root: FilePath, key_files: tuple[str, ...]) -> None:
        self._root = root
        self._key_files = key_files
        self._manifests: dict[RemoteSegment, tuple[FilePath, Manifest]] = {}
        self._private_keys: dict[str, PrivateKey] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return AivenLayout, (self._root, self._key_files)  # Do not pickle decrypted keys: they stay in this process.

    def holds(self, segment: RemoteSegment) -> bool:
        return any(with_ending(stem, MANIFEST).exists() for stem in self._stems(segment))

    def check_keys(self) -> None:
        for text in self._key_files:
            name, equals, file = text.partition("=")
            _load_key(Path(file if equals else name))

    def open(self, segment: RemoteSegment, suffix: str) -> Handle:
        stem, manifest = self._manifest(segment)
        if suffix != names.LOG_SUFFIX:
            position, size = manifest.parts.get(suffix, (0, -1))
            if size < 0:
                raise FileNotFoundError(f"{stem.name}{INDEXES} has no {suffix}")
            return BytesHandle(self._index(with_ending(stem, INDEXES), manifest, position, size))
        path = with_ending(stem, names.LOG_SUFFIX)
        return ChunkedHandle(open_handle(path), manifest.chunks, partial(_opened, manifest, path), path)

    def path(self, segment: RemoteSegment) -> FilePath:
        return with_ending(next(self._stems(segment)), names.LOG_SUFFIX)

    def _index(self, path: FilePath, manifest: Manifest, position: int, size: int) -> bytes:
        handle = open_handle(path)
        try:
            data = handle.read(position, size)
        finally:
            handle.close()
        if len(data) != size:
            text = "a remote file is shorter than its manifest says"
            raise CorruptDataError(text, path=path, position=position, found=len(data), expected=size)
        return data if manifest.data_key is None or not size else _decrypted(manifest, path, data)

    def _manifest(self, segment: RemoteSegment) -> tuple[FilePath, Manifest]:
        known = self._manifests.get(segment)
        if known is None:
            known = self._manifests[segment] = self._read_manifest(segment)
        return known

    def _read_manifest(self, segment: RemoteSegment) -> tuple[FilePath, Manifest]:
        for stem in self._stems(segment):
            path = with_ending(stem, MANIFEST)
            content = read_object(path, "a segment's manifest")
            if content is not None:
                if content.get("version") != "1":
                    found = content.get("version")
                    raise UnsupportedVersionError(
                        "a segment's manifest has an unsupported version", path=path, found=found, expected="version 1"
                    )
                return stem, self._parsed(content, path)
        raise FileNotFoundError(f"{next(self._stems(segment))}{MANIFEST}")

    def _parsed(self, content: dict[str, Any], path: FilePath) -> Manifest:
        if content.get("segmentFormat", "kafka") != "kafka":
            raise InvalidArgumentError(
                "a remote segment is not in Kafka's format, so it cannot be read", path=path, found=content["segmentFormat"]
            )
        with understanding(path, "a segment's manifest"):
            manifest = _understood(content)
            data_key = str(content["encryption"]["dataKey"]) if content.get("encryption") else None
        return manifest if data_key is None else manifest._replace(data_key=self._data_key(data_key, path))

    def _stems(self, segment: RemoteSegment) -> Iterator[FilePath]:
        """Yield the paths at which a segment's files may be, without their suffixes."""
        topic, topic_id, number = segment.partition
        name = f"{names.file_name(segment.start_offset, '')}-{format_topic_id(segment.id)}"
        main = f"{topic}-{format_topic_id(topic_id)}/{number}/{name}"
        found = ObjectNames()
        if segment.custom_metadata:
            with contextlib.suppress(ProtocolError):  # The custom metadata may belong to a different plugin.
                found = decoder(ObjectNames, 0, exact=False)(segment.custom_metadata, 0)
        main = found.object_key or main
        for key in dict.fromkeys((main, f"{found.object_prefix}{main}")):
            path = self._root
            for part in key.split("/"):
                if part in (".", ".."):
                    raise InvalidArgumentError(
                        "the object name is outside the prefix of the tiered storage address (it contains '.' or '..')",
                        path=self._root,
                        found=key,
                    )
                path = path / part if part else path
            yield path

    def _data_key(self, text: str, path: FilePath) -> bytes:
        key_id, _, encrypted = text.partition(":")
        key = self._private_key(key_id, path)
        try:
            return unwrapped(b64decode(encrypted, validate=True), key)
        except ValueError:
            raise CorruptDataError(f"private key {key_id!r} does not decrypt the segment's data key", path=path) from None

    def _private_key(self, key_id: str, path: FilePath) -> PrivateKey:
        if key_id not in self._private_keys:
            self._private_keys[key_id] = _load_key(self._key_file(key_id, path))
        return self._private_keys[key_id]

    def _key_file(self, key_id: str, path: FilePath) -> Path:
        for text in self._key_files:
            name, equals, file = text.partition("=")
            if not equals or name == key_id:
                return Path(file if equals else text)
        given = ", ".join(self._key_files) or "no key"
        expected = f"the file of its RSA private key in PEM, {key_id}=FILE"
        raise InvalidArgumentError(
            "the segments are encrypted, and their private key was not given", path=path, found=given, expected=expected
        )


def _understood(content: dict[str, Any]) -> Manifest:
    """Parse a manifest, leaving the data key None. Raises the errors that `understanding` converts."""
    index = content["chunkIndex"]
    size, chunk_bytes = int(index["originalFileSize"]), int(index["originalChunkSize"])
    if index["type"] == "variable":
        stored = _sizes(index["transformedChunks"])
    elif index["type"] == "fixed":
        count = max(1, -(-size // max(1, chunk_bytes)))
        stored = [int(index["transformedChunkSize"])] * (count - 1) + [int(index["finalTransformedChunkSize"])]
    else:
        raise ValueError(f"unknown type of chunk index: {index['type']}")
    chunks = Chunks(chunk_bytes, size, stored)
    chunks.check()
    found = {suffix: content["segmentIndexes"][name] for suffix, name in _PARTS.items()}
    parts = {suffix: (int(one["position"]), int(one["size"])) for suffix, one in found.items() if one is not None}
    aad = b64decode((content.get("encryption") or {"aad": ""})["aad"], validate=True)
    return Manifest(chunks, parts, bool(content["compression"]), None, aad)


class PrivateKey(NamedTuple):
    """An RSA key: the modulus, its primes, an exponent for each, and the second prime's inverse (RFC 8017, 3.2)."""

    modulus: int
    first: int
    second: int
    first_exponent: int
    second_exponent: int
    inverse: int

    def decrypt(self, number: int) -> int:
        """Decrypt a number by the Chinese remainder theorem: two exponentiations of half the length take a third of the time."""
        one = pow(number, self.first_exponent, self.first)
        other = pow(number, self.second_exponent, self.second)
        return other + (one - other) * self.inverse % self.first * self.second

    def __repr__(self) -> str:
        return "PrivateKey(...)"


def _load_key(file: Path) -> PrivateKey:
    with imported_from("tiered", "cryptography, which decrypts segments"):
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(read_whole(file), None)
        if not isinstance(key, RSAPrivateKey):
            raise TypeError("not an RSA key")
        numbers = key.private_numbers()
        primes = numbers.p, numbers.q, numbers.dmp1, numbers.dmq1, numbers.iqmp
        return PrivateKey(numbers.public_numbers.n, *primes)
    except OSError as error:
        raise StorageError(f"cannot read a private key: {error.strerror}", path=file) from error
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(f"the file is not an RSA private key in PEM without a password: {error}", path=file) from None


def unwrapped(encrypted: bytes, key: PrivateKey) -> bytes:
    """Decrypt bytes that were encrypted with RSA-OAEP and SHA3-512 (RFC 8017, 7.1.2), which `cryptography` does not support.

    Raises ValueError if the bytes are damaged or were encrypted with a different key. The running time depends on the key, so use
    this only for files, never in a server.
    """
    size, digest = (key.modulus.bit_length() + 7) // 8, hashlib.sha3_512().digest_size
    number = int.from_bytes(encrypted, "big")
    if len(encrypted) != size or number >= key.modulus:
        raise ValueError("its size does not match the key")
    block = key.decrypt(number).to_bytes(size, "big")
    seed = _masked(block[1 : 1 + digest], block[1 + digest :])
    data = _masked(block[1 + digest :], seed)
    padding, one, message = data[digest:].partition(b"\x01")
    if block[0] or data[:digest] != hashlib.sha3_512().digest() or padding.strip(b"\0") or not one:
        raise ValueError("not encrypted with this key")
    return message


def _masked(data: bytes, seed: bytes) -> bytes:
    """Return `data` XORed with the mask that MGF1 generates from `seed`."""
    mask = b"".join(hashlib.sha3_512(seed + count.to_bytes(4, "big")).digest() for count in range(-(-len(data) // 64)))
    return bytes(a ^ b for a, b in zip(data, mask, strict=False))


def _sizes(text: str) -> list[int]:
    """Decode the sizes of chunks. The encoding has the number of chunks, the smallest size, the byte width of the differences
    from the smallest size, the differences, and the last size.
    """
    buffer = decompress(Codec.ZSTD, b64decode(text, validate=True), limit_bytes=MAX_SIZES_BYTES)
    (count,) = struct.unpack_from(">i", buffer)
    if count == 0:
        return []
    if count == 1:
        return list(struct.unpack_from(">i", buffer, 4))
    base, width = struct.unpack_from(">iB", buffer, 4)
    end = 9 + (count - 1) * width
    if not (count > 0 and 1 <= width <= 4 and len(buffer) == end + 4):
        raise ValueError(f"{count} chunk sizes of {width} bytes do not fit the {len(buffer)} bytes of the index")
    sizes = [base + int.from_bytes(buffer[at : at + width], "big") for at in range(9, end, width)]
    return [*sizes, *struct.unpack_from(">i", buffer, end)]


def _opened(manifest: Manifest, path: FilePath, chunk: bytes, size: int) -> bytes:
    """Decrypt and decompress a chunk of the records. The result must have `size` bytes. Raises CorruptDataError."""
    if manifest.data_key is not None:
        chunk = _decrypted(manifest, path, chunk)
    return bytes(decompress(Codec.ZSTD, chunk, limit_bytes=size, path=str(path))) if manifest.is_compressed and size else chunk


def _decrypted(manifest: Manifest, path: FilePath, data: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    assert manifest.data_key is not None
    try:
        found: bytes = AESGCM(manifest.data_key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], manifest.aad)
    except (InvalidTag, ValueError):
        raise CorruptDataError(
            "a chunk cannot be decrypted: it is damaged, or encrypted with a different key", path=path
        ) from None
    return found
