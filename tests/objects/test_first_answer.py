"""A bucket whose server does not answer: a warning says what is waited for."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest

from tests.patience import PATIENCE_S
from tidelog.objects import object_store
from tidelog.objects.object_store import ObstoreStore


def test_a_wait_for_the_first_answer_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    is_told = threading.Event()

    def warning(text: str, *arguments: object) -> None:
        told.append(text % arguments)
        is_told.set()

    class Slow:
        config: ClassVar = {"endpoint": "http://me:secret@127.0.0.1:9"}

        def put(self, key: str, data: bytes) -> None:
            assert is_told.wait(PATIENCE_S)

    monkeypatch.setattr(object_store, "SLOW_S", 0)
    monkeypatch.setattr(object_store.logger, "warning", warning)
    bucket = ObstoreStore(Slow(), "s3://bucket")
    bucket.put("a", b"")
    bucket.put("b", b"")

    (line,) = told
    assert line.startswith("s3://bucket at http://") and "127.0.0.1:9 has not answered yet" in line and "secret" not in line
