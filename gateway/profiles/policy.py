"""Policy of a gateway whose settings ask for one: rate, registry and profiles, in this order."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.device_registry import DeviceRegistry, RegisteredDevice, unknown_profile
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message import Message
from gateway.plausible.apply_table import sift_readings
from gateway.plausible.table import load_table
from gateway.policy import NumberLimits, ReadingPolicy
from gateway.profiles.check import CompiledProfile
from gateway.profiles.check_memory import JudgedMessage, JudgementCache, ReplayedTracks, TrackMemory
from gateway.profiles.profile_folder import ProfileFolder
from gateway.profiles.profile_set import ProfileChoice, ProfileSet
from gateway.rate import FLOOD_KEEP_BYTES, DeviceRate
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.errors import ConfigError
from ingest.contract.reasons import Reason
from monitoring.metrics.gateway import GatewayMetrics

__all__ = ["ProfilePolicy", "make_policy"]

_MAX_CACHED: Final = 100_000
_EMPTY: Final = ProfileSet()


def make_policy(
    settings: GatewaySettings,
    routes: Iterable[RouteSettings] = (),
    *,
    metrics: GatewayMetrics | None = None,
    live: bool = True,
) -> ReadingPolicy:
    """Make the policy that the settings ask for; the plain one if they ask for none.

    Args:
        settings: name the folder of profiles, the registry and the rate.
        routes: may name profiles.
        metrics: get the number of reloads of profiles, and of rejected files.
        live: False for messages in a file, which have no rate.

    Raises:
        ConfigError: a profile or the registry is wrong, or a route or a device names a profile that does not exist.
    """
    named = {route.profile for route in routes if route.profile is not None}
    folder = None
    if settings.profiles is not None:
        folder = ProfileFolder(Path(settings.profiles), needed=named)
    elif named:
        message = f"a route names profile {min(named)!r}, but gateway.profiles is not set to a folder of profiles"
        raise ConfigError(message)
    registry = None if settings.device_registry is None else DeviceRegistry(Path(settings.device_registry))
    if registry is None and settings.unregistered != "accept":
        message = f'gateway.unregistered = "{settings.unregistered}" needs gateway.device_registry, a file of devices'
        raise ConfigError(message)
    rate = None
    if live and settings.device_rate:
        rate = DeviceRate(
            settings.device_rate,
            settings.device_burst or max(10.0, 10 * settings.device_rate),
            catch_up_seconds=settings.device_catch_up_seconds,
        )
    if folder is None and registry is None and rate is None:
        return ReadingPolicy()
    return ProfilePolicy(
        folder, registry, rate,
        unregistered=settings.unregistered, window_messages=settings.window_messages, metrics=metrics,
    )  # fmt: skip


class ProfilePolicy(ReadingPolicy):
    """Policy that checks the rate first (the cheapest check in a flood), then whether the device is known, then its profile."""

    def __init__(
        self,
        folder: ProfileFolder | None = None,
        registry: DeviceRegistry | None = None,
        rate: DeviceRate | None = None,
        *,
        unregistered: Literal["accept", "quarantine", "refuse"] = "accept",
        window_messages: int = 1000,
        metrics: GatewayMetrics | None = None,
    ) -> None:
        """Take the profiles and the registry that were read at start.

        Raises:
            ConfigError: a registered device names a profile that does not exist.
        """
        self._folder, self._registry, self._rate, self._metrics = folder, registry, rate, metrics
        self._unregistered = unregistered
        self._memory = TrackMemory()
        self._judgements, self._current = JudgementCache(window_messages=window_messages), JudgedMessage(None, 0)
        # Choice for each device until the next reload.
        self._plain: dict[str, bool] = {}
        self._found: dict[tuple[str, str | None], tuple[dict[str, str], CompiledProfile | None]] = {}
        fault = unknown_profile(self._devices, set(self.profiles.names()))
        if fault is not None:
            raise ConfigError(fault)
        self._report(applied=False)

    def follow_routes(self, routes: Iterable[RouteSettings]) -> None:
        """See ReadingPolicy."""
        if self._folder is None:
            super().follow_routes(routes)
        else:
            self._folder.need({route.profile for route in routes if route.profile is not None})

    @property
    def profiles(self) -> ProfileSet:
        """Profiles that apply now."""
        return _EMPTY if self._folder is None else self._folder.current

    @property
    def _devices(self) -> dict[str, RegisteredDevice]:
        return {} if self._registry is None else self._registry.devices

    def begin(self, message: Message) -> None:
        """See ReadingPolicy."""
        self._current = self._judgements.begin(message)

    def admit(self, device: str, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """See ReadingPolicy. Quarantine keeps the payload for a redrive once the device is known; refuse keeps only its hash."""
        rate = self._rate
        if rate is not None and not self._is_within(rate, device, received_us, number):
            return Reject(
                Reason.RATE_LIMITED,
                None,
                f"more than {rate.per_second:g} messages per second (and {rate.burst:g} at once)",
                "fewer messages; the gateway does not hold messages back for later",
                keep_bytes=FLOOD_KEEP_BYTES,
            )
        if self._unregistered == "accept" or device in self._devices:
            return None
        keep = 0 if self._unregistered == "refuse" else None
        wanted = "a registered device (tidegate device add)"
        return Reject(Reason.UNKNOWN_DEVICE, "topic", show_text(device), wanted, keep_bytes=keep)

    def check(self, decoded: Decoded, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """See ReadingPolicy."""
        key = decoded.device, match.profile
        found = self._found.get(key)
        if found is None:
            found = self._find(decoded.device, match)
            if len(self._found) >= _MAX_CACHED:
                self._found.clear()
            self._found[key] = found
        tags, compiled = found
        if tags:
            decoded.tags = {**tags, **(decoded.tags or {})}
        sift_readings(decoded, match, load_table() if compiled is None else compiled.table)
        if compiled is None:
            return None
        current = self._current
        if current.is_repeated:
            return compiled.check(decoded, match, current.received_us, number, ReplayedTracks(current, self._memory))
        self._memory.noted = current.before
        refused = compiled.check(decoded, match, received_us, number, self._memory)
        self._judgements.keep(number, current)
        return refused

    def plain(self, device: str) -> bool:
        """See ReadingPolicy."""
        if self._rate is not None:
            return False
        found = self._plain.get(device)
        if found is None:
            if len(self._plain) >= _MAX_CACHED:
                self._plain.clear()
            known = self._devices.get(device)
            is_welcome = self._unregistered == "accept" or known is not None
            found = is_welcome and not (known and known.tags) and self.choose(device, None) is None
            self._plain[device] = found
        return found

    def number_limits(self, device: str) -> NumberLimits | None:
        """See ReadingPolicy."""
        if self._rate is not None or (self._unregistered != "accept" and device not in self._devices):
            return None
        known, choice = self._devices.get(device), self.choose(device, None)
        return None if choice is None or (known is not None and known.tags) else choice.compiled.number_limits

    def memory_fill(self) -> dict[str, float]:
        """See ReadingPolicy."""
        rate = {} if self._rate is None else {"rate": self._rate.fill}
        return {"tracks": self._memory.fill, **rate}

    def tick(self) -> None:
        """See ReadingPolicy."""
        applied = self._folder is not None and self._folder.refresh(
            needed=() if self._registry is None else self._registry.profiles()
        )
        if self._registry is not None:
            applied = self._registry.refresh(set(self.profiles.names())) or applied
        if applied:
            self._plain.clear()
            self._found.clear()
        self._report(applied=applied)

    def acknowledged(self, upto: int) -> None:
        """See ReadingPolicy."""
        self._judgements.acknowledged(upto)
        self._memory.acknowledged(upto)
        if self._rate is not None:
            self._rate.acknowledged(upto)

    def roll_back(self) -> None:
        """See ReadingPolicy."""
        self._judgements.roll_back()
        self._memory.roll_back()
        if self._rate is not None:
            self._rate.roll_back()

    def _is_within(self, rate: DeviceRate, device: str, received_us: int, number: int) -> bool:
        current = self._current
        if current.is_repeated and device in current.within:
            return current.within[device]
        is_within = rate.take(device, received_us, number)
        if not current.is_repeated:
            current.within[device] = is_within
            self._judgements.keep(number, current)
        return is_within

    def _find(self, device: str, match: RouteMatch) -> tuple[dict[str, str], CompiledProfile | None]:
        known, choice = self._devices.get(device), self.choose(device, match)
        return {} if known is None else known.tags, None if choice is None else choice.compiled

    def registered(self, device: str) -> RegisteredDevice | None:
        """Return the registry's entry of a device."""
        return self._devices.get(device)

    def choose(self, device: str, match: RouteMatch | None) -> ProfileChoice | None:
        """Return the profile that applies to a device whose messages come by this route, and why."""
        known = self._devices.get(device)
        return self.profiles.choose(
            device,
            registered=None if known is None else known.profile,
            route=None if match is None else match.profile,
        )

    def _report(self, *, applied: bool) -> None:
        if self._metrics is None:
            return
        refused = 0 if self._folder is None else len(self._folder.refused)
        refused += self._registry is not None and self._registry.refused is not None
        self._metrics.profiles_refused.set(refused)
        if applied:
            self._metrics.profile_reloads.inc()
