"""Parses `ssl.*`: trusted certificates, our own certificate, versions and ciphers, under Kafka's names or librdkafka's.

| Kafka | librdkafka | here |
|---|---|---|
| `ssl.truststore.location`, PEM | `ssl.ca.location` | `trust_file`; clients without one trust the system's certificates |
| `ssl.truststore.certificates` | `ssl.ca.pem` | `trust_pem` |
| `ssl.keystore.location`, PEM: key and chain | `ssl.certificate.location`, `ssl.key.location` | `chain_file`, `key_file` |
| `ssl.keystore.certificate.chain`, `ssl.keystore.key` | `ssl.certificate.pem`, `ssl.key.pem` | `chain_pem`, `key_pem` |
| `ssl.key.password` | the same | `key_password` |
| `ssl.endpoint.identification.algorithm`: `https`, or nothing | `https` or `none` | `checks_host` |
| | `enable.ssl.certificate.verification` | `verifies` |
| `ssl.enabled.protocols`: TLSv1.3, TLSv1.2 | | `protocols` |
| `ssl.cipher.suites`, Java's or OpenSSL's names | the same | `ciphers` of TLS 1.2; all ciphers of 1.3 are allowed |

JKS and PKCS12 stores are rejected; the error shows the command that converts them to PEM. Files are not opened here, but when
they are needed, because settings are sent to Spark's executors, which have their own files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import InvalidArgumentError
from tidelog.security.secret import Secret

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")

SANE_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The default for TLS 1.2: only ciphers with forward secrecy and authenticated encryption."""

