"""Family of errors. Each message says what happened, where, what was wanted and the next step.

TidegateError
├── RetryableError      try again after `retry_after_seconds`; nothing is lost
└── FatalError          a promise or the set-up is broken: the process ends with `exit_code`
    ├── ConfigError         exit 78: a setting is wrong
    └── UnavailableError    exit 69: something that is needed is missing
        └── MissingRightError   the same exit: a right in Kafka that only its administrator can grant
"""

__all__ = ["ConfigError", "FatalError", "MissingRightError", "RetryableError", "TidegateError", "UnavailableError"]


class TidegateError(Exception):
    """Root of all errors that this product raises on purpose. `str()` is a text on which a person can act."""

    exit_code = 1


class RetryableError(TidegateError):
    """A temporary error. The caller waits `retry_after_seconds` and tries again."""

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class FatalError(TidegateError):
    """Wrong set-up or a broken promise. The process stops, says why, and exits non-zero."""


class ConfigError(FatalError):
    """A setting is malformed or contradicts another; the text names file, key and a suggestion."""

    exit_code = 78


class UnavailableError(FatalError):
    """Something that this command needs is missing or cannot be reached."""

    exit_code = 69


class MissingRightError(UnavailableError):
    """The user of the settings lacks a right; the text names user, right, resource and what was refused."""
