"""`tidegate certs`: what it prints, its JSON and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run


class Certs:
    """The command with its exit code, stdout and stderr."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> tuple[str, str]:
        done = run(["certs", *map(str, arguments)])
        out, err = self._capsys.readouterr()
        assert done == code, out + err
        return out, err

    def json(self, *arguments: object, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code)[0])


@pytest.fixture
def certs(capsys: pytest.CaptureFixture[str]) -> Certs:
    return Certs(capsys)


@pytest.fixture
def folder(tmp_path: Path, certs: Certs) -> Path:
    certs("init", tmp_path / "p ki", "--name", "kafka-1,10.0.0.1", "--client", "gateway", "--days", 30)
    return tmp_path / "p ki"


def test_init_names_files_ends_and_next_steps(tmp_path: Path, certs: Certs) -> None:
    out, err = certs("init", tmp_path / "p ki", "--name", "kafka-1,10.0.0.1", "--name", "mqtt", "--client", "gateway")
    lines = out.splitlines()
    assert [Path(line.partition("  ")[0]).name for line in lines] == [
        "ca.pem", "ca.key", "server-kafka-1.pem", "server-mqtt.pem", "client-gateway.pem",
    ]  # fmt: skip
    assert "CN=kafka-1, 10.0.0.1, until 20" in lines[2] and lines[1].endswith("(private)")
    assert "ca.key away" in err and f"certs rotate '{tmp_path / 'p ki'}'" in err
    assert "PRIVATE KEY" not in out + err


def test_init_and_issue_answer_in_json(tmp_path: Path, certs: Certs) -> None:
    found = certs.json("init", tmp_path / "pki", "--client", "gateway", "--days", 3)
    assert found["folder"] == str(tmp_path / "pki")
    assert (found["written"], found["left"]) == (["ca.pem", "ca.key", "client-gateway.pem"], [])
    authority, client = found["certificates"]
    assert (authority["usage"], authority["days_left"]) == (["authority"], 3649)
    assert (client["subject"], client["usage"], client["names"]) == ("CN=gateway", ["client"], [])
    assert client["key_fits"] and client["verifies"] and client["ends_at"].endswith("+00:00")
    assert found["next_steps"]
    found = certs.json("issue", tmp_path / "pki", "--name", "mqtt", "--key", "rsa")
    assert [one["key"] for one in found["certificates"]] == ["RSA 3072"]


def test_show_prints_each_certificate_of_a_folder(folder: Path, certs: Certs) -> None:
    out, _ = certs("show", folder)
    assert out.count("subject") == 3 and out.count("verifies") == 3 and out.count("the private key fits") == 3
    for words in (
        "CN=kafka-1",
        "kafka-1, 10.0.0.1",
        "server, client",
        "authority",
        "29 days left",
        "CN=Tidegate authority",
    ):
        assert words in out
    found = certs.json("show", folder)
    assert found["ok"] and [Path(one["file"]).name for one in found["certificates"]] == [
        "ca.pem", "client-gateway.pem", "server-kafka-1.pem",
    ]  # fmt: skip


def test_show_ends_with_1_where_something_is_wrong(folder: Path, tmp_path: Path, certs: Certs) -> None:
    certs("init", tmp_path / "other", "--client", "x")
    client = folder / "client-gateway.pem"
    out, _ = certs("show", client, "--ca", tmp_path / "other" / "ca.pem", code=1)
    assert "does not verify" in out and "PROBLEM  No trusted authority signed it" in out
    client.chmod(0o644)
    found = certs.json("show", folder, code=1)
    assert not found["ok"]
    assert [one["problems"] for one in found["certificates"] if one["problems"]] == [
        ["Other users have rights on client-gateway.pem, which holds a private key: run chmod 600."]
    ]
    alone = tmp_path / "alone.pem"
    alone.write_bytes((folder / "ca.pem").read_bytes())
    assert "not checked: there is no ca.pem next to it" in certs("show", alone)[0]


def test_rotate_says_what_to_copy_and_what_to_run_next(folder: Path, certs: Certs) -> None:
    def rotate(*options: str) -> tuple[list[str], str]:
        found = certs.json("rotate", folder, *options)
        return found["written"], " ".join(found["next_steps"])

    leaves = ["client-gateway.pem", "server-kafka-1.pem"]
    written, steps = rotate()
    assert written == leaves and "Copy each file" in steps and "--drop-old" not in steps
    written, steps = rotate("--ca")
    assert written == ["ca.pem", "ca.key"]
    assert (
        "it holds both authorities" in steps
        and f"rotate '{folder}'`" in steps
        and f"rotate '{folder}' --drop-old`" in steps
    )
    _, err = certs("rotate", folder, "--drop-old", code=78)
    assert "A former authority signed client-gateway.pem, server-kafka-1.pem." in err
    written, steps = rotate("--days", "7")
    assert written == leaves and "ca.pem holds a former authority" in steps
    assert rotate("--drop-old")[0] == ["ca.pem"]
    out, err = certs("rotate", folder, "--drop-old")
    assert not out and "nothing was changed" in err
    assert {one["days_left"] for one in certs.json("show", folder)["certificates"]} == {3649, 6}


