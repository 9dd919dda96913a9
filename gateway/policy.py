"""Checks of a device's readings beyond their format. This policy checks for plausible numbers; others extend it."""

from collections.abc import Iterable, Mapping, Set

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.gateway_settings import RouteSettings
from gateway.message import Message
from gateway.plausible.apply_table import sift_readings
from gateway.plausible.table import PlausibilityChecks, load_table
from ingest.contract.dead_letter import Reject
from ingest.contract.errors import ConfigError

__all__ = ["NumberLimits", "ReadingPolicy"]


class NumberLimits:
    """Usual kind of profile: only ranges of numbers, required metrics, and units to fill in."""

    def __init__(
        self,
        ranges: Mapping[str, tuple[float, float]],
        required: Set[str],
        units: Mapping[str, str],
        *,
        others: bool,
        table: PlausibilityChecks,
    ) -> None:
        """Take the rules.

        Args:
            ranges: lowest and highest value of each metric, both allowed.
            required: metrics that each message must have.
            units: of values without a unit.
            others: whether metrics without a range pass.
            table: numbers that no sensor measured, without those that the profile accepts.
        """
        self._ranges, self._required, self._others = dict(ranges), frozenset(required), others
        self.units, self.table = dict(units), table

    def hold(self, values: Mapping[str, object]) -> bool:
        """Return whether these are numbers within the limits, with none missing; False also if that is uncertain."""
        ranges = self._ranges
        for metric, value in values.items():
            if metric in ranges:
                low, high = ranges[metric]
                if type(value) is not float or not low <= value <= high:
                    return False
            elif not self._others:
                return False
        return not self._required or self._required <= values.keys()


class ReadingPolicy:
    """Policy, owned by the gateway's one thread and called for each device of each message, in receive order.

    `number` names the message (`Message.number`). At `roll_back` a policy forgets what it remembers of messages that are
    not acknowledged yet: the broker sends them again, and they must be judged as the first time. The same holds for
    acknowledged messages whose PUBACK was lost with their connection.
    """

    def begin(self, message: Message) -> None:
        """Note the message about which `admit` and `check` are asked next."""

    def admit(self, device: str, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """Return why a device's part of a message is rejected as a whole (unregistered, over its rate); else None.

        Asked also for messages that could not be decoded: a flood of garbage is a flood too.
        """
        return None

    def check(self, decoded: Decoded, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """Move readings that the device's profile rejects from `readings` to `rejects`, add flags; a Reject rejects all.

        Here: numbers that no sensor measured.
        """
        sift_readings(decoded, match, load_table())
        return None

    def plain(self, device: str) -> bool:
        """Return whether plausible numbers are the only check of this device on a native topic.

        Cheap (one look into a dict) and valid until the next `tick`.
        """
        return True

    def number_limits(self, device: str) -> NumberLimits | None:
        """Return the limits if they are the only checks of a device on a native topic; None if there are others.

        Valid until the next `tick`, like `plain`; asked if `plain` returns False.
        """
        return None

    def memory_fill(self) -> dict[str, float]:
        """Return the used share of each memory that is bounded by a number of devices or metrics, by name."""
        return {}

    def follow_routes(self, routes: Iterable[RouteSettings]) -> None:
        """Follow these routes from now on; they may name profiles.

        Raises:
            ConfigError: a route names a profile that does not exist.
        """
        named = {route.profile for route in routes if route.profile is not None}
        if named:
            message = f"a route names profile {min(named)!r}, but gateway.profiles is not set to a folder of profiles"
            raise ConfigError(message)

    def tick(self) -> None:
        """Read changed files, about once a second, between messages. Never raises, never waits."""

    def acknowledged(self, upto: int) -> None:
        """Note that the PUBACKs of messages up to this number are written; the broker may not have them yet."""

    def roll_back(self) -> None:
        """Forget what came from messages that will come again, for a new connection."""
