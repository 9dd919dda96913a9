"""Choice of the profile for a device: an immutable set, made again at each reload."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from gateway.glob_patterns import compile_glob, glob_sort_key
from gateway.profiles.check import CompiledProfile
from gateway.profiles.model import Profile

__all__ = ["ProfileChoice", "ProfileSet"]

_MAX_DEVICES: Final = 100_000


class ProfileChoice(NamedTuple):
    """Profile that applies to a device, and why: `registry`, `route`, or the pattern that matched."""

    compiled: CompiledProfile
    because: str


class ProfileSet:
    """Profiles that apply. Of several versions of one name it holds the highest.

    Order: the registry's profile of this device, then the route's, then patterns: one without a wildcard, then the one with
    more literal characters, then with fewer `*`, then by pattern and name in alphabetical order.
    """

    def __init__(self, profiles: Iterable[Profile] = ()) -> None:
        newest: dict[str, Profile] = {}
        for profile in profiles:
            if profile.name not in newest or profile.version > newest[profile.name].version:
                newest[profile.name] = profile
        self._compiled = {name: CompiledProfile(newest[name]) for name in sorted(newest)}
        pairs = [(pattern, name) for name, profile in newest.items() for pattern in profile.devices]
        pairs.sort(key=lambda pair: (*glob_sort_key(pair[0]), pair[1]))
        self._patterns = [(compile_glob(pattern), pattern, name) for pattern, name in pairs]
        self._by_pattern: dict[str, ProfileChoice | None] = {}

    def __len__(self) -> int:
        return len(self._compiled)

    def names(self) -> list[str]:
        """Names of the profiles, in alphabetical order."""
        return list(self._compiled)

    def active(self) -> list[Profile]:
        """Profiles that apply, by name."""
        return [compiled.profile for compiled in self._compiled.values()]

    def get(self, name: str) -> CompiledProfile | None:
        """Return the newest version of a name."""
        return self._compiled.get(name)

    def choose(self, device: str, *, registered: str | None = None, route: str | None = None) -> ProfileChoice | None:
        """Return the profile of a device, None if none applies."""
        for name, because in ((registered, "registry"), (route, "route")):
            found = None if name is None else self._compiled.get(name)
            if found is not None:
                return ProfileChoice(found, because)
        if not self._patterns:
            return None
        try:
            return self._by_pattern[device]
        except KeyError:
            pass
        choice = next(
            (ProfileChoice(self._compiled[n], p) for glob, p, n in self._patterns if glob.fullmatch(device)), None
        )
        if len(self._by_pattern) >= _MAX_DEVICES:
            self._by_pattern.clear()
        self._by_pattern[device] = choice
        return choice

    def matching(self, device: str) -> list[ProfileChoice]:
        """Return every pattern that matches a device, in order of precedence: the first applies."""
        return [ProfileChoice(self._compiled[n], p) for glob, p, n in self._patterns if glob.fullmatch(device)]
