"""Real keys and tokens appear nowhere in the repository: tests make theirs, which live as long as the test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.certificates import Authority
from tests.identity_provider import IdentityProvider

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("src", "tests", "docs", "bench", "demo", "studies")
NOT_OURS = {"__pycache__", "jars", "node_modules", "out", "build"}
"""Folders that git ignores: compiled files, what Maven has fetched, what benchmarks leave."""

_LINE_END = rb"(?:\r?\n|\\n|\\r\\n|[ \t\"'])+"
SECRETS = {
    "a private key in PEM": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    + _LINE_END
    + rb"(?:[A-Z][\w-]+: .*"
    + _LINE_END
    + rb")*[A-Za-z0-9+/=]{32}",
    "a private key of OpenSSH's": rb"b3BlbnNzaC1rZX" rb"ktdjEA",
    "a signed token": rb"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}",
    "a private key as JSON": rb"\"(?:d|k)\"\s*:\s*\"[\w-]{40,}\"",
}
STORES = {
    "a Java key store": rb"\A\xfe\xed\xfe\xed\x00\x00\x00[\x01\x02]",
    "a store of PKCS12, or a key in DER": rb"\A\x30\x82..\x02\x01[\x00\x03]\x30",
}
"""By a file's first bytes."""

_PATTERNS = {name: re.compile(pattern, re.DOTALL) for name, pattern in {**SECRETS, **STORES}.items()}


def found_in(data: bytes) -> list[str]:
    return [name for name, pattern in _PATTERNS.items() if pattern.search(data)]


def files() -> Iterator[Path]:
    for path in ROOT.iterdir():
        if path.is_file():
            yield path
        elif path.name in PLACES:
            for one in path.rglob("*"):
                if one.is_file() and not NOT_OURS & set(one.relative_to(ROOT).parts):
                    yield one


def test_no_file_has_a_key_or_a_token() -> None:
    looked = list(files())
    assert len(looked) > 1_000, "the files were found"
    found = {path.relative_to(ROOT).as_posix(): names for path in looked if (names := found_in(path.read_bytes()))}
    assert not found


def test_each_kind_is_found(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("elliptic")
    authority.sign("rsa", rsa=True)
    private = [*tmp_path.glob("*.key"), *tmp_path.glob("*.pem"), authority.locked("rsa"), authority.pkcs12("rsa")]
    assert len(private) == 7
    assert [path.name for path in private if not found_in(path.read_bytes())] == []
    one_line = (tmp_path / "rsa.key").read_text().replace("\n", "\\n")
    assert found_in(f'KEY = "{one_line}"'.encode())
    assert found_in(IdentityProvider(tmp_path).token("alice").encode())
    public = [*tmp_path.glob("*.crt"), *tmp_path.glob("*.csr"), tmp_path / "jwks.json"]
    assert [path.name for path in public if found_in(path.read_bytes())] == []
