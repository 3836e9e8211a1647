"""Keys and certificates for tests, made by openssl: an authority, and the certificates that it signs. Valid only for a test's
duration.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

PASSWORD = "of-tests"


class Authority:
    """A certificate authority in a folder. Files: `NAME.pem` (key and chain), `NAME.key`, `NAME.crt`, `ca.crt`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = folder / "ca.crt"
        ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        self._run("req", "-x509", *ec, "-days", "2", "-subj", f"/CN={name}", "-keyout", folder / "ca.key", "-out", self.ca)

    def sign(
        self, name: str, *, hosts: tuple[str, ...] = (), subject: str | None = None, days: int = 2, rsa: bool = False
    ) -> Path:
        """Return the PEM file with a new key and its certificate, for hosts (names, or addresses in digits)."""
        key, csr, crt = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        new = ["-newkey", "rsa:2048"] if rsa else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        self._run("req", *new, "-nodes", "-subj", subject or f"/CN={name}", "-keyout", key, "-out", csr)
        names = ",".join(f"{'IP' if host[0].isdigit() else 'DNS'}:{host}" for host in hosts)
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n" if names else "basicConstraints=CA:FALSE\n")
        signed = ["-CA", self.ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial", "-days", str(days)]
        self._run("x509", "-req", "-in", csr, *signed, "-extfile", extensions, "-out", crt)
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + crt.read_text())
        both.chmod(0o600)
        return both

    def locked(self, name: str, password: str = PASSWORD) -> Path:
        """Return a PEM file of the same key, encrypted."""
        key = self.folder / f"{name}.locked.key"
        self._run("pkcs8", "-topk8", "-in", self.folder / f"{name}.key", "-passout", f"pass:{password}", "-out", key)
        both = self.folder / f"{name}.locked.pem"
        both.write_text(key.read_text() + (self.folder / f"{name}.crt").read_text())
        return both

    def pkcs12(self, name: str, password: str = PASSWORD) -> Path:
        """Return a PKCS12 store of a key, for Java."""
        store = self.folder / f"{name}.p12"
        both = self.folder / f"{name}.pem"
        self._run("pkcs12", "-export", "-in", both, "-name", name, "-passout", f"pass:{password}", "-out", store)
        return store

    def _run(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
