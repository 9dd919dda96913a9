"""The Spark session with pinned versions, measured settings, guarded connections and a quiet console."""

import importlib.metadata
import logging
import os
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ingest.contract.errors import ConfigError
from lakehouse.jvm import JvmOptions, SparkJvm, is_collector, start_jvm

if TYPE_CHECKING:
    from pydantic import SecretStr
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["LakeSession", "check_versions", "executor_conf", "open_session", "spark_conf"]

PINNED: Final = {"pyspark": "4.2.0", "delta-spark": "4.4.0"}
"""Proved together. The Delta log is written through Delta's own transaction, so another version is refused by name."""

MASKED_NAMES: Final = "(?i)" + "|".join(
    (
        "secret", "password", "passphrase", "credential", "token", "jaas", "keystore[.]key",
        "(?:access|account|api|private|encryption)[ ._-]?key",
    )
)  # fmt: skip
"""Spark masks the values of settings and source options with such names. It compares values too, so it also
masks a key in PEM. Its own list has neither JAAS nor such keys."""
MASKED_TEXTS: Final = r"""(?i)(?:password|secret)\s*=\s*(?:"(?:[^"\\]|\\.)*"|'[^']*')"""
"""Parts of plans that Spark masks: a password inside a text, as JAAS has it."""

logger = logging.getLogger("tidegate.lakehouse.session")

_UNUSED_DEFAULTS: Final = ("yarn.", "mapreduce.", "ipc.", "ha.", "hadoop.http.", "hadoop.registry.", "hadoop.zk.")


@dataclass(slots=True)
class LakeSession:
    """A Spark session with its JVM; `scratch` is the private folder for what Spark spills, deleted at the end."""

    spark: "SparkSession"
    jvm: SparkJvm
    scratch: Path | None = None

    def close(self) -> None:
        """Stop Spark, then its JVM."""
        with suppress(Exception):  # the JVM may be gone already
            self.spark.stop()
        self.jvm.close()
        _forget_gateway()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Drop what py4j logs with the root logger: that a call met a JVM that had ended, with two stacks. The caller raises it."""
    return record.module != "java_gateway"


def check_versions() -> None:
    """Refuse a pair of pyspark and delta-spark that was not proved together.

    Raises:
        ConfigError: names what is installed, what is wanted and the command that fixes it.
    """
    found = {name: _installed(name) for name in PINNED}
    if found != PINNED:
        shown = " with ".join(f"{name} {version or '(missing)'}" for name, version in found.items())
        wanted = " ".join(f"{name}=={version}" for name, version in PINNED.items())
        message = f"Found {shown}, but Tidegate needs {wanted.replace(' ', ' with ')}. Run `pip install {wanted}`."
        raise ConfigError(message)


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def spark_conf(
    *,
    master: str,
    app_name: str,
    jars: Sequence[str],
    scratch: Path,
    extra: Mapping[str, str],
    secret: str | None = None,
) -> dict[str, str]:
    """Every Spark setting of the driver; `extra` wins, and its `spark.jars` are added.

    Where the master is not local, executors are sent the jars. `scratch` is a folder that only this user may read. `secret` is
    the secret of a standalone cluster; all other masters make one per application.
    """
    conf = {
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": MASKED_NAMES,
        "spark.redaction.string.regex": MASKED_TEXTS,
        # Hadoop sets the mode of each file itself, by a umask of its own.
        "spark.hadoop.fs.permissions.umask-mode": f"{_umask():03o}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.catalog.update.enabled": "false",
        # A side file per commit that repeats totals: three commits a second make too many files as it is.
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        # Batches are small: planning again at run time and more than a few tasks cost more than they bring.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        # Rows of a batch lie in one or two days: keeping two files open is cheaper than sorting the batch by day.
        "spark.sql.maxConcurrentOutputFileWriters": "4",
        # Spark's default are 96 bits without statistics in the file, and without a meaning past the year 2262 to some readers.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Hadoop's local file systems fork a shell for every rename and every create.
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.NakedLocalFileSystem",
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # Joined files are sorted by device: a reader of one skips the row groups of the others, so these are not to be large.
        "spark.hadoop.parquet.block.size": str(8 * 1024**2),
        # One object per table and process knows its newest version; forgotten after an hour, a second one would be made.
        "spark.databricks.delta.delta.log.cacheRetentionMinutes": "5256000",
        # Files are named one by one here: looking at them in this JVM takes less than a task for each.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
        # Landing and what is derived take turns with more generated classes than Spark's 100: each turn would compile them again.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Where in the program a column was made, and each plan in words for a page that is off: both are paid per batch.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.debug.maxToStringFields": "5",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        # The landing's batches go before other work of the session (lakehouse/pools.xml).
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": f"file:{Path(__file__).with_name('pools.xml').absolute()}",
        # An idle query asks Kafka for its end offsets this often.
        "spark.sql.streaming.pollingDelay": "100ms",
    }
    if master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Not into the folder that the command happens to be started in, nor under names that others can foresee.
        conf |= {"spark.sql.warehouse.dir": str(scratch / "warehouse"), "spark.local.dir": str(scratch)}
    else:
        # Without Delta's and Kafka's jars the executors could do nothing with those of `extra`.
        more = extra.get("spark.jars")
        extra = {**extra, "spark.jars": ",".join([*jars, *([more] if more else [])])}
    return {**conf, **_guarded(master, secret), **extra}


def _guarded(master: str, secret: str | None) -> dict[str, str]:
    """Settings of the connections between driver and executors. Without them, who reaches a port may run code."""
    if master.startswith("local"):
        # The driver listens on loopback even without executors, and other users of the machine reach it.
        return {"spark.authenticate": "true"}
    if master.startswith("spark://") and secret is None:
        logger.warning("The connections to %s are neither authenticated nor encrypted: set stream.auth_secret.", master)
        return {}
    return {
        "spark.authenticate": "true",
        **({} if secret is None else {"spark.authenticate.secret": secret}),
        "spark.network.crypto.enabled": "true",
        # GCM also detects changed bytes; Spark's default CTR does not (CVE-2025-55039).
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    }


def _umask() -> int:
    """Return this process's umask, which only a change of it tells."""
    given = os.umask(0o077)
    os.umask(given)
    return given


