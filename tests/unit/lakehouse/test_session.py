"""The session's settings, and the refusal of versions that were not proved together."""

import gc
import stat
from pathlib import Path

import pytest

from ingest.contract.errors import ConfigError, UnavailableError
from lakehouse.jvm import JvmOptions, start_jvm
from lakehouse.session import check_versions, executor_conf, open_session, spark_conf
from streaming.dedup_index import DedupIndex


def test_the_installed_versions_are_the_proved_ones() -> None:
    check_versions()


def test_another_pair_of_versions_is_refused_with_the_mending_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakehouse.session._installed", {"pyspark": "4.3.0"}.get)
    with pytest.raises(ConfigError) as caught:
        check_versions()
    assert str(caught.value) == (
        "Found pyspark 4.3.0 with delta-spark (missing), but Tidegate needs pyspark==4.2.0 with delta-spark==4.4.0. "
        "Run `pip install pyspark==4.2.0 delta-spark==4.4.0`."
    )


def test_extra_settings_win_and_executors_get_the_jars(tmp_path: Path) -> None:
    extra = {"spark.ui.enabled": "true"}
    conf = spark_conf(master="spark://m:1", app_name="x", jars=["a.jar", "b.jar"], scratch=tmp_path, extra=extra)
    assert conf["spark.jars"] == "a.jar,b.jar"
    assert conf["spark.ui.enabled"] == "true"
    assert "spark.jars" not in spark_conf(master="local[2]", app_name="x", jars=["a.jar"], scratch=tmp_path, extra={})
    assert "spark.jars.packages" not in conf


def test_executors_get_the_flags_that_kafkas_client_reads_and_no_others() -> None:
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://login.example.org/token"
    assert executor_conf(("-XX:+UseSerialGC", allowed, "-Dlog4j2.level=OFF")) == {
        "spark.executor.extraJavaOptions": allowed
    }
    assert executor_conf(("-XX:+UseSerialGC",)) == {}


def test_what_spills_goes_into_private_folders_that_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    conf = spark_conf(master="local[2]", app_name="x", jars=[], scratch=tmp_path / "own", extra={})
    assert {conf["spark.local.dir"], conf["spark.sql.warehouse.dir"]} == {
        f"{tmp_path}/own",
        f"{tmp_path}/own/warehouse",
    }
    with pytest.raises(UnavailableError, match="no Java at"):
        open_session(JvmOptions(tmp_path, (), tmp_path))
    assert list(tmp_path.iterdir()) == []
    seen = DedupIndex()
    made = list(tmp_path.iterdir())
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in made} == {0o700}
    query = "SELECT value FROM duckdb_settings() WHERE name = 'temp_directory'"
    (spill,) = seen._sql.query(query).column(0).to_pylist()
    assert Path(spill) in made
    del seen
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_java_or_jar_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no Java at"):
        start_jvm(JvmOptions(tmp_path, (), tmp_path), {})
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    with pytest.raises(UnavailableError, match=r"x\.jar, which is not in"):
        start_jvm(JvmOptions(tmp_path, (tmp_path / "x.jar",), tmp_path), {})
