"""Routes that change while the gateway runs: taken whole between two messages, or refused while the old ones stay.

A message keeps what was made of it: its records and its place in the chain of acknowledgements do not look at routes again.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gateway.decoders.vendor_settings import VendorSettings
from gateway.express import Express
from gateway.outcome import Gate
from gateway.own_state import OwnState
from gateway.policy import Policy
from gateway.refusal import Receipts
from gateway.routes import RouteTable, compile_routes
from gateway.settings import GatewaySettings, RouteSettings
from ingest.contract.errors import ConfigError

__all__ = ["NewRoutes", "ReadRoutes", "RouteReload", "no_news"]

logger = logging.getLogger("tidegate.gateway")


class NewRoutes(NamedTuple):
    """What changed: all routes and vendors of the settings, in which `source`."""

    routes: tuple[RouteSettings, ...]
    vendors: Mapping[str, VendorSettings]
    source: str


ReadRoutes = Callable[[], NewRoutes | None]
"""Called about once a second; None where nothing changed. ConfigError where the change is bad: told once for each change."""


def no_news() -> None:
    """Routes that never change."""
    return


class RouteReload:
    """Owned by the gateway's one thread, and called between messages."""

    def __init__(self, read: ReadRoutes, table: RouteTable, limits: GatewaySettings) -> None:
        """`table` is the one that gate and short way follow."""
        self._read, self._table, self._limits = read, table, limits

    def tick(self, gate: Gate, express: Express, policy: Policy, receipts: Receipts, own: OwnState) -> bool:
        """Look for a change and take it; True where it was taken."""
        source = ""
        try:
            new = self._read()
            if new is None:
                return False
            source = f" of {new.source}"
            table = compile_routes(new.routes, self._limits.with_vendors(new.vendors))
            gate.find_decoders()
            policy.follow_routes(new.routes)
        except ConfigError as error:
            logger.error("changed routes%s are refused, those before stay: %s", source, error)
            return False
        # From here on nothing fails: what follows routes follows the new ones, all at once.
        self._table.take(table)
        express.forget_topics()
        receipts.follow_routes(table)
        own.count_again()
        logger.info("changed routes of %s apply: %d, before the shipped ones", new.source, len(new.routes))
        return True
