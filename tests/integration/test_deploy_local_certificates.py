"""The machine's certificates as Java reads them."""

import ssl
import subprocess
from pathlib import Path

import pytest

from deploy.local import maven as certificates
from deploy.local.java import find_java


def test_java_reads_every_certificate_of_the_machines_list(tmp_path: Path) -> None:
    bundle = certificates.find_bundle()
    if bundle is None:
        pytest.skip("this machine has no list of certificates")
    count = certificates.write_key_store(bundle, tmp_path / "trusted.jks")
    keytool = find_java().home / "bin" / "keytool"
    command = [str(keytool), "-list", "-keystore", str(tmp_path / "trusted.jks"), "-storepass", certificates.PASSWORD]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env={"LC_ALL": "C"}).stdout
    assert shown.count("trustedCertEntry") == count > 0


def test_the_environment_names_the_list_as_for_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "mine.pem"
    named.touch()
    monkeypatch.setenv("PIP_CERT", str(named))
    assert certificates.find_bundle() == named


def test_a_list_that_cannot_be_read_leaves_java_with_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "mine.pem"
    named.write_text("nothing", encoding="utf-8")
    monkeypatch.setenv("PIP_CERT", str(named))
    with pytest.raises(ssl.SSLError):
        certificates.write_key_store(named, tmp_path / "trusted.jks")
    assert certificates.trust_options(tmp_path) == []


def test_a_java_that_was_told_already_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStore=/somewhere")
    assert certificates.trust_options(tmp_path) == []
