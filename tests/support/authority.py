"""A certificate authority of a test, and the certificates that it signs, made by openssl.

`from tests.support.authority import Authority`.
"""

import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest


class Pair(NamedTuple):
    """Files with a certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """An authority in a folder of its own; `file` is its certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not on this machine")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, name
        self.file = self.self_signed(name, extension="basicConstraints=critical,CA:TRUE").certificate

    def self_signed(self, name: str, *, extension: str = "subjectAltName=IP:127.0.0.1") -> Pair:
        """A certificate that signed itself."""
        pair = self._pair(name)
        self._openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", str(pair.key), "-out", str(pair.certificate), "-subj", f"/CN={name}",
            "-days", "2", "-addext", extension,
        )  # fmt: skip
        return pair

    def issue(self, name: str, *, host: str = "IP:127.0.0.1", days: int = 2, password: str = "") -> Pair:
        """A certificate with this common name and host. A password encrypts its key."""
        pair, request, extension = self._pair(name), self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        key = (*_NEW_KEY[:-1], "-passout", f"pass:{password}") if password else _NEW_KEY
        self._openssl("req", *key, "-keyout", str(pair.key), "-out", str(request), "-subj", f"/CN={name}")
        extension.write_text(f"subjectAltName={host}")
        self._openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.file), "-CAkey", str(self._pair(self._name).key),
            "-CAcreateserial", "-extfile", str(extension), "-days", str(days), "-out", str(pair.certificate),
        )  # fmt: skip
        return pair

    def issue_expired(self, name: str) -> Pair:
        """A certificate that has expired: openssl can begin one only now, so wait for the end of its second."""
        pair, ended = self.issue(name, days=0), ["openssl", "x509", "-checkend", "0", "-noout", "-in"]
        while subprocess.run([*ended, str(pair.certificate)], check=False, capture_output=True).returncode == 0:
            time.sleep(0.1)
        return pair

    def _pair(self, name: str) -> Pair:
        return Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