def test_rotate_names_what_it_leaves(folder: Path, tmp_path: Path, certs: Certs) -> None:
    certs("init", tmp_path / "other", "--client", "x")
    (folder / "bought.pem").write_bytes((tmp_path / "other" / "client-x.pem").read_bytes())
    assert certs.json("rotate", folder)["left"] == ["bought.pem"]
    assert "bought.pem was left as it is" in certs("rotate", folder)[1]


def test_revoke_says_which_servers_read_the_list(folder: Path, certs: Certs) -> None:
    out, err = certs("revoke", folder, "gateway")
    assert out == f"{folder / 'crl.pem'}\n"
    assert "mosquitto: crlfile" in err and "Kafka reads no such list" in err and "--no-role --apply --prune" in err
    assert "Already revoked" in certs("revoke", folder, "gateway")[0]
    out, _ = certs("show", folder, code=1)
    assert "PROBLEM  It was revoked on" in out and out.count("subject") == 3, "the list itself is no certificate"
    found = certs.json("rotate", folder)
    assert (found["written"], found["left"]) == (["server-kafka-1.pem"], ["client-gateway.pem"])
    assert "client-gateway.pem was left as it is: it is revoked." in certs("rotate", folder)[1]
    number = certs.json("show", folder / "server-kafka-1.pem")["certificates"][0]["serial"]
    assert certs.json("revoke", folder, "--serial", number)["written"] == ["crl.pem"]
    found = certs.json("rotate", folder, "--ca")
    assert found["written"] == ["ca.pem", "ca.key", "crl.pem"]
    assert f"copy of {folder / 'crl.pem'}, copy it together with ca.pem" in found["next_steps"][1]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["revoke", "pki"], 2, "Name at least one certificate"),
        (["revoke", "pki", "--serial", "xyz"], 2, "wanted hexadecimal digits"),
        (["revoke", "pki", "none"], 69, "has no certificate none"),
        (["revoke", "none", "gateway"], 69, "has no authority"),
        (["init", "new"], 2, "Name at least one server with --name HOST"),
        (["issue", "pki"], 2, "Name at least one server"),
        (["init", "new", "--name", "a:1"], 78, "'a:1' is not a host name"),
        (["init", "new", "--client", "a/b"], 78, "cannot be the name of a client"),
        (["init", "new", "--client", "a", "--days", "0"], 2, "--days"),
        (["init", "new", "--client", "a", "--days", "40000"], 2, "--days"),
        (["init", "new", "--client", "a", "--ca-days", "30"], 78, "--days 30 or less"),
        (["init", "pki", "--client", "a"], 78, "already has ca.pem, ca.key"),
        (["issue", "pki", "--client", "gateway"], 78, "give --force to replace them"),
        (["issue", "none", "--client", "a"], 69, "has no authority: ca.pem is missing"),
        (["rotate", "none"], 69, "has no authority"),
        (["rotate", "pki", "--drop-old", "--ca"], 2, "give it alone"),
        (["rotate", "pki", "--drop-old", "--days", "3"], 2, "give it alone"),
        (["show", "none"], 69, "cannot be read"),
        (["show", "empty"], 69, "holds no file with a certificate"),
        (["show", "pki/ca.pem", "--ca", "none"], 69, "cannot be read"),
        (["show", "pki/ca.key"], 69, "holds no certificate"),
    ],
)
def test_a_wrong_use_has_its_code_and_a_sentence(
    arguments: list[str], code: int, words: str, tmp_path: Path, certs: Certs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    certs("init", "pki", "--client", "gateway")
    (tmp_path / "empty").mkdir()
    out, err = certs(*arguments, code=code)
    assert words in " ".join(err.replace("│", " ").split()) and not out
    assert not (tmp_path / "new").exists()


def test_a_missing_key_of_the_authority_is_named_with_both_ways_on(folder: Path, certs: Certs) -> None:
    (folder / "ca.key").unlink()
    for arguments in (["rotate", folder], ["issue", folder, "--client", "a"], ["rotate", folder, "--drop-old"]):
        assert (
            "is missing, so nothing can be signed. Restore it, or make a new authority" in certs(*arguments, code=69)[1]
        )
    certs("rotate", folder, "--ca")
    certs("rotate", folder)
