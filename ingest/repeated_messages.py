"""Filter that keeps a client's log readable during an outage: it logs a repeated message only now and then, with a count.

librdkafka logs each failed attempt to connect, several in a second, for as long as an outage lasts.
"""

import logging
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final

__all__ = ["RepeatedMessageFilter"]

EVERY_SECONDS: Final = 30.0
MAX_MESSAGES: Final = 256
_NUMBER: Final = re.compile(r"\d+")


class RepeatedMessageFilter(logging.Filter):
    """Filter that passes a message once in 30 s; the next one says how many were left out. Numbers in it are ignored.

    Remembers the 256 newest messages.
    """

    def __init__(self, *, every: float = EVERY_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._every, self._clock = every, clock
        self._seen: OrderedDict[tuple[int, str], tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record; its text gets the count."""
        text, now = record.getMessage(), self._clock()
        key = (record.levelno, _NUMBER.sub("0", text))
        at, left_out = self._seen.get(key, (-math.inf, 0))
        if now - at < self._every:
            self._seen[key] = (at, left_out + 1)
            return False
        self._seen[key] = (now, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > MAX_MESSAGES:
            self._seen.popitem(last=False)
        if left_out:
            record.msg, record.args = f"{text} (and {left_out:,} more like it in {now - at:.0f} s)", ()
        return True
