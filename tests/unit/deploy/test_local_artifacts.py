"""The lock list, the mirror and the words about the JVM parts."""

import re
from pathlib import Path

import pytest

from deploy.local import artifacts, maven

SETTINGS = """<?xml version="1.0"?>
<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>
<mirror><id>other</id><mirrorOf>elsewhere</mirrorOf><url>http://127.0.0.1:1/other</url></mirror>
<mirror><id>ours</id><mirrorOf>external:*, central</mirrorOf><url>http://127.0.0.1:1/ours</url></mirror>
</mirrors></settings>"""


def test_the_lock_list_is_exact() -> None:
    jars = artifacts.read_lock()
    assert {jar.part for jar in jars} == {"both", "spark", "kafka", "zookeeper", "jmx", "s3"}
    assert len({jar.file_name for jar in jars}) == len(jars)
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) and jar.size > 0 for jar in jars)
    assert [jar.coordinate for jar in jars if jar.part == "both"] == ["org.apache.kafka:kafka-clients:4.3.1"]


def test_what_setup_fetches_stays_small() -> None:
    assert sum(jar.size for jar in artifacts.read_lock() if jar.part not in ("zookeeper", "s3")) < 33_000_000


def test_kafka_runs_on_its_own_jars_and_those_of_pyspark(tmp_path: Path) -> None:
    for jar in artifacts.read_lock():
        (tmp_path / jar.file_name).touch()
    paths = artifacts.kafka_classpath(tmp_path)
    found = {path.name for path in paths}
    assert {"kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar", "zstd-jni-1.5.7-7.jar"} <= found
    assert "delta-storage-4.4.0.jar" not in found
    assert all(path.is_file() for path in paths)


def test_kafka_of_zookeeper_mode_shares_all_but_kafkas_own_jars(tmp_path: Path) -> None:
    for jar in artifacts.read_lock():
        (tmp_path / jar.file_name).touch()
    paths = artifacts.zookeeper_classpath(tmp_path)
    found = {path.name for path in paths}
    assert {"kafka_2.13-3.9.1.jar", "kafka-clients-3.9.1.jar", "jopt-simple-5.0.4.jar"} <= found
    assert any(name.startswith("zookeeper-3.") for name in found)
    assert not [name for name in found if name.endswith("-4.3.1.jar")]
    assert all(path.is_file() for path in paths)


def test_one_group_of_jars_is_fetched_alone_and_an_unknown_one_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(artifacts, "fetch_jars", lambda group, _progress, *, verify: fetched.append(group))
    assert artifacts.main(["spark", "jmx", "--verify"]) == 0
    assert artifacts.main([]) == 0
    assert fetched == ["spark", "jmx", "all"]
    assert artifacts.main(["sparc"]) == 2
    assert "Unknown group of JVM parts: sparc. Name one of spark, " in capsys.readouterr().err
    assert len(fetched) == 3


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert artifacts.cache_dir() == tmp_path / "tidegate" / "jars"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert artifacts.cache_dir() == Path("/home/somebody/.cache/tidegate/jars")


def test_the_mirror_of_mavens_own_settings_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(maven.MIRROR_VARIABLE, raising=False)
    assert maven.find_mirror(tmp_path) is None
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS, encoding="utf-8")
    assert maven.find_mirror(tmp_path) == "http://127.0.0.1:1/ours"
    monkeypatch.setenv(maven.MIRROR_VARIABLE, "http://127.0.0.1:1/named")
    assert maven.find_mirror(tmp_path) == "http://127.0.0.1:1/named"


def test_settings_of_maven_that_cannot_be_read_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(maven.MIRROR_VARIABLE, raising=False)
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text("<settings", encoding="utf-8")
    assert maven.find_mirror(tmp_path) is None


def test_java_is_told_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert maven._proxy_options() == []
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128/")
    assert maven._proxy_options() == ["-Dhttps.proxyHost=127.0.0.1", "-Dhttps.proxyPort=3128"]


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("a\n\tERROR: connection refused\nb\n", "ERROR: connection refused"),
        (":: loading\n", "Ivy ended without output"),
        (None, "Ivy ended without output"),
    ],
)
def test_ivys_telling_line_is_found(log: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "ivy.log"
    if log is not None:
        file.write_text(log, encoding="utf-8")
    assert maven.failure_line(file) == said


def test_no_look_up_asks_for_two_versions_of_a_module() -> None:
    """Ivy would keep the newer one alone, so that ZooKeeper mode could not start where no jar was fetched before."""
    looked_up = artifacts._resolvable(artifacts.read_lock())
    for jars in looked_up:
        assert jars and len({(jar.group, jar.name) for jar in jars}) == len(jars)
    assert {jar for jars in looked_up for jar in jars} == set(artifacts.read_lock())
