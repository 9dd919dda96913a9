"""Routes that change while the gateway runs: applied as a whole between two messages, or rejected while the old ones stay.

A message keeps its outcome: its records and its place in the chain of acknowledgements do not depend on routes any longer.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gateway.decoders.vendor_settings import VendorSettings
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.memory.restart_state import GatewayState
from gateway.message_processor import MessageProcessor
from gateway.policy import ReadingPolicy
from gateway.replies.rejection import ReceiptBuilder
from gateway.routes import RouteTable, compile_routes
from ingest.contract.errors import ConfigError

__all__ = ["ReadRoutes", "RouteReload", "RouteUpdate", "no_route_update"]

logger = logging.getLogger("tidegate.gateway")


class RouteUpdate(NamedTuple):
    """Changed routes: all routes and vendors of the settings in `source`."""

    routes: tuple[RouteSettings, ...]
    vendors: Mapping[str, VendorSettings]
    source: str


ReadRoutes = Callable[[], RouteUpdate | None]
"""Called about once a second; None if nothing changed. ConfigError if the change is bad, once for each change."""


def no_route_update() -> None:
    """Return None: routes that never change."""
    return


class RouteReload:
    """Reload of routes. Owned by the gateway's one thread, and called between messages."""

    def __init__(self, read: ReadRoutes, table: RouteTable, limits: GatewaySettings) -> None:
        """Take the table that gate and fast path follow."""
        self._read, self._table, self._limits = read, table, limits

    def tick(
        self,
        gate: MessageProcessor,
        express: FastPathEncoder,
        policy: ReadingPolicy,
        receipts: ReceiptBuilder,
        own: GatewayState,
    ) -> bool:
        """Look for a change and apply it; True if one was applied."""
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
            logger.error("Rejected the changed routes%s. The previous routes stay in use: %s", source, error)
            return False
        # From here on nothing fails: everything switches to the new routes at once.
        self._table.take(table)
        express.forget_topics()
        receipts.follow_routes(table)
        own.count_again()
        logger.info(
            "The routes of %s have changed: %d now apply, before the shipped ones.", new.source, len(new.routes)
        )
        return True
