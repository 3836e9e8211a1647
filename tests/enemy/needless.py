"""How often an answer is right, and comes with a note or an error nevertheless: over folders with two damages each.

    python -m tests.enemy.needless FIRST_SEED LAST_SEED

Prints how many answers there were, how many of them were right, how many of these came with a note and with exit code 3, how
many were refused, and what was said with them, most often first, with an example. Whether the damage called for it is for people
to say.
"""

from __future__ import annotations

import logging
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.enemy import asking, damage, folders
from tests.enemy.asking import Answer, Asked
from tests.enemy.damage import Damage
from tests.enemy.folders import Folder
from tests.enemy.test_enemy import put_back
from tests.enemy.truth import read_folder
from tidelog.errors import TidelogError

PAIRS = 8
KINDS = ("hint", "told", "lost", "hurt")
"""Of damage: what befell more than hints may well call for an error."""

QUESTIONS = (asking.find, asking.cat, asking.api_find, asking.scan, asking.splits, asking.stat, asking.retention)

_NAMES = re.compile(r"(/[\w.=@+-]+)+|\b\d[\d,.]*\b|'[^']*'|\[[^]]*\)")


def kind_of(line: str) -> str:
    """What a line says, without places and numbers."""
    suffixes = sorted(set(re.findall(r"\.(timeindex|txnindex|index|timemap|snapshot|log)\b|([a-z-]+-checkpoint)", line)))
    return _NAMES.sub("#", line)[:150] + " " + ",".join("".join(one) for one in suffixes)


class Count:
    """What was heard."""

    def __init__(self) -> None:
        self.answers = Counter[str]()
        self.said = Counter[tuple[str, str]]()
        self.examples: dict[tuple[str, str], str] = {}

    def add(self, answer: Answer, worst: str, where: str) -> None:
        is_right = answer.came == answer.true
        self.answers["asked"] += 1
        self.answers["right"] += is_right
        if answer.loudness == 0 or not (is_right or answer.came is None):
            return
        how = "refused" if answer.came is None else {1: "right, with a note", 2: "right, with exit code 3"}[answer.loudness]
        how = f"{worst}: {how}"
        self.answers[how] += 1
        for line in dict.fromkeys(map(kind_of, answer.said.splitlines())):
            self.said[how, line] += 1
            self.examples.setdefault((how, line), f"{where}: {answer.question[-90:]}: {answer.said[:1500]!r}")


def ask(seed: int, place: Path, kind: str, count: Count) -> None:
    """Damage a folder twice, and ask; again and again."""
    rng = random.Random(seed)
    folder = folders.make(kind, place, rng)
    truths = read_folder(folder.path, folder.keys)
    kept = place / "kept"
    shutil.copytree(folder.path, kept)
    for number in range(PAIRS):
        made = [one for one in (_befall(folder, rng) for _ in range(2)) if one is not None]
        if made and not any(one.kind == "miswritten" or one.what.startswith("replace") for one in made):
            worst = max((one.kind for one in made), key=KINDS.index)
            where = f"seed {seed}/{number} {folder.kind} {' + '.join(one.what for one in made)}"
            for question in QUESTIONS:
                for answer in question(Asked(folder, truths, rng)):
                    count.add(answer, worst, where)
        put_back(kept, folder.path)


def _befall(folder: Folder, rng: random.Random) -> Damage | None:
    try:
        return damage.any_damage(folder, rng)
    except (ValueError, LookupError, OSError, TidelogError):
        return None  # What it looks for is gone already.


def main(first: int, last: int) -> None:
    logging.lastResort = None
    count = Count()
    kinds = folders.any_kind(random.Random(first))
    for seed in range(first, last):
        with tempfile.TemporaryDirectory(prefix="needless-") as place:
            ask(seed, Path(place), next(kinds), count)
    print(dict(count.answers))
    for (how, line), number in count.said.most_common(60):
        print(f"{number:5} {how}: {line}\n        {count.examples[how, line]}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
