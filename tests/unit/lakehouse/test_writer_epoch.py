"""The error of a writer whose commit met another one, while its log cannot be read."""

from collections.abc import Callable

import pytest

from lakehouse import writer_epoch
from lakehouse.writer_epoch import CommitConflictError, Fence, FencedError


def log(*answers: int | None) -> Callable[[str], tuple[int, int]]:
    """Return what reads a log: epochs in turn, the last one for ever; None is a store that does not answer."""
    left = list(answers)

    def read(uri: str) -> tuple[int, int]:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer is None:
            message = "Generic S3 error"
            raise OSError(message)
        return 7, answer

    return read


def conflict(monkeypatch: pytest.MonkeyPatch, patience: float, *answers: int | None) -> type[CommitConflictError]:
    monkeypatch.setattr(writer_epoch, "PATIENCE_SECONDS", patience)
    monkeypatch.setattr(writer_epoch, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(writer_epoch, "_read", log(*answers))
    return type(Fence("s3a://lake/tables/readings", 1, 6).conflict())


def test_a_takeover_is_found_when_the_log_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert conflict(monkeypatch, 60.0, None, None, 2) is FencedError
    assert conflict(monkeypatch, 60.0, None, 1) is CommitConflictError


def test_a_log_that_stays_unreadable_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert conflict(monkeypatch, 0.0, None) is CommitConflictError


def test_a_readable_log_without_a_newer_epoch_needs_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(seconds: float) -> None:
        pytest.fail("it waited")

    monkeypatch.setattr("time.sleep", never)
    assert conflict(monkeypatch, 60.0, 1) is CommitConflictError
