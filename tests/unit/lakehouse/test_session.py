"""The session's settings, and the refusal of versions that were not proved together."""

import gc
import logging
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.errors import ConfigError, FatalError, UnavailableError
from lakehouse.jvm import JvmOptions, start_jvm
from lakehouse.session import MASKED_NAMES, MASKED_TEXTS, check_versions, executor_conf, open_session, spark_conf
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
    more = {"spark.jars": "aws.jar,sdk.jar"}
    conf = spark_conf(master="yarn", app_name="x", jars=["a.jar"], scratch=tmp_path, extra=more)
    assert conf["spark.jars"] == "a.jar,aws.jar,sdk.jar"


def test_executors_get_the_collector_and_the_flags_that_kafkas_client_reads_and_no_others() -> None:
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://login.example.org/token"
    assert executor_conf(("-XX:+UseSerialGC", allowed, "-Dlog4j2.level=OFF")) == {
        "spark.executor.extraJavaOptions": f"-XX:+UseSerialGC {allowed}"
    }
    assert executor_conf(("-XX:TieredStopAtLevel=1",)) == {}


def conf_of(master: str, **more: Any) -> dict[str, str]:
    return spark_conf(master=master, app_name="x", jars=[], scratch=Path("/s"), **({"extra": {}} | more))


@pytest.mark.parametrize("master", ["yarn", "k8s://https://k:443", "spark://m:7077"])
def test_connections_to_executors_are_authenticated_and_encrypted(
    master: str, caplog: pytest.LogCaptureFixture
) -> None:
    conf = conf_of(master, secret="s3cret" if master.startswith("spark") else None)
    assert conf["spark.authenticate"] == "true"
    assert conf["spark.network.crypto.enabled"] == "true"
    assert conf["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert conf.get("spark.authenticate.secret") == ("s3cret" if master.startswith("spark") else None)
    assert caplog.text == ""
    assert conf_of(master, secret="x", extra={"spark.authenticate": "false"})["spark.authenticate"] == "false"


def test_a_local_driver_lets_nobody_else_of_the_machine_in() -> None:
    conf = conf_of("local[2]", secret="not for a local master")
    assert conf["spark.authenticate"] == "true"
    assert (conf["spark.driver.bindAddress"], conf["spark.driver.host"]) == ("127.0.0.1", "127.0.0.1")
    assert (conf["spark.ui.enabled"], "spark.authenticate.secret" in conf) == ("false", False)


def test_a_cluster_without_a_secret_is_used_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It asks for none, so a driver that demands one could not connect."""
    with caplog.at_level(logging.WARNING):
        assert "spark.authenticate" not in conf_of("spark://m:7077")
    assert "neither authenticated nor encrypted: set stream.auth_secret." in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.ssl.key.password", "kafka.ssl.truststore.password",
        "kafka.ssl.keystore.password", "spark.authenticate.secret", "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.session.token", "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net", "spark.ssl.keyStorePassword",
        "kafka.sasl.oauthbearer.client.credentials.client.secret", "SASL.JAAS.CONFIG",
    ],
)  # fmt: skip
def test_spark_masks_settings_with_secret_names(name: str) -> None:
    assert re.search(MASKED_NAMES, name)
    assert conf_of("local[1]")["spark.redaction.regex"] == MASKED_NAMES


def test_spark_masks_passwords_inside_texts_and_nothing_else() -> None:
    jaas = 'ScramLoginModule required username="u" password="a \\"b\\\\" tail="x";'
    assert re.sub(MASKED_TEXTS, "*", jaas) == 'ScramLoginModule required username="u" * tail="x";'
    for name in (
        "spark.sql.shuffle.partitions",
        "kafka.bootstrap.servers",
        "subscribe",
        "kafka.ssl.truststore.location",
    ):
        assert not re.search(MASKED_NAMES, name)


def test_hadoop_makes_files_by_the_umask_of_this_process() -> None:
    before = os.umask(0o027)
    try:
        assert conf_of("local[1]")["spark.hadoop.fs.permissions.umask-mode"] == "027"
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


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


def test_the_jvm_gets_no_secret_by_its_command_line_or_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/sh\n{{ echo "$@"; env; }} > {tmp_path}/seen\nexit 3\n')
    java.chmod(0o700)
    monkeypatch.setenv("TIDEGATE_KAFKA__SASL_PASSWORD", "S3CR3T-of-kafka")
    conf = conf_of("spark://m:7077", secret="S3CR3T-of-spark", extra={"spark.hadoop.fs.s3a.secret.key": "S3CR3T-of-s3"})
    with pytest.raises(FatalError, match="ended with code 3 while starting"):
        start_jvm(JvmOptions(tmp_path, (), tmp_path / "logs"), conf)
    seen = (tmp_path / "seen").read_text("utf-8")
    assert "--properties-file" in seen
    assert "SPARK_CONNECT_MODE=0" in seen
    assert "S3CR3T" not in seen


@pytest.mark.parametrize(("master", "taken"), [("yarn", True), ("local[2]", False), ("spark://m:7077", False)])
def test_hadoops_configuration_is_on_the_class_path_of_yarn_alone(
    master: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/seen\nexit 3\n')
    java.chmod(0o700)
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/yarn")
    with pytest.raises(FatalError, match="ended with code 3 while starting"):
        start_jvm(JvmOptions(tmp_path, (), tmp_path / "logs"), conf_of(master, secret="x"))
    given = (tmp_path / "seen").read_text("utf-8")
    assert ("/jars/*:/etc/hadoop:/etc/yarn " in given) == taken
    assert ("/etc/hadoop" in given) == taken


def test_a_missing_java_or_jar_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no Java at"):
        start_jvm(JvmOptions(tmp_path, (), tmp_path), {})
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    with pytest.raises(UnavailableError, match=r"x\.jar, which is not in"):
        start_jvm(JvmOptions(tmp_path, (tmp_path / "x.jar",), tmp_path), {})


@pytest.mark.parametrize(
    ("code", "warns"),
    [
        ("_load_converters(); convert('x')", False),
        # PySpark warns by itself, and of pandas that somebody uses later: else this filter is not needed, or hides too much.
        ("convert('x')", True),
        ("_load_converters(); require_minimum_pandas_version()", True),
    ],
)
def test_a_call_of_the_jvm_does_not_warn_of_pandas_3(code: str, warns: bool, tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text('__version__ = "3.0.0"\n')
    head = (
        "from pyspark.sql.pandas.utils import require_minimum_pandas_version\nfrom pyspark.sql.types import NumpyArrayConverter\n"
        "from lakehouse.session import _load_converters\nconvert = NumpyArrayConverter().can_convert\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", head + code], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ("fully support pandas" in done.stderr) is warns, done.stderr
