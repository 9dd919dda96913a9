"""Puts of Spark's JVM that an object store rejects if the object exists: commits of Delta, and plans of batches in a checkpoint.

Hadoop's S3A has such a put only behind an option of its builder for files. Delta's log stores do not use the builder, and neither
do Spark's checkpoints. So a writer compiles two small classes that do (S3ConditionalLogStore.java), with the compiler that Spark
brings for its own queries. All commits of the session pass through them, whatever statement makes them.
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import ConfigError, FatalError
from lakehouse.object_store import SCHEMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_conditional_put", "conditional_conf", "define_log_store", "is_put_conflict"]

FOLDER: Final = "_tidegate"

_SOURCE: Final = Path(__file__).with_name("S3ConditionalLogStore.java")
_PACKAGE: Final = "io.delta.storage"
_LOG_STORE: Final = f"{_PACKAGE}.S3ConditionalLogStore"
_CLASSES: Final = (_LOG_STORE, f"{_PACKAGE}.S3ConditionalFiles")
_FENCING: Final = {
    **{f"spark.delta.logStore.{scheme}.impl": _CLASSES[0] for scheme in SCHEMES},
    **{f"spark.hadoop.fs.AbstractFileSystem.{scheme}.impl": _CLASSES[1] for scheme in SCHEMES},
    "spark.hadoop.fs.s3a.create.conditional.enabled": "true",
    # Delta would commit again, as the next version, after the commit of another writer.
    "spark.databricks.delta.maxCommitAttempts": "0",
}
_CONFLICTS: Final = (
    "FileAlreadyExistsException",
    "RemoteFileChangedException",
    "PreconditionFailed",
    "DELTA_MAX_COMMIT_RETRIES_EXCEEDED",
)
"""In the text of an exception: the object, or the version of the table, exists."""


def conditional_conf(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the Spark settings of a writer of an object store; `define_log_store` gives its session the classes that they name.

    Args:
        extra: settings of the user, which may not weaken the commits.

    Raises:
        ConfigError: a setting of the user would let two writers overwrite each other.
    """
    for name, value in (extra or {}).items():
        if name == "spark.delta.logStore.class" or _FENCING.get(name, value) != value:
            message = (
                f"stream.extra sets {name} to {value}, but with that two writers could overwrite each other's commits in the "
                "object store. Remove it: Tidegate sets what the store needs."
            )
            raise ConfigError(message)
    return dict(_FENCING)


def define_log_store(spark: "SparkSession") -> None:
    """Give this session's JVM the classes of `conditional_conf`, before its first use of the store; again, nothing happens."""
    jvm: Any = spark._jvm
    neighbour = jvm.java.lang.Class.forName(f"{_PACKAGE}.HadoopFileSystemLogStore")
    loader = neighbour.getClassLoader()
    with suppress(Exception):
        loader.loadClass(_LOG_STORE)
        return
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE.read_text(encoding="utf-8"))
    compiled = compiler.getBytecodes()
    # Into the loader of Delta's own classes, where Delta and Hadoop look for them by name.
    lookup = jvm.java.lang.invoke.MethodHandles
    access = lookup.privateLookupIn(neighbour, lookup.lookup())
    for name in _CLASSES:
        access.defineClass(compiled.get(name))


def check_conditional_put(spark: "SparkSession", root: str) -> None:
    """Put one object twice, each time under the condition that it does not exist, while neither put has ended.

    Raises:
        FatalError: the store took both, so of two commits with the same version one would be lost; or it cannot be written.
    """
    jvm: Any = spark._jvm
    assert spark._jsc is not None  # noqa: S101
    path = jvm.org.apache.hadoop.fs.Path(f"{root.rstrip('/')}/{FOLDER}/put-{uuid.uuid4().hex}")
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    create = jvm.io.delta.storage.S3ConditionalLogStore.create
    try:
        first, second = create(files, path), create(files, path)
        first.write(1)
        second.write(2)
        first.close()
    except Exception as error:
        raise _not_writable(root, error) from error
    try:
        second.close()
    except Exception as error:
        if is_put_conflict(error):
            return
        raise _not_writable(root, error) from error
    finally:
        with suppress(Exception):
            files.delete(path, False)
    message = (
        f"The object store of {root} took a second put of the same object, although it was to be the first (If-None-Match). Two "
        "writers could overwrite each other's commits there. Use a store with conditional writes, or a local folder."
    )
    raise FatalError(message)


def is_put_conflict(error: BaseException) -> bool:
    """Return whether a put, or a commit of Delta, failed because the object exists."""
    text = str(error)
    return any(sign in text for sign in _CONFLICTS)


def _not_writable(root: str, error: BaseException) -> FatalError:
    message = (
        f"Cannot write to {root}: {_reason(error)}. Check lake.root, lake.s3_endpoint, lake.s3_access_key, lake.s3_secret_key "
        "and the rights to the bucket."
    )
    return FatalError(message)


def _reason(error: BaseException) -> str:
    """Return the innermost cause that a text of the JVM names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    return (causes or lines[1:2] or lines or ["no message"])[-1][:300].rstrip(".")
