"""Loads Protobuf schemas: `.proto` texts, which protoc of grpcio-tools compiles in a separate process, or descriptor sets.

protoc is Google's compiler. It runs in a separate process because a hostile text may make it use a lot of time and memory, and
because it writes errors to standard error.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from

COMPILE_TIMEOUT_S: Final = 60
_NOTICE: Final = re.compile(r"[WI]\d{4} |.*\bwarning\b", re.IGNORECASE)
_MAIN: Final = "tidelog_schema.proto"


class ProtobufFile:
    """A compiled file and its imports. Raises InvalidArgumentError."""

    def __init__(self, descriptors: bytes, *, path: str | None = None) -> None:
        with imported_from("decode", "protobuf"):
            from google.protobuf import descriptor_pb2, descriptor_pool, message
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
            pool = descriptor_pool.DescriptorPool()
            for one in files.file:
                pool.AddSerializedFile(one.SerializeToString())
            # protoc writes each file after its imports.
            self._main = pool.FindFileByName(files.file[-1].name)
            self._files = [pool.FindFileByName(one.name) for one in files.file]
        except (message.DecodeError, TypeError, KeyError, IndexError) as error:
            reason = str(error).splitlines()
            raise InvalidArgumentError(
                f"not a set of Protobuf descriptors: {reason[0] if reason else 'empty'}", path=path
            ) from None
        self._path = path

    def by_name(self, name: str | None) -> Any:
        """Return the descriptor of the message with a full name, or with a last part of its name if that is unique. If `name` is
        None, return the file's first message.
        """
        if name is None:
            return self.by_indexes((0,))
        found = [one for one in self._messages() if one.full_name == name] or [
            one for one in self._messages() if one.name == name
        ]
        if len(found) != 1:
            names = ", ".join(one.full_name for one in list(self._messages())[:10])
            raise InvalidArgumentError(
                "the Protobuf file does not have this message" if not found else "not unique",
                found=name,
                expected=names,
                path=self._path,
            )
        return found[0]

    def by_indexes(self, indexes: Sequence[int]) -> Any:
        """Return the descriptor of a message. The first index is a message's position in the file; each further index is a nested
        message's position in the message before it.
        """
        try:
            one = list(self._main.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                one = one.nested_types[index]
        except IndexError:
            raise InvalidArgumentError(
                "the Protobuf file does not have a message with these indexes", found=list(indexes), path=self._path
            ) from None
        return one

    def _messages(self) -> Iterable[Any]:
        waiting = [one for file in self._files for one in file.message_types_by_name.values()]
        while waiting:
            one = waiting.pop(0)
            yield one
            waiting += one.nested_types


def compiled(text: str, references: Iterable[tuple[str, str]] = (), *, path: str | None = None) -> bytes:
    """Compile a `.proto` text into a descriptor set. `references` are the names and texts of the files that the text imports.

    Raises an InvalidArgumentError that has protoc's first error.
    """
    with tempfile.TemporaryDirectory(prefix="tidelog-proto-") as folder:
        root = Path(folder)
        for name, content in references:
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts or not parts.parts:
                raise InvalidArgumentError("the path of a Protobuf reference leaves its folder", found=repr(name), path=path)
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content, encoding="utf-8")
        (root / _MAIN).write_text(text, encoding="utf-8")
        return _run(root, [str(root)], _MAIN, path)


def serialized(texts: Sequence[str]) -> bytes | None:
    """Combine FileDescriptorProtos in base64 into a descriptor set; the last text is the schema. Return None if a text is
    something else.

    Confluent's serializers for Python register schemas in this form, and Confluent's registry returns it for `format=serialized`.
    """
    with imported_from("decode", "protobuf"):
        from google.protobuf import descriptor_pb2, message
    # Files that the library itself provides and schemas import.
    from google.protobuf import any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    own = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2, descriptor_pb2)
    files = descriptor_pb2.FileDescriptorSet()
    try:
        given = [descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True)) for text in texts]
    except (ValueError, message.DecodeError):
        return None
    names = {one.name for one in given}
    for module in own:
        if module.DESCRIPTOR.name not in names:
            module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.extend(given)
    return bytes(files.SerializeToString())


def compiled_file(path: str) -> bytes:
    """Compile a `.proto` file into a descriptor set. Its imports are searched for in its folder and the folders above."""
    file = Path(path).resolve()
    folders = [str(folder) for folder in file.parents]
    with tempfile.TemporaryDirectory(prefix="tidelog-proto-") as folder:
        return _run(Path(folder), folders[:-1] or folders, str(file), path)


def _run(root: Path, folders: Sequence[str], file: str, path: str | None) -> bytes:
    with imported_from("decode", "grpcio-tools"):
        import grpc_tools
    out = root / "descriptors"
    # protoc's own folder has google/protobuf/*.proto.
    includes = [f"-I{folder}" for folder in (*folders, str(Path(grpc_tools.__file__).parent / "_proto"))]
    command = [sys.executable, "-m", "grpc_tools.protoc", *includes, "--include_imports", f"--descriptor_set_out={out}", file]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise InvalidArgumentError(f"protoc did not finish within {COMPILE_TIMEOUT_S} s", path=path) from None
    if done.returncode or not out.exists():
        lines = [line for line in done.stderr.splitlines() if line.strip() and not _NOTICE.match(line)]
        reason = (
            lines[0].replace(f"{root}/", "").replace(_MAIN, "line ")
            if lines
            else f"protoc failed with exit code {done.returncode}"
        )
        raise InvalidArgumentError(f"not a Protobuf schema: {reason[:300]}", path=path)
    return out.read_bytes()
