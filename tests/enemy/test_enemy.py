"""No damage to a folder changes an answer in silence: see the package.

And what `verify` finds nothing wrong with answers every question without an error.

A case is one folder with one damage, and questions of every kind. 32 cases a run, 10,000 in `make soak`. Another
`TIDELOG_ENEMY_SEED` makes others.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from tests.enemy import asking, damage, folders
from tests.enemy.asking import Answer, Asked
from tests.enemy.damage import Damage
from tests.enemy.folders import Folder
from tests.enemy.truth import read_folder
from tests.examples import IS_SOAK
from tests.reader.hint_damage import headers_of
from tidelog.formats import names
from tidelog.formats.checkpoints import write_offset_checkpoint
from tidelog.records.batch import HEADER_BYTES

DAMAGES_PER_FOLDER = 12 if IS_SOAK else 8
FOLDERS = 900 if IS_SOAK else 4
PARTS = 8
MAX_SECONDS = 30


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


def wrong(answer: Answer, done: Damage | None) -> str | None:
    """Say what is wrong with an answer, None if nothing is."""
    if done is None:
        if answer.loudness:
            return "a false alarm"
        return None if answer.came == answer.true else "not the truth of a sound folder"
    if answer.came == answer.true or (answer.came is None and answer.loudness == 2):
        return None
    if done.kind == "miswritten":
        return None  # There is no truth.
    needed = {"hint": 3, "told": 1, "lost": 2, "hurt": 2}[done.kind]
    return None if answer.loudness >= needed else "not the truth"


def ask_all(asked: Asked, done: Damage | None, failures: list[str], seed: str, *, is_verified: bool = False) -> None:
    """Ask questions of all kinds; `is_verified`: `verify` found nothing wrong."""
    questions = list(asking.CHEAP)
    of_index = done is not None and done.what.endswith((names.TIME_INDEX_SUFFIX, names.INDEX_SUFFIX))
    is_miswritten = done is not None and done.kind == "miswritten"
    if asked.rng.random() < (0.3 if of_index or is_miswritten else 0.1) and (
        done is None or is_miswritten or done.kind == "hint"
    ):
        questions.append(asking.served)
    for question in questions:
        began = time.process_time()
        try:
            for answer in question(asked):
                failed = wrong(answer, done)
                if is_verified and answer.came is None:
                    failed = "an error, and verify finds nothing"
                if failed:
                    failures.append(describe(seed, asked.folder, done, failed, answer))
        except Exception as error:  # A crash is what is looked for.
            failures.append(f"{seed} {asked.folder.kind} {done}: {question.__name__}: {type(error).__name__}: {error}")
        took = time.process_time() - began
        if took > MAX_SECONDS:
            failures.append(f"{seed} {asked.folder.kind} {done}: {question.__name__} took {took:.0f} s of processor time")


def check_verify(asked: Asked, done: Damage | None, failures: list[str], seed: str) -> bool:
    """A sound folder has no faults; one that lost something, or that was hurt, has. Return whether none was found."""
    (answer,) = asking.verify(asked)
    is_wrong = answer.loudness > 0 if done is None else (done.kind in ("lost", "hurt") and not answer.loudness)
    if is_wrong:
        failures.append(describe(seed, asked.folder, done, "verify", answer))
    return not answer.loudness


def describe(seed: str, folder: Folder, done: Damage | None, failed: str, answer: Answer) -> str:
    true, came = str(answer.true)[:400], str(answer.came)[:400]
    return (
        f"{seed} {folder.kind}: {'sound' if done is None else f'{done.kind}: {done.what}'}: {failed}\n"
        f"    {answer.question}\n    true {true}\n    came {came}\n    said {answer.said[:300]!r}"
    )


def attack(tmp_path: Path, seed: int, kind: str, failures: list[str]) -> int:
    """Make a folder, ask it, and damage it again and again; return how many cases that were."""
    rng = random.Random(seed)
    place = tmp_path / str(seed)
    place.mkdir()
    folder = folders.make(kind, place, rng)
    truths = read_folder(folder.path, folder.keys)
    asked = Asked(folder, truths, rng)
    is_verified = check_verify(asked, None, failures, f"seed {seed}")
    ask_all(asked, None, failures, f"seed {seed}", is_verified=is_verified)
    kept = place / "kept"
    shutil.copytree(folder.path, kept)
    maps = folder.time_map_dir
    if maps is not None:
        shutil.copytree(maps, place / "kept maps")
    cases = 0
    for number in range(DAMAGES_PER_FOLDER):
        done = damage.any_damage(folder, rng)
        if done is None:
            continue
        cases += 1
        now = truths
        if done.what.startswith("replace"):
            now = read_folder(folder.path, folder.keys)
        is_verified = check_verify(Asked(folder, now, rng), done, failures, f"seed {seed}/{number}")
        ask_all(Asked(folder, now, rng), done, failures, f"seed {seed}/{number}", is_verified=is_verified)
        put_back(kept, folder.path)
        if maps is not None:
            put_back(place / "kept maps", maps)
    shutil.rmtree(place)
    return cases


@pytest.mark.parametrize("number", range(40 if IS_SOAK else 1))
def test_each_bit_of_a_header(tmp_path: Path, number: int) -> None:
    """What a header says decides what is left out, before its batch is read."""
    first = int(os.environ.get("TIDELOG_ENEMY_SEED", "0"))
    rng = random.Random(first + number)
    failures: list[str] = []
    folder = folders.make(next(folders.any_kind(rng)) if IS_SOAK else "laid", tmp_path, rng)
    truths = read_folder(folder.path, folder.keys)
    log = rng.choice([one for one in folder.logs() if one.stat().st_size])
    header = rng.choice(headers_of(log))
    kept = log.read_bytes()
    bits = [(byte, bit) for byte in range(HEADER_BYTES if header.magic == 2 else 34) for bit in range(8)]
    for byte, bit in bits if IS_SOAK else rng.sample(bits, 40):
        done = damage.flip_bit(folder, log, header, byte, bit)
        if done is not None:
            ask_all(Asked(folder, truths, rng), done, failures, f"seed {first + number}")
            log.write_bytes(kept)
    assert not failures, f"{len(failures)} wrong\n" + "\n".join(failures[:40])


def put_back(kept: Path, target: Path) -> None:
    """Make `target` what `kept` is; files that are right already stay the same inodes, with their times."""
    wanted, there = asking.whole(kept), asking.whole(target) if target.exists() else {}
    for name in there.keys() - wanted.keys():
        (target / name).unlink()
    for name, data in wanted.items():
        if there.get(name) != data:
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def test_what_commands_and_functions_say_is_heard(tmp_path: Path) -> None:
    """Here tests silence all loggers; a note that is not heard looks like an answer that is wrong in silence."""
    folder = folders.make("imported", tmp_path, random.Random(1))
    truths = read_folder(folder.path, folder.keys)
    write_offset_checkpoint(folder.path / names.HIGH_WATERMARK_CHECKPOINT, dict.fromkeys(folder.keys, 3))
    for question in (asking.cat, asking.scan):
        answers = [answer for seed in range(6) for answer in question(Asked(folder, truths, random.Random(seed)))]
        assert [one for one in answers if wrong(one, Damage("a high watermark", "told"))] == []
        assert any(one.came != one.true for one in answers)


@pytest.mark.parametrize("part", range(PARTS if IS_SOAK else 1))
def test_no_damage_changes_an_answer_in_silence(tmp_path: Path, part: int) -> None:
    failures: list[str] = []
    cases = 0
    kinds = folders.any_kind(random.Random(part)) if IS_SOAK else iter(folders.KINDS)
    first = int(os.environ.get("TIDELOG_ENEMY_SEED", "0"))
    for seed in range(first + part, first + FOLDERS, PARTS if IS_SOAK else 1):
        cases += attack(tmp_path, seed, next(kinds), failures)
    assert not failures, f"{len(failures)} wrong in {cases} cases\n" + "\n".join(failures[:40])
