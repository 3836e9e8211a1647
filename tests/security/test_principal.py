"""Names of certificates, as Java writes them, and what Kafka's rules make of them."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import AuthenticationError, InvalidArgumentError
from tidelog.security.distinguished_name import subject_name
from tidelog.security.principal import ANONYMOUS, PrincipalRules

SUBJECTS = {
    "/C=DE/ST=Bavaria/L=Munich/O=A, B GmbH/CN=x": "CN=x,O=A\\, B GmbH,L=Munich,ST=Bavaria,C=DE",
    "/CN=  two  ": "CN=\\ \\ two\\ \\ ",
    "/CN= ": "CN=\\ ",
    "/CN=#a#b==": "CN=\\#a\\#b\\=\\=",
    "/CN=Zoë Ünï/O=日本": "O=日本,CN=Zoë Ünï",
    "/DC=com/DC=example/UID=joe/CN=joe": "CN=joe,UID=joe,DC=example,DC=com",
    "/CN=x/emailAddress=a@b.example": "1.2.840.113549.1.9.1=#160b6140622e6578616d706c65,CN=x",
    "/CN=x/serialNumber=12345/GN=Ann/SN=Lee": "2.5.4.4=#0c034c6565,2.5.4.42=#0c03416e6e,2.5.4.5=#13053132333435,CN=x",
    "/O=Tide/CN=b+UID=7+OU=z": "CN=b+OU=z+UID=7,O=Tide",
}
"""What openssl is asked for, and what `X500Principal.getName` of Java 17 says of it."""


def made(folder: Path, subject: str) -> bytes:
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", folder / "key"]
    asked = ["-subj", subject, "-utf8", "-multivalue-rdn", "-days", "2", "-out", folder / "crt"]
    subprocess.run(["openssl", "req", "-x509", *new, *asked], check=True, capture_output=True)
    return ssl.PEM_cert_to_DER_cert((folder / "crt").read_text())


def test_names_are_javas(tmp_path: Path) -> None:
    assert {subject: subject_name(made(tmp_path, subject)) for subject in SUBJECTS} == SUBJECTS


@pytest.mark.parametrize(
    ("tag", "content", "expected"),
    [
        (0x0C, "\u00e9".encode(), "\u00e9"),
        (0x12, b"12", "#12023132"),
        (0x13, b"a,b", r"a\,b"),
        (0x14, b"\xc3\xa9\xe9", "\u00e9\ufffd"),
        (0x1C, b"\0\0\0a", "#1c0400000061"),
        (0x1E, b"\0a\0b", r"\00a\00b"),
        (0x02, b"\5", "#020105"),
    ],
)
def test_kinds_of_strings_are_javas(tag: int, content: bytes, expected: str) -> None:
    """What Java 17 says of each."""

    def der(tag: int, *parts: bytes) -> bytes:
        content = b"".join(parts)
        return bytes([tag, len(content)]) + content

    empty = der(0x30)
    name = der(0x30, der(0x31, der(0x30, der(6, b"\x55\4\3"), der(tag, content))))
    assert subject_name(der(0x30, der(0x30, der(2, b"\1"), empty, empty, empty, name))) == f"CN={expected}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return made(tmp_path_factory.mktemp("tls"), "/O=Tides/CN=one")


@given(st.data())
def test_of_any_bytes(certificate: bytes, data: st.DataObject) -> None:
    changed = bytearray(certificate)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    for one in (bytes(changed), bytes(changed[: data.draw(st.integers(0, len(changed)))]), data.draw(st.binary(max_size=40))):
        with contextlib.suppress(InvalidArgumentError):
            subject_name(one)


def test_rules() -> None:
    """The examples of Kafka's documents, and its tests of names."""
    rules = PrincipalRules(
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
    )
    assert rules.principal("CN=serviceuser,OU=ServiceUsers,O=Unknown,C=Unknown").name == "serviceuser"
    assert rules.principal("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown").name == "adminuser@admin"
    assert str(PrincipalRules("").principal("CN=a")) == "User:CN=a"
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    for wrong in ("RULE:a", "RULE:(/x/", "RULE:a/b/X"):
        with pytest.raises(InvalidArgumentError):
            PrincipalRules(wrong)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("RULE:CN=(.*)/$1/U", "ANN"),
        ("RULE:.*/all/", "allall"),  # As Java's replaceAll does it.
        ("RULE:CN=(.*)/$2-$1/", "$2-ann"),
        ("RULE:CN=(.*)/$12/", "ann2"),
        ("RULE:CN=(x)?(.*)/<$1$2>/", "<ann>"),
        (r"RULE:CN=(.*)/\$1\//", "$1/"),
    ],
)
def test_replacements(rule: str, expected: str) -> None:
    assert PrincipalRules(rule).principal("CN=ann").name == expected


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (r"RULE:CN=\w+/x/", "CN=\u00e9"),
        (r"RULE:CN=\d+/x/", "CN=\u0664"),
        (r"RULE:(?i)CN=kafka/x/", "CN=\u212aafka"),
        ("RULE:CN=a.b/x/", "CN=a\rb"),
        (r"RULE:CN=[.]\.(.*)/x/", "CN=..\u2028"),
    ],
)
def test_patterns_mean_what_they_mean_in_java(rule: str, name: str) -> None:
    """None of these matches there: a stranger's letters do not become one's own."""
    with pytest.raises(AuthenticationError, match="no rule"):
        PrincipalRules(rule).principal(name)


def test_a_dot_within_brackets_is_a_dot() -> None:
    assert PrincipalRules(r"RULE:CN=[.\]]\.(.*)/$1/").principal("CN=..a\u00e9").name == "a\u00e9"
    assert PrincipalRules("RULE:(?s)CN=(.*)/$1/").principal("CN=a\r").name == "a\r"


@pytest.mark.parametrize("pattern", ["[a-z&&[^x]]*", r"\p{Alpha}+", "[[a]b]", r"\h", "(?<n>.*)"])
def test_what_only_java_understands_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgumentError, match="invalid pattern"):
        PrincipalRules(f"RULE:CN={pattern}/x/")


def test_a_name_that_no_rule_matches() -> None:
    with pytest.raises(AuthenticationError, match="no rule"):
        PrincipalRules("RULE:CN=(.*),O=Tides/$1/").principal("CN=ann")
