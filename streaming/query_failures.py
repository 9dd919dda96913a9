"""Classification of a query's end: one sentence, and whether the error is temporary (wait and restart) or needs a person."""

import re
from typing import Final

from ingest.contract.errors import FatalError, RetryableError, TidegateError
from lakehouse.object_store import is_s3, store_text
from lakehouse.paths import is_local

__all__ = ["classify_query_failure"]

_KAFKA_AWAY: Final = (
    "TimeoutException",
    "DisconnectException",
    "BrokerNotAvailableException",
    "LeaderNotAvailableException",
    "NotLeaderOrFollowerException",
    "CoordinatorNotAvailable",
    "UnknownTopicOrPartitionException",
    "Failed to construct kafka consumer",
    "Failed to create new KafkaAdminClient",
    "Connection refused",
)
_LOGIN_REFUSED: Final = (
    "SaslAuthenticationException",
    "SslAuthenticationException",
    "credentials with SASL mechanism",
    "Authentication failed: Invalid username or password",
)
_DISK_FULL: Final = ("No space left on device", "Disk quota exceeded", "not enough space")
_DATA_LOSS: Final = ("KAFKA_DATA_LOSS", "data may have been lost", "data was lost", "OffsetOutOfRangeException")
_STORE_LOGIN: Final = (
    "NoAuthWithAWSException",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "UnknownStoreException",
    "NoSuchBucket",
    "lacked the necessary privileges",
)
"""Of the JVM's client, of the store itself, and of delta-rs."""
_DENIED: Final = re.compile(r"AccessDenied.*(s3a?://|S3)|(s3a?://|S3|<Code>).*AccessDenied")
"""In one line: Java says AccessDeniedException of a local file, too."""
_STORE_AWAY: Final = (
    "Generic S3 error",
    "SdkClientException",
    "S3Exception",
    "AWSClientIOException",
    "AWSServiceIOException",
    "AWSStatus500Exception",
)
_OTHER_BATCH: Final = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected", "RemoteFileChangedException")
"""The store, or Spark, finds a file of this checkpoint there that this stream was to put."""
_LOST_PART: Final = re.compile(r"(FileNotFoundException|FILE_NOT_EXIST|PATH_NOT_FOUND)[^\n]*/_identities/")
_EXECUTORS_LOST: Final = ("ExecutorLostFailure", "ExecutorDeadException", "FetchFailedException")
_MEMORY: Final = ("OutOfMemoryError", "GC overhead limit")


def classify_query_failure(
    error: BaseException, *, bootstrap_servers: str, log: str, root: str = "", checkpoint: str = ""
) -> TidegateError:
    """Return the error to raise or to wait for.

    `log` names the place of the details. Only with `root` or `checkpoint` in an object store does an error of a store count.
    """
    return (
        error if isinstance(error, TidegateError) else _classify(str(error), bootstrap_servers, log, root, checkpoint)
    )


def _classify(text: str, bootstrap_servers: str, log: str, root: str, checkpoint: str) -> TidegateError:
    if _any(_DISK_FULL, text):
        return RetryableError(
            "The disk of the tables or of the checkpoint is full; landing waits for space.", retry_after_seconds=5.0
        )
    if _any(_DATA_LOSS, text):
        return FatalError(
            f"Kafka lost records that were not stored yet ({_first_line(text)}). No record is skipped without a report: "
            "`tidegate repair` and the next start name the exact ranges and the next step."
        )
    # Before the signs of Kafka: whoever reads from a lost executor reports a refused connection, too.
    if _any(_EXECUTORS_LOST, text) and not _any(_MEMORY, text):
        return RetryableError(
            f"Tasks of Spark lost their executors four times; landing starts again. See {log}.", retry_after_seconds=5.0
        )
    # Before the signs of Kafka: a store refuses connections, too.
    if away := _store_away(text, root, checkpoint) or _kafka_away(text, bootstrap_servers):
        return away
    if _any(_MEMORY, text):
        return FatalError(
            f"Spark ran out of memory: raise stream.driver_memory or lower stream.max_records_per_batch. See {log}."
        )
    return FatalError(f"The landing query failed: {_first_line(text)}. See {log}.")


def _kafka_away(text: str, bootstrap_servers: str) -> RetryableError | None:
    if _any(_KAFKA_AWAY + _LOGIN_REFUSED, text):
        # The next start of the query logs in with the password that its file has then.
        what = "refuses the login of [kafka]" if _any(_LOGIN_REFUSED, text) else "does not answer"
        return RetryableError(f"Kafka at {bootstrap_servers} {what}; landing waits for it.", retry_after_seconds=1.0)
    return None


def _store_away(text: str, root: str, checkpoint: str) -> RetryableError | None:
    if not (is_s3(root) or is_s3(checkpoint)):
        return None
    # At other places neither a lock nor an epoch keeps a second stream out, and with a new start both would land.
    has_one_writer = is_s3(root) or is_local(root)
    if has_one_writer and _any(_OTHER_BATCH, text):
        return RetryableError(
            "An earlier stream put a file into this checkpoint meanwhile; landing reads the checkpoint again."
        )
    if _LOST_PART.search(text):
        return RetryableError(
            "An earlier stream deleted known identities that this one was reading; landing reads them from the table."
        )
    if _any(_STORE_LOGIN, text) or _DENIED.search(text):
        return RetryableError(
            f"The object store does not let this stream in, or does not have the bucket ({_first_line(text)}). Check "
            "lake.s3_access_key, lake.s3_secret_key, lake.s3_endpoint and the rights to the bucket; landing tries again.",
            retry_after_seconds=5.0,
        )
    if _any(_STORE_AWAY, text) and not _any(_MEMORY, text):
        return RetryableError(
            f"The object store does not answer, or does not accept a request ({_first_line(text)}); landing tries again.",
            retry_after_seconds=2.0,
        )
    return None


def _any(signs: tuple[str, ...], text: str) -> bool:
    return any(sign in text for sign in signs)


def _first_line(text: str) -> str:
    if "↳" in text:
        return store_text(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    caused = [line for line in lines if line.startswith("Caused by:")]
    shown = (caused[-1] if caused else lines[0]) if lines else "no message"
    return shown.removeprefix("Caused by:").strip()[:300].rstrip(".")
