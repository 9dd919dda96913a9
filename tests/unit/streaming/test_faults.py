"""What ended the query, told in one sentence and sorted into passing and lasting."""

import pytest

from ingest.contract.errors import ConfigError, FatalError, RetryableError
from streaming.query_failures import classify_query_failure


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("java.io.IOException: No space left on device", RetryableError, "disk"),
        (
            "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node",
            RetryableError,
            "Kafka at k:1",
        ),
        (
            "[STREAM_FAILED] Query terminated with exception: Authentication failed during authentication due to invalid "
            "credentials with SASL mechanism SCRAM-SHA-512",
            RetryableError,
            "refuses the login of [kafka]",
        ),
        (
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.SaslAuthenticationException: x",
            RetryableError,
            "refuses the login",
        ),
        ("[KAFKA_DATA_LOSS.X] Some data may have been lost", FatalError, "No record is skipped without a report"),
        ("java.lang.OutOfMemoryError: Java heap space", FatalError, "driver_memory"),
        ("Most recent failure: Lost task 0.3: ExecutorLostFailure (executor 2 exited)", RetryableError, "executor"),
        ("Most recent failure reason: FetchFailedException: Connection refused: /h:7337", RetryableError, "executors"),
        ("ExecutorLostFailure: java.lang.OutOfMemoryError: Java heap space", FatalError, "driver_memory"),
        ("boom\n\tat x.y.Z(Z.java:1)\nCaused by: a.B: the cause.\n\tat c", FatalError, "a.B: the cause. See /l"),
    ],
)
def test_a_fault_is_one_sentence_of_the_right_kind(text: str, kind: type[Exception], says: str) -> None:
    found = classify_query_failure(RuntimeError(text), bootstrap_servers="k:1", log="/l")
    assert type(found) is kind
    assert says in str(found)
    assert "\n" not in str(found)


DELTA_RS = """Kernel error -> Generic S3 error
          \x1b[31m↳\x1b[0m Error performing GET http://lake:9000/lake/x/_delta_log/_last_checkpoint in 101.958072ms
           \x1b[31m↳\x1b[0m tcp connect error
            \x1b[31m↳\x1b[0m Connection refused (os error 111)
"""
REFUSED = """Kernel error -> The operation lacked the necessary privileges to complete for path x/_delta_log/_last_checkpoint
          \x1b[31m↳\x1b[0m Server returned non-2xx status code
            \x1b[31m↳\x1b[0m <Error><Code>InvalidAccessKeyId</Code></Error>
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "org.apache.hadoop.fs.s3a.AWSClientIOException: create file: Connect to lake:9000 failed: Connection refused",
            "The object store does not answer",
        ),
        (DELTA_RS, "a request (Generic S3 error: Connection refused (os error 111)); landing"),
        (REFUSED, "Check lake.s3_access_key, lake.s3_secret_key"),
        ("org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials", "Check lake.s3_access_key"),
        ("java.nio.file.AccessDeniedException: s3a://lake/x: S3Exception: Access Denied", "Check lake.s3_access_key"),
        ("AWSBadRequestException: SignatureDoesNotMatch: S3Exception", "Check lake.s3_access_key"),
        (
            "Caused by: java.io.FileNotFoundException: No such file: s3a://l/_identities/x/0-1/a.parquet",
            "from the table",
        ),
        ("org.apache.hadoop.fs.s3a.UnknownStoreException: s3a://lake/: bucket does not exist", "have the bucket"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", "reads the checkpoint again"),
    ],
)
def test_an_error_of_the_store_is_not_one_of_kafka_and_landing_tries_again(text: str, says: str) -> None:
    for places in ({"root": "s3a://lake/tables"}, {"root": "/tables", "checkpoint": "s3a://lake/checkpoint"}):
        found = classify_query_failure(RuntimeError(text), bootstrap_servers="k:1", log="/l", **places)
        assert type(found) is RetryableError
        assert says in str(found)
        assert not set("\n\x1b") & set(str(found))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "java.nio.file.AccessDeniedException: /spark/local\n== Plan == checkpointLocation=s3a://lake/c",
            "query failed",
        ),
        (
            "AWSClientIOException: create file\nCaused by: java.lang.OutOfMemoryError: Java heap space",
            "ran out of memory",
        ),
    ],
)
def test_an_error_of_this_machine_is_not_one_of_the_store(text: str, says: str) -> None:
    found = classify_query_failure(RuntimeError(text), bootstrap_servers="k:1", log="/l", root="s3a://lake/tables")
    assert type(found) is FatalError
    assert says in str(found)


@pytest.mark.parametrize(
    ("root", "checkpoint"),
    [
        ("hdfs://n/t", "hdfs://n/c"),
        ("gs://b/t", "gs://b/c"),
        ("abfss://b/t", "s3a://b/c"),
        ("/tables", "/checkpoint"),
    ],
)
def test_two_streams_without_lock_or_fence_do_not_take_turns(root: str, checkpoint: str) -> None:
    """Both would land: nothing there keeps an overtaken stream from committing."""
    error = RuntimeError("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.")
    found = classify_query_failure(error, bootstrap_servers="k:1", log="/l", root=root, checkpoint=checkpoint)
    assert type(found) is FatalError
    assert "CONCURRENT_STREAM_LOG_UPDATE" in str(found)


def test_our_own_errors_pass_through() -> None:
    error = ConfigError("x")
    assert classify_query_failure(error, bootstrap_servers="k:1", log="/l") is error