def executor_conf(flags: Sequence[str]) -> dict[str, str]:
    """Return the Spark setting that gives executors the driver's JVM flags that they need too; empty if none.

    These are flags that Kafka's client reads, and the collector: G1 of some versions of Java damages compressed data.
    """
    kept = [flag for flag in flags if flag.startswith("-Dorg.apache.kafka.") or is_collector(flag)]
    return {"spark.executor.extraJavaOptions": " ".join(kept)} if kept else {}


def open_session(
    options: JvmOptions,
    *,
    master: str = "local[2]",
    app_name: str = "tidegate",
    extra: Mapping[str, str] | None = None,
    secret: "SecretStr | None" = None,
    keep_open: Sequence[int] = (),
) -> LakeSession:
    """Start the JVM and a Spark session with Delta in it; `keep_open` as for `start_jvm`, `secret` of a standalone cluster.

    Raises:
        ConfigError: the versions do not fit.
    """
    check_versions()
    _load_converters()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # py4j's modules log whatever a callback raises with its stack; the landing reports it in one sentence.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_of_py4j)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).disabled = True
    scratch = Path(tempfile.mkdtemp(prefix="tidegate-scratch-", dir=options.temp_dir))
    jars = [str(jar) for jar in options.jars]
    own = {**executor_conf(options.flags), **(extra or {})}
    plain = None if secret is None else secret.get_secret_value()
    conf = spark_conf(master=master, app_name=app_name, jars=jars, scratch=scratch, extra=own, secret=plain)
    try:
        jvm = start_jvm(options, conf, keep_open=keep_open)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    with _own_interrupt():
        SparkContext._ensure_initialized(gateway=jvm.gateway)
        context = SparkContext(conf=SparkConf().setAll(list(conf.items())), gateway=jvm.gateway)
    if master.startswith("local"):
        _shed_defaults(context)
    return LakeSession(SparkSession(context), jvm, scratch)


def _load_converters() -> None:
    """Import what PySpark imports at its first call of the JVM: its helpers for tests, which warn where pandas 3 is installed.

    Spark gets no pandas from here. The warning for code that does use it stays.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        import pyspark.testing.utils  # noqa: F401


def _shed_defaults(context: "SparkContext") -> None:
    """Take Hadoop's defaults for YARN, MapReduce and servers out of the configuration.

    Every write packs the whole configuration for its tasks, each of its thousand entries compressed by itself.
    """
    assert context._jsc is not None  # noqa: S101
    configuration = context._jsc.hadoopConfiguration()
    for prefix in _UNUSED_DEFAULTS:
        for name in list(configuration.getPropsWithPrefix(prefix)):
            configuration.unset(prefix + name)


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep the caller's handling of Ctrl-C: PySpark installs one that cancels jobs and raises."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _forget_gateway() -> None:
    """Let a later session of this process start a JVM of its own: PySpark keeps the first gateway for ever."""
    from pyspark import SparkContext

    SparkContext._gateway = None
    SparkContext._jvm = None
