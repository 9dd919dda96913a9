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
        (
            "org.apache.hadoop.fs.s3a.AWSClientIOException: create file: Connect to lake:9000 failed: Connection refused",
            RetryableError,
            "The object store does not answer",
        ),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", RetryableError, "reads the checkpoint again"),
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


def test_our_own_errors_pass_through() -> None:
    error = ConfigError("x")
    assert classify_query_failure(error, bootstrap_servers="k:1", log="/l") is error
