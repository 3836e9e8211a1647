"""Asks the questions of `tests/enemy` of damaged folders through the code for object storage."""

from __future__ import annotations

import pytest

from tests.enemy import asking, test_enemy
from tests.enemy.asking import Asked
from tests.enemy.damage import Damage
from tests.enemy.test_enemy import test_no_damage_changes_an_answer_in_silence  # noqa: F401
from tests.objects.as_objects import object_folder
from tidelog.objects import opening

asked_of_files = test_enemy.ask_all


@pytest.fixture(autouse=True)
def _of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask_all(asked: Asked, done: Damage | None, failures: list[str], seed: str, *, is_verified: bool = False) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(opening, "local_folder", object_folder)
            asked_of_files(asked, done, failures, seed, is_verified=is_verified)

    monkeypatch.setattr(test_enemy, "ask_all", ask_all)
    monkeypatch.setattr(asking, "served", lambda asked: [])
