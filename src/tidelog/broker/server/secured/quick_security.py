"""TLS and users for a test broker: `tidelog.Broker(tls=True, users={"alice": "secret"})`.

| arguments | the listener is | clients need |
|---|---|---|
| `tls=True` | SSL | the certificate |
| `users` | SASL_PLAINTEXT | a name and a password |
| both | SASL_SSL | both |

The program `openssl` makes a key and a self-signed certificate in a temporary folder, for localhost and 127.0.0.1, valid for 30
days. Both files are removed when the broker closes. Users can authenticate by PLAIN and SCRAM. SCRAM credentials are stored in
the folder's metadata, like those that Kafka's tools create.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidelog.broker.node import Node
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.metadata.records import UserScramCredentialRecord
from tidelog.security.client_config import PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL
from tidelog.security.plain import PLAIN
from tidelog.security.scram import DEFAULT_ITERATIONS, SCRAM_IDS, credential_of, new_credential, salted_password
from tidelog.security.secret import Secret

CONFLUENT, KAFKA_PYTHON, AIOKAFKA, JAVA, TIDELOG = CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "java", "tidelog")
"""The clients whose settings `client_config` returns."""

DEFAULT_MECHANISM: Final = "SCRAM-SHA-256"

_DAYS: Final = 30

_OPENSSL: Final = """
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = localhost
[extensions]
subjectAltName = DNS:localhost,IP:127.0.0.1,IP:::1
basicConstraints = critical,CA:TRUE
keyUsage = critical,digitalSignature,keyCertSign
subjectKeyIdentifier = hash
"""


class QuickSecurity:
    """The security of a broker's only listener. Raises InvalidArgumentError if no certificate can be made."""

    def __init__(self, *, tls: bool, users: Mapping[str, str] | None, is_read_only: bool) -> None:
        self._users = dict(users or {})
        self._mechanisms = (PLAIN,) if is_read_only else (PLAIN, *SCRAM_IDS)
        has_sasl = users is not None
        self.protocol = (SASL_SSL if has_sasl else SSL) if tls else (SASL_PLAINTEXT if has_sasl else PLAINTEXT)
        if has_sasl and not self._users:
            raise InvalidArgumentError("users must not be empty", found="none", expected='{"name": "password", …}')
        for name, password in self._users.items():
            if not name or not password:
                raise InvalidArgumentError("a user needs a name and a password", found=repr(name))
        self._keys: Path | None = None
        if tls:
            self._keys = Path(tempfile.mkdtemp(prefix="tidelog-keys-"))
            weakref.finalize(self, _remove, self._keys, os.getpid())
            _make_keys(self._keys)

    @property
    def ca(self) -> Path | None:
        """The certificate that clients must trust; None without TLS."""
        return None if self._keys is None else self._keys / "ca.pem"

    def properties(self, port: int) -> dict[str, str]:
        """Return the broker properties for a secured listener on this port."""
        found = {
            "listeners": f"{self.protocol}://127.0.0.1:{port}",
            "listener.security.protocol.map": f"{self.protocol}:{self.protocol}",
        }
        if self._keys is not None:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._keys / "broker.pem")}
        if self._users:
            options = " ".join(f"{_quoted(f'user_{name}')}={_quoted(password)}" for name, password in self._users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            found |= {
                "sasl.enabled.mechanisms": ",".join(self._mechanisms),
                f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": f"{module} required {options};",
            }
        return found

    def make_users(self, node: Node) -> None:
        """Store the users' SCRAM credentials in the metadata if they are missing or differ. Raises StorageError if that fails."""
        records = []
        for mechanism in SCRAM_IDS.keys() & self._mechanisms:
            number = SCRAM_IDS[mechanism]
            for name, password in self._users.items():
                known = node.image.scram.get((name, number))
                secret = Secret(password)
                if known is not None:
                    salted = salted_password(mechanism, secret, known.salt, known.iterations)
                    if credential_of(mechanism, salted, known.salt, known.iterations).stored_key == known.stored_key:
                        continue
                made = new_credential(mechanism, secret, DEFAULT_ITERATIONS)
                records.append(
                    UserScramCredentialRecord(name, number, made.salt, made.stored_key, made.server_key, made.iterations)
                )
        node.manager.metadata.commit(records)

    def client_config(self, client: str, bootstrap_servers: str, user: str | None, mechanism: str | None) -> dict[str, Any]:
        """Return a client's settings, under the client's names for them. Raises InvalidArgumentError for an unknown client or
        user.
        """
        if client not in CLIENTS:
            raise InvalidArgumentError("no settings are known for this client library", found=client, expected=", ".join(CLIENTS))
        mechanism = mechanism or (DEFAULT_MECHANISM if DEFAULT_MECHANISM in self._mechanisms else PLAIN)
        name = user or next(iter(self._users), None)
        if (user is not None or self._users) and name not in self._users:
            raise InvalidArgumentError(
                "this broker has no such user", found=repr(name), expected=", ".join(self._users) or "none"
            )
        if self._users and mechanism not in self._mechanisms:
            raise InvalidArgumentError("the SASL mechanism is not enabled", found=mechanism, expected=", ".join(self._mechanisms))
        ca = self.ca
        password = None if name is None else self._users[name]
        if client in (KAFKA_PYTHON, AIOKAFKA):
            python: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "security_protocol": self.protocol}
            if ca is not None and client == KAFKA_PYTHON:
                python["ssl_cafile"] = str(ca)
            elif ca is not None:
                python["ssl_context"] = ssl.create_default_context(cafile=ca)
            if name is not None:
                python |= {"sasl_mechanism": mechanism, "sasl_plain_username": name, "sasl_plain_password": password}
            return python
        found = {"security.protocol": self.protocol}
        if client != TIDELOG:
            found["bootstrap.servers"] = bootstrap_servers
        if client != JAVA:
            if ca is not None:
                found["ssl.ca.location"] = str(ca)
            if name is not None:
                found |= {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password or ""}
            return found
        if ca is not None:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}
        if name is not None:
            kind = "plain.Plain" if mechanism == PLAIN else "scram.Scram"
            module = f"org.apache.kafka.common.security.{kind}LoginModule"
            options = f"username={_quoted(name)} password={_quoted(password or '')}"
            found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {options};"}
        return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _make_keys(folder: Path) -> None:
    (folder / "openssl.cnf").write_text(_OPENSSL)
    key, certificate, both = folder / "broker.key", folder / "ca.pem", folder / "broker.pem"
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(_DAYS))
    files = ("-config", folder / "openssl.cnf", "-keyout", key, "-out", certificate)
    try:
        subprocess.run(["openssl", "req", "-x509", *kind, *files], check=True, capture_output=True)
        both.touch(mode=0o600)
        both.write_text(key.read_text() + certificate.read_text())
        key.unlink()
    except FileNotFoundError:
        raise InvalidArgumentError("tls=True needs the program openssl", found="none on the PATH") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise InvalidArgumentError("openssl failed to make a certificate", found=said[-1] if said else "no reason") from None
    except OSError as error:
        raise StorageError(f"cannot make a certificate: {error.strerror}", path=folder) from error


def _remove(folder: Path, process: int) -> None:
    """Remove the keys, except in a forked process."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
