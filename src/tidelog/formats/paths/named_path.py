"""The common part of paths to files elsewhere: names, order, and errors if they are used as local paths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self


class NamedPath(ABC):
    """A base class for paths that implement `FilePath`. Two paths are equal if they have the same class and the same text."""

    __slots__ = ()

    @abstractmethod
    def __str__(self) -> str: ...

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def with_name(self, name: str, /) -> Self: ...

    @abstractmethod
    def is_dir(self) -> bool: ...

    @abstractmethod
    def is_file(self) -> bool: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __fspath__(self) -> str:
        raise TypeError(f"not a local file: {self}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)

    @property
    def suffix(self) -> str:
        dot = self.name.rfind(".")
        return self.name[dot:] if 0 < dot < len(self.name) - 1 else ""

    @property
    def stem(self) -> str:
        return self.name.removesuffix(self.suffix)

    def with_suffix(self, suffix: str) -> Self:
        return self.with_name(self.stem + suffix)

    def absolute(self) -> Self:
        return self

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def is_symlink(self) -> bool:
        return False
