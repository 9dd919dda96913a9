"""What is asked of a device's readings beyond their format. This one asks for plausible numbers; others extend it."""

from collections.abc import Iterable, Mapping, Set

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.message import Message
from gateway.plausible.sift import sift
from gateway.plausible.table import Watches, load_table
from gateway.settings import RouteSettings
from ingest.contract.dead_letter import Reject
from ingest.contract.errors import ConfigError

__all__ = ["NumberLimits", "Policy"]


class NumberLimits:
    """A profile that asks nothing but ranges of numbers, names what must be there, and fills in units: the usual one."""

    def __init__(
        self,
        ranges: Mapping[str, tuple[float, float]],
        required: Set[str],
        units: Mapping[str, str],
        *,
        others: bool,
        table: Watches,
    ) -> None:
        """Take the rules.

        Args:
            ranges: lowest and highest value of each metric, both allowed.
            required: metrics that each message must have.
            units: of values that name none.
            others: whether metrics that have no range pass.
            table: numbers that no sensor measured, without those that the profile accepts.
        """
        self._ranges, self._required, self._others = dict(ranges), frozenset(required), others
        self.units, self.table = dict(units), table

    def hold(self, values: Mapping[str, object]) -> bool:
        """Whether these are numbers within the limits, with none missing; False also where that is not for sure."""
        ranges = self._ranges
        for metric, value in values.items():
            if metric in ranges:
                low, high = ranges[metric]
                if type(value) is not float or not low <= value <= high:
                    return False
            elif not self._others:
                return False
        return not self._required or self._required <= values.keys()


class Policy:
    """Owned by the gateway's one thread; called for each device of each message, in receive order.

    `number` names the message (`Message.number`). What a policy remembers of messages that are not acknowledged yet
    it forgets at `roll_back`: the broker sends them again, and they must then be judged as the first time. So must those
    whose PUBACK was lost with their connection, though they were acknowledged.
    """

    def begin(self, message: Message) -> None:
        """A message comes; `admit` and `check` are asked about it until the next one."""

    def admit(self, device: str, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """Why this message's part of that device is refused as a whole (unregistered, over its rate); else None.

        Asked also for messages that could not be decoded: a flood of garbage is a flood.
        """
        return None

    def check(self, decoded: Decoded, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """Move what the device's profile refuses from `readings` to `rejects`, add flags; a Reject refuses all.

        Here: numbers that no sensor measured.
        """
        sift(decoded, match, load_table())
        return None

    def plain(self, device: str) -> bool:
        """Whether no more than plausible numbers is asked of this device on a native topic.

        Cheap (one look into a dict) and true until the next `tick`.
        """
        return True

    def number_limits(self, device: str) -> NumberLimits | None:
        """Where all that is asked of a device on a native topic is of this kind; None where it is more.

        True until the next `tick`, as `plain` is; asked where that says False.
        """
        return None

    def memory_fill(self) -> dict[str, float]:
        """Shares in use of the memories that are bounded by a number of devices or metrics, by name."""
        return {}

    def follow_routes(self, routes: Iterable[RouteSettings]) -> None:
        """These routes are to apply from now on; they may name profiles.

        Raises:
            ConfigError: one names a profile that is not there.
        """
        named = {route.profile for route in routes if route.profile is not None}
        if named:
            message = f"a route names profile {min(named)!r}, but gateway.profiles names no folder of profiles"
            raise ConfigError(message)

    def tick(self) -> None:
        """Called about once a second, between messages: read anew what changed on disk. Never raises, never waits."""

    def acknowledged(self, upto: int) -> None:
        """The PUBACKs of messages up to this number are written; the broker may not have them yet."""

    def roll_back(self) -> None:
        """A new connection begins: forget what came from messages that will come again."""
