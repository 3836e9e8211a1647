"""A folder that is held while files are written through it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tidelog.formats import names
from tidelog.storage.partition.held_directory import HeldDirectory


def test_it_stays_open_until_a_program_has_ended(tmp_path: Path) -> None:
    """A program may end while its broker writes: what is called at its end must not close the folder under that."""
    program = f"""
import atexit
from pathlib import Path
from tidelog.storage.partition.held_directory import HeldDirectory
atexit.register(lambda: held.replace_file("late", b"written"))
held = HeldDirectory(Path({str(tmp_path)!r}))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "late").read_bytes() == b"written"


def test_what_is_written_stays_with_the_folder(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    with HeldDirectory(tmp_path / "t-0") as held:
        (tmp_path / "t-0").rename(tmp_path / "gone")
        (tmp_path / "t-0").mkdir()
        held.replace_file(names.LEADER_EPOCH_CHECKPOINT, b"0\n0\n")
    assert [path.name for path in (tmp_path / "gone").iterdir()] == [names.LEADER_EPOCH_CHECKPOINT]
    assert not list((tmp_path / "t-0").iterdir())
