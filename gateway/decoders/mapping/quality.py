"""Quality next to a value: good values are kept, bad ones rejected, the rest flagged."""

from typing import Any, Final

from gateway.decoders.mapping.conditions import as_text
from gateway.decoders.mapping.paths import parse_path
from gateway.decoders.mapping.value_settings import NOT_BY_QUALITY, QualitySettings
from gateway.glob_patterns import compile_globs
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["UNCERTAIN", "QualityRule"]

UNCERTAIN: Final = "quality_uncertain"


class QualityRule:
    """One rule, compiled."""

    def __init__(self, settings: QualitySettings) -> None:
        """Compile.

        Raises:
            BadPath: the path cannot be read.
        """
        self.path = parse_path(settings.path)
        self._good, self._bad = compile_globs(settings.good), compile_globs(settings.bad)

    def judge(self, item: object, root: object) -> str | Reject | None:
        """Return None for a good value; a flag; or why it is not a value, without its path."""
        value: Any = self.path.look(item, root)
        if value is None:
            return None
        text = as_text(value)
        if self._good is not None and self._good(text):
            return None
        if self._bad is None or not self._bad(text):
            return UNCERTAIN
        return Reject(Reason.BAD_NUMBER, None, show_text(f"{self.path.text} = {text}"), NOT_BY_QUALITY)