TLS_PROPERTIES: Final = frozenset(
    {
        "enable.ssl.certificate.verification",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

JAVAS_OWN: Final = frozenset(
    {"ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation"}
)
"""Properties that select Java's providers. They are ignored, which does not affect security."""

_JAVAS_CIPHER = re.compile(r"TLS_(ECDHE)_(RSA|ECDSA)_WITH_(AES_(?:128|256)_GCM_SHA(?:256|384)|CHACHA20_POLY1305_SHA256)")
_CIPHER_13 = re.compile(r"TLS_(?:AES_(?:128|256)_GCM_SHA(?:256|384)|CHACHA20_POLY1305_SHA256)")
_OPENSSLS_CIPHER = re.compile(r"ECDHE-(?:RSA|ECDSA)-(?:AES(?:128|256)-GCM-SHA(?:256|384)|CHACHA20-POLY1305)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The settings of a TLS context. It can be pickled, and never prints keys."""

    protocols: tuple[str, ...] = PROTOCOLS
    ciphers: str = SANE_CIPHERS
    """OpenSSL's names of the cipher suites for TLS 1.2; empty means TLS 1.3 only."""
    trust_file: str | None = None
    trust_pem: str | None = field(default=None, repr=False)
    chain_file: str | None = None
    key_file: str | None = None
    """The key's file; None if the key is in the file of the certificate chain."""
    chain_pem: str | None = field(default=None, repr=False)
    key_pem: Secret | None = None
    key_password: Secret | None = None
    checks_host: bool = True
    verifies: bool = True

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the context is built from."""
        return tuple(one for one in (self.trust_file, self.chain_file, self.key_file) if one)

    @property
    def has_key(self) -> bool:
        """Whether we have a certificate."""
        return self.chain_file is not None or self.chain_pem is not None


def tls_settings(given: Mapping[str, str]) -> TlsSettings:
    """Return the settings from properties, whose names have no listener prefix. Raises InvalidArgumentError, which names the
    property.
    """
    trust_file = _one_of(given, "ssl.truststore.location", "ssl.ca.location")
    chain_file = _one_of(given, "ssl.keystore.location", "ssl.certificate.location")
    trust_pem = _pem(_one_of(given, "ssl.truststore.certificates", "ssl.ca.pem"), "ssl.truststore.certificates")
    chain_pem = _pem(_one_of(given, "ssl.keystore.certificate.chain", "ssl.certificate.pem"), "ssl.keystore.certificate.chain")
    key = _pem(_one_of(given, "ssl.keystore.key", "ssl.key.pem"), "ssl.keystore.key")
    _check_type(given, "ssl.truststore.type", trust_file)
    _check_type(given, "ssl.keystore.type", chain_file)
    for file, text, names in (
        (trust_file, trust_pem, "ssl.truststore.location and ssl.truststore.certificates"),
        (chain_file, chain_pem, "ssl.keystore.location and ssl.keystore.certificate.chain"),
    ):
        if file and text:
            raise InvalidArgumentError(f"{names} are both given: give only one of them")
    if (chain_pem is None) != (key is None):
        raise InvalidArgumentError("only one of ssl.keystore.certificate.chain and ssl.keystore.key is given: give both")
    protocols = _protocols(given)
    ciphers, is_13_only = _ciphers(given.get("ssl.cipher.suites", ""))
    if is_13_only:
        protocols = tuple(one for one in protocols if one == "TLSv1.3") or _no_protocol("ssl.cipher.suites")
    password = _text(given, "ssl.key.password")
    return TlsSettings(
        protocols=protocols,
        ciphers=ciphers,
        trust_file=trust_file,
        trust_pem=trust_pem,
        chain_file=chain_file,
        key_file=_text(given, "ssl.key.location"),
        chain_pem=chain_pem,
        key_pem=None if key is None else Secret(key),
        key_password=None if password is None else Secret(password),
        checks_host=_checks_host(given.get("ssl.endpoint.identification.algorithm", "https")),
        verifies=_boolean(given, "enable.ssl.certificate.verification", True),
    )


def _text(given: Mapping[str, str], name: str) -> str | None:
    return given.get(name, "").strip() or None


def _one_of(given: Mapping[str, str], name: str, alias: str) -> str | None:
    return _text(given, name) or _text(given, alias)


def _pem(text: str | None, name: str) -> str | None:
    """Return PEM text. Restores its line breaks, which are missing if the property was written on one line."""
    if text is None:
        return None
    if "-----BEGIN " not in text:
        raise InvalidArgumentError(f"{name} is not PEM text", expected="-----BEGIN …-----")
    if "\n" not in text:
        text = re.sub(r"(-----BEGIN [A-Z0-9 ]+-----)\s*(.*?)\s*(-----END [A-Z0-9 ]+-----)\s*", _on_lines, text)
    return text


def _on_lines(match: re.Match[str]) -> str:
    body = re.sub(r"\s+", "", match[2])
    return "\n".join([match[1], *(body[at : at + 64] for at in range(0, len(body), 64)), match[3], ""])


def _check_type(given: Mapping[str, str], name: str, file: str | None) -> None:
    kind = given.get(name, "").strip().upper()
    if kind not in ("", "PEM"):
        raise not_pem(name, kind, file or "FILE")


def not_pem(name: str, kind: str, file: str) -> InvalidArgumentError:
    """Return the error for a store that is not PEM, with the command that converts it."""
    made = f"{file}.pem"
    if "trust" in name:
        command = f"keytool -list -rfc -keystore {file} > {made}"
    elif kind == "PKCS12":
        command = f"openssl pkcs12 -in {file} -out {made}"
    else:
        command = (
            f"keytool -importkeystore -srckeystore {file} -destkeystore {file}.p12 -deststoretype PKCS12 && "
            f"openssl pkcs12 -in {file}.p12 -out {made}"
        )
    side = "truststore" if "trust" in name else "keystore"
    phrase = "" if "trust" in name else ", and as ssl.key.password the pass phrase that openssl asks for"
    return InvalidArgumentError(
        f"only PEM stores are supported: run {command}; then set ssl.{side}.type=PEM, ssl.{side}.location={made}{phrase}",
        found=f"{kind} ({name})",
    )


def _protocols(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("ssl.enabled.protocols", "").strip()
    words = {word.strip() for word in text.split(",") if word.strip()} if text else set(PROTOCOLS)
    return tuple(one for one in PROTOCOLS if one in words) or _no_protocol("ssl.enabled.protocols")


def _no_protocol(name: str) -> tuple[str, ...]:
    raise InvalidArgumentError(
        f"{name} allows no TLS version", expected="TLSv1.3, TLSv1.2 or both; older versions are not supported"
    )


def _ciphers(text: str) -> tuple[str, bool]:
    words = [word.strip() for word in re.split(r"[,:]", text) if word.strip()]
    if not words:
        return SANE_CIPHERS, False
    found = []
    for word in words:
        java = _JAVAS_CIPHER.fullmatch(word)
        if java is not None:
            rest = java[3].replace("AES_128_", "AES128-").replace("AES_256_", "AES256-").replace("_", "-")
            found.append(
                f"{java[1]}-{java[2]}-{rest}".removesuffix("-SHA256") if "CHACHA" in rest else f"{java[1]}-{java[2]}-{rest}"
            )
        elif _OPENSSLS_CIPHER.fullmatch(word):
            found.append(word)
        elif not _CIPHER_13.fullmatch(word):
            raise InvalidArgumentError(
                "ssl.cipher.suites names an unsupported cipher suite",
                found=word,
                expected="ECDHE with AES-GCM or CHACHA20, like TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, or one of TLS 1.3",
            )
    return ":".join(found), not found


def _checks_host(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("https", "", "none"):
        raise InvalidArgumentError(
            "ssl.endpoint.identification.algorithm is invalid", found=repr(text), expected="https, or nothing"
        )
    return word == "https"


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    word = given.get(name, "").strip().lower()
    if word not in ("", "true", "false"):
        raise InvalidArgumentError(name, found=repr(word), expected="true or false")
    return default if not word else word == "true"
