"""The wheel and the source distribution: what they hold, and that they run in an environment with nothing but what they ask for.

Nothing is downloaded. An empty environment gets links to those packages of ours that the wheel's own metadata asks for, and pip
installs the wheel without an index: it refuses where one is missing. The compiler
does not optimize here, which takes the most time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import HeaderParser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.patience import PATIENCE_S
from tests.reader.golden import GOLDEN

ROOT = Path(__file__).resolve().parents[2]
DATA = GOLDEN / "kafka-3.9.1" / "log"
BUILT_FROM = ("src", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "NOTICE")
MOST_BYTES = {"wheel": 16_000_000, "sdist": 2_500_000}

pytestmark = pytest.mark.interop
compiles = pytest.mark.thorough("compiles all kernels, as `make install` does; the interpreted wheel has the same other files")


def run(*command: object, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")} | (env or {})
    done = subprocess.run([str(one) for one in command], env=given, cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    clone = folder / "clone"
    clone.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
        else:
            shutil.copy(ROOT / name, clone)
    (clone / "tests").mkdir()
    (clone / "tests" / "test_nothing.py").touch()
    run(sys.executable, "-c", f"from setuptools.build_meta import build_sdist\nbuild_sdist({str(folder)!r})", cwd=clone)
    return next(folder.glob("*.tar.gz"))


COMPILERS = {"compiled": 'exec cc "$@" -O0', "interpreted": "echo no compiler here >&2; exit 1"}
"""A line of shell each."""


def build(sdist: Path, kind: str) -> Path:
    """Build a wheel from the source distribution, with or without a compiler."""
    folder = sdist.parent / kind
    folder.mkdir()
    script = folder / "cc"
    script.write_text(f"#!/bin/sh\n{COMPILERS[kind]}\n")
    script.chmod(0o755)
    options = ("--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, sdist, env={"CC": str(script)})
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def interpreted_wheel(sdist: Path) -> Path:
    return build(sdist, "interpreted")


@pytest.fixture(scope="module")
def compiled_wheel(sdist: Path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    return build(sdist, "compiled")


def asked_for(requirements: list[str] | None, known: dict[str, Distribution]) -> dict[str, Distribution]:
    """What these requirements bring in, by name; extras are not asked for."""
    for requirement in map(Requirement, requirements or []):
        if (requirement.marker is None or requirement.marker.evaluate({"extra": ""})) and requirement.name not in known:
            try:
                known[requirement.name] = distribution(requirement.name)
            except PackageNotFoundError:
                pytest.skip(f"{requirement.name} is not installed here")
            asked_for(known[requirement.name].requires, known)
    return known


def installed(wheel: Path) -> Path:
    """Install a wheel into a new environment, and return the environment's folder of programs."""
    folder = wheel.parent / "environment"
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        headers = HeaderParser().parsestr(archive.read(metadata).decode())
    for one in asked_for(headers.get_all("Requires-Dist"), {}).values():
        assert one.files is not None
        for top in {file.parts[0] for file in one.files} - {"..", "__pycache__"}:
            (site / top).symlink_to(Path(str(one.locate_file(top))))
    options = ("--quiet", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", *options, wheel)
    return folder / "bin"


def test_what_the_source_distribution_holds(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sdist.stat().st_size < MOST_BYTES["sdist"]
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py")}
    assert modules <= names and "src/tidelog/records/kernel/rows/record_scan.py" in modules
    sources = {str(path.relative_to(ROOT)) for kind in ("h", "pxd", "pyi", "java") for path in (ROOT / "src").rglob(f"*.{kind}")}
    assert sources and sources <= names and {"LICENSE", "NOTICE", "README.md", "pyproject.toml", "setup.py"} <= names
    assert [name for name in names if re.search(r"\.(c|so)$|^tests|^studies|^bench|^demo", name)] == []


def contents(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_what_the_interpreted_wheel_holds(interpreted_wheel: Path) -> None:
    names = set(contents(interpreted_wheel))
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    rest = {name for name in names - modules if ".dist-info/" not in name}
    kinds = {Path(name).suffix or Path(name).name for name in rest}
    assert kinds == {".pyi", ".java", ".jar", ".typed", ".html", ".css", ".js", ".svg", "LICENSE"}, "no C, no headers, no studies"
    assert {name.partition("/")[0] for name in rest | modules} == {"tidelog", "pyspark_tidelog"}
    assert {"LICENSE", "NOTICE"} <= {Path(name).name for name in names}


@compiles
def test_what_the_compiled_wheel_holds(compiled_wheel: Path, interpreted_wheel: Path) -> None:
    assert compiled_wheel.stat().st_size < MOST_BYTES["wheel"]
    interpreted, compiled = (
        {name for name in contents(wheel) if ".dist-info/" not in name} for wheel in (interpreted_wheel, compiled_wheel)
    )
    assert compiled >= interpreted and {name.rpartition(".")[2] for name in compiled - interpreted} == {"so"}


@pytest.fixture(scope="module")
def interpreted(interpreted_wheel: Path) -> Path:
    return installed(interpreted_wheel)


@pytest.fixture(scope="module")
def compiled(compiled_wheel: Path) -> Path:
    return installed(compiled_wheel)


@pytest.mark.parametrize("kernel", [pytest.param("compiled", marks=compiles), "interpreted"])
def test_it_runs_with_what_it_asks_for(kernel: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = request.getfixturevalue(kernel)
    version, which = run(folder / "tidelog", "--version").splitlines()
    assert version == f"tidelog {distribution('tidelog').version}"
    assert which.startswith(f"kernel: {kernel}") and ("no C compiler" in which) == (kernel == "interpreted")
    found = run(folder / "tidelog", "cat", DATA, "two-partitions", "--format", "jsonl", cwd=tmp_path)
    assert found == run(sys.executable, "-m", "tidelog", "cat", DATA, "two-partitions", "--format", "jsonl", cwd=tmp_path)
    assert found.count("\n") > 10
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"at": 1763888400000, "value": "one"}\n{"at": 1763888460000, "value": "two"}\n')
    for command in (
        ("verify", DATA),
        ("stat", DATA),
        ("find", DATA, "two-partitions", "--at", "2020-01-01"),
        ("index", "verify", DATA),
        ("retention", DATA),
        ("groups", "list", DATA),
        ("dump", next(DATA.glob("two-partitions-0/*.log"))),
        ("import", tmp_path / "imported", "rows", rows, "--timestamp", "at"),
        ("cat", tmp_path / "imported", "rows"),
    ):
        assert run(folder / "tidelog", *command, cwd=tmp_path)
    code = (
        "import sys, tidelog\n"
        f"assert tidelog.scan({str(DATA)!r}, 'two-partitions').read_all().num_rows == {found.count(chr(10))}\n"
        "with tidelog.Broker() as broker:\n"
        "    broker.create_topic('t')\n"
        "    broker.produce('t', b'value')\n"
        "    print(len(list(broker.records('t'))), tidelog.__file__)\n"
    )
    count, place = run(folder / "python", "-c", code, cwd=tmp_path).split()
    assert count == "1" and Path(place).is_relative_to(folder.parent)


@pytest.mark.parametrize(
    ("code", "package"),
    [
        ("from tidelog.spark import session; session()", "PySpark"),
        ("import pyspark_tidelog", "PySpark"),
        ("import tidelog.sources.lookups", "numpy"),
        ("import sys; from tidelog.cli import main; sys.argv[1:] = ['job', 'verify', sys.argv[1]]; main()", "PySpark"),
    ],
)
def test_without_an_extra_the_error_names_it(interpreted: Path, code: str, package: str, tmp_path: Path) -> None:
    command = [str(interpreted / "python"), "-c", code, str(DATA)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path)
    assert done.returncode == 1
    # On a slow machine a note follows: the kernel is interpreted here.
    *_, error = [line for line in done.stderr.splitlines() if not line.startswith("note: the kernel")]
    assert f"{package} is not installed: pip install 'tidelog[spark]'" in error
