"""Condition of the gateway, in one word and one sentence, for `/healthz` and `tidegate status`."""

import logging
import time
from typing import Final, Literal

__all__ = ["GatewayHealth", "State"]

logger = logging.getLogger("tidegate.gateway")

STALLED_SECONDS: Final = 30.0
State = Literal["starting", "standby", "waiting", "running", "stalled", "draining", "failed", "stopped"]


class GatewayHealth:
    """Condition, written by the loop's thread and read by others."""

    def __init__(self) -> None:
        self._state: State = "starting"
        self._detail, self._since = "starting", time.time()
        self._beat_at = time.monotonic()

    def beat(self) -> None:
        """Note that the loop turned."""
        self._beat_at = time.monotonic()

    def say(self, state: State, detail: str) -> None:
        """Set the state that people see; a change of state is logged."""
        if state != self._state:
            self._since = time.time()
            logger.info("gateway %s: %s", state, detail)
        self._state, self._detail = state, detail

    def now(self) -> tuple[State, str, float]:
        """Return state, sentence and since when (epoch seconds). A loop that does not turn is `stalled`, whatever it said."""
        age = time.monotonic() - self._beat_at
        if self._state not in ("failed", "stopped") and age > STALLED_SECONDS:
            return "stalled", f"the gateway's loop has not turned for {age:.0f} s", self._since
        return self._state, self._detail, self._since
