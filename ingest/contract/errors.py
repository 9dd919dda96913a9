"""The error family. Each message says what happened, where, what was wanted and the next step.

TidegateError
├── RetryableError      try again after `retry_after_seconds`; nothing is lost
└── FatalError          a promise or the set-up is broken: the process ends with `exit_code`
    ├── ConfigError         exit 78: a setting is wrong
    └── UnavailableError    exit 69: something that is needed is not there
        └── MissingRightError   the same exit: a right in Kafka, which only its administrator grants
"""

__all__ = ["ConfigError", "FatalError", "MissingRightError", "RetryableError", "TidegateError", "UnavailableError"]


class TidegateError(Exception):
    """Root of all errors that this product raises on purpose; `str()` is one sentence a person can act on."""

    exit_code = 1


class RetryableError(TidegateError):
    """A passing fault. The caller waits `retry_after_seconds` and tries again."""

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class FatalError(TidegateError):
    """Wrong set-up or a broken promise: stop, say why, exit non-zero."""


class ConfigError(FatalError):
    """A setting is malformed or contradicts another; names file, key and a suggestion."""

    exit_code = 78


class UnavailableError(FatalError):
    """A part that this command needs is missing or cannot be reached."""

    exit_code = 69


class MissingRightError(UnavailableError):
    """The user of the settings lacks a right; names the user, the right, what it is granted on, and what was refused."""
