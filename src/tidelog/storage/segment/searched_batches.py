"""Searches within compressed batches, for a thread that serves many clients: a few kilobytes may decompress to 100 MB.

Within `non_blocking` a batch is decompressed up to `AT_ONCE_BYTES`, because another thread would cost more. For a larger batch,
`NotSearchedError` is raised: its `prefetch` searches on another thread, and the caller then retries and gets the result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from tidelog.errors import DecompressedTooLargeError, TidelogError
from tidelog.formats.non_blocking_read import NotCachedError, is_non_blocking
from tidelog.records.compression import DEFAULT_DECOMPRESSION_LIMIT_BYTES

AT_ONCE_BYTES = 1 << 20
KEPT = 64
"""How many results are kept for callers that retry. A caller repeats its whole search each time."""

Found: TypeAlias = "tuple[int, int] | None"
"""A record's offset and timestamp, or its timestamp and offset; None if no record was found."""

Search: TypeAlias = Callable[[int], Found]
"""Searches a batch, decompressing at most the given number of bytes."""


class NotSearchedError(NotCachedError):
    """A batch must be searched on another thread."""

    def __init__(self, results: dict[Hashable, Found | TidelogError], key: Hashable, search: Search) -> None:
        Exception.__init__(self, "not searched")
        self._results = results
        self._key = key
        self._search = search

    def prefetch(self) -> None:
        """Search the batch, and keep the result or the batch's error for the caller that retries."""
        result: Found | TidelogError
        try:
            result = self._search(DEFAULT_DECOMPRESSION_LIMIT_BYTES)
        except TidelogError as error:
            result = error
        self._results[self._key] = result


class SearchedBatches:
    """Search results of one segment from other threads, until the callers retry."""

    def __init__(self) -> None:
        self._results: dict[Hashable, Found | TidelogError] = {}

    def find(self, key: Hashable, search: Search) -> Found:
        """Return what `search` returns; `key` identifies the search. Raises what `search` raises, and NotSearchedError."""
        if not is_non_blocking():
            return search(DEFAULT_DECOMPRESSION_LIMIT_BYTES)
        if key in self._results:
            result = self._results[key]
            if isinstance(result, TidelogError):
                raise result
            return result
        while len(self._results) >= KEPT:
            oldest, *_ = list(self._results)  # Other threads may add results meanwhile.
            self._results.pop(oldest, None)
        try:
            return search(AT_ONCE_BYTES)
        except DecompressedTooLargeError:
            raise NotSearchedError(self._results, key, search) from None
