"""A listener with TLS, as `openssl s_client` sees it: which versions, ciphers and old habits it takes. RSA keys have the most."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

import tidelog
from tests.certificates import Authority
from tests.patience import PATIENCE_S
from tidelog.security.tls_settings import SANE_CIPHERS

EVERYTHING = "ALL:COMPLEMENTOFALL:@SECLEVEL=0"


@pytest.fixture(scope="module", params=["ec", "rsa"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("tls")
    key = Authority(folder / "tls").sign("broker", hosts=("127.0.0.1",), rsa=request.param == "rsa")
    given = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)}
    with tidelog.Broker(folder / "data", **given) as broker:
        yield broker._listeners[0].port


def shake(port: int, *options: str, typed: str = "") -> tuple[bool, str]:
    """Shake hands; return whether that came to an end, and all that s_client says."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *options]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=PATIENCE_S)
    said = done.stdout + done.stderr
    return "Cipher is (NONE)" not in said and "Cipher is" in said, said


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_new_versions(port: int, version: str) -> None:
    is_done, said = shake(port, version)
    assert is_done
    assert "Compression: NONE" in said
    assert "Secure Renegotiation IS NOT supported" not in said or version == "-tls1_3"
    assert any(word in said for word in ("GCM", "CHACHA20"))
    assert "Server Temp Key: X25519" in said or "Server Temp Key: ECDH" in said


def test_newest_first(port: int) -> None:
    assert "TLSv1.3" in shake(port)[1]


@pytest.mark.parametrize(
    "options",
    [
        ["-tls1", "-cipher", EVERYTHING],
        ["-tls1_1", "-cipher", EVERYTHING],
        *(
            ["-tls1_2", "-cipher", f"{weak}:@SECLEVEL=0"]
            for weak in ("eNULL", "aNULL", "RC4", "3DES", "kRSA", "DHE", "PSK", "SRP", "ECDHE+AES:!AESGCM", "CAMELLIA", "ARIA")
        ),
        # All that OpenSSL has, but what is meant to be spoken.
        ["-tls1_2", "-cipher", f"ALL:COMPLEMENTOFALL:{':'.join(f'!{one}' for one in SANE_CIPHERS.split(':'))}:@SECLEVEL=0"],
    ],
    ids=" ".join,
)
def test_nothing_old_or_weak(port: int, options: list[str]) -> None:
    is_done, said = shake(port, *options)
    assert not is_done, said


def test_no_renegotiation(port: int) -> None:
    """`R` asks for a new handshake within the connection (TLS 1.2): an alert, or the end."""
    said = shake(port, "-tls1_2", typed="R\n")[1].lower()
    assert "no renegotiation" in said or "unexpected" in said or "error" in said, said


def test_no_old_habits(port: int) -> None:
    """Neither compression, nor renegotiation of before RFC 5746, nor a version that a client was talked down to."""
    is_done, said = shake(port, "-tls1_2", "-comp")
    assert is_done
    assert "Compression: NONE" in said
    assert not shake(port, "-fallback_scsv", "-no_tls1_3")[0], "a client that falls back is refused (RFC 7507)"
