"""One profile applied to one message: readings that stay, rejections with their path, and flags.

The profile also changes which numbers count as not measured (see `gateway/plausible`).
"""

from collections.abc import Callable
from typing import Final

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.glob_patterns import compile_glob, glob_sort_key, is_glob
from gateway.plausible.table import PlausibilityCheck, PlausibilityChecks, PlausibilityTable, load_table
from gateway.policy import NumberLimits
from gateway.profiles.check_memory import MetricTrack, Tracks
from gateway.profiles.model import Profile
from gateway.profiles.rule import MetricRule, RuleViolation, look_back
from gateway.reading_path import item_path, member_path, native_batch, reading_path, show_reading
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

__all__ = ["CompiledProfile"]

_MAX_NAMES: Final = 10_000
"""Most metric names whose rule by pattern is remembered."""


class AcceptedNumbers(PlausibilityChecks):
    """Checks with the profile's units, accepted entries and ranges; the profile judges numbers outside its own ranges."""

    def __init__(self, profile: Profile, rule_of: Callable[[str], MetricRule | None]) -> None:
        """Take the profile, and `rule_of`, which finds the rules of a metric."""
        super().__init__()
        self._accept, self._rule_of = profile.accept, rule_of
        self._tables: dict[tuple[frozenset[str], bool], PlausibilityTable] = {}

    def _find(self, metric: str, unit: str | None) -> PlausibilityCheck:
        rule = self._rule_of(metric)
        spelled = unit if rule is None else rule.unit_of(unit)
        found = self._table(rule).watch(metric, spelled)
        if rule is not None and rule.has_range and rule.rules.convert_to in (None, spelled):
            found = found.within(rule.low, rule.high)
        return found

    def _table(self, rule: MetricRule | None) -> PlausibilityTable:
        accepted, ranges = frozenset(self._accept), True
        if rule is not None:
            accepted |= frozenset(rule.rules.accept)
            ranges = not rule.has_range
        if not accepted and ranges:
            return load_table()
        key = accepted, ranges
        if key not in self._tables:
            self._tables[key] = load_table().without(accepted, ranges=ranges)
        return self._tables[key]


class CompiledProfile:
    """Profile ready to be applied. It has no memory of devices: that is passed to `check`, and outlives a reload."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        rules = self._rules = {name: MetricRule(profile, metric) for name, metric in profile.metrics.items()}
        self._named: dict[str, MetricRule | None] = {n: rule for n, rule in rules.items() if not is_glob(n)}
        patterns = sorted((name for name in rules if is_glob(name)), key=glob_sort_key)
        self._patterns = [(compile_glob(name), rules[name]) for name in patterns]
        self._required = {name for name, metric in profile.metrics.items() if metric.required}
        self._looks_back = any(rule.is_temporal for rule in rules.values())
        self._unknown = profile.unknown_metrics
        self.table = AcceptedNumbers(profile, self.rule_of)
        self.number_limits = None if self._patterns or self._looks_back else self._as_number_limits()

    def _as_number_limits(self) -> NumberLimits:
        """Return the rules as ranges; a metric that needs a closer check gets a range without numbers."""
        return NumberLimits(
            {name: (rule.low, rule.high) if rule.is_simple else (1.0, 0.0) for name, rule in self._rules.items()},
            self._required,
            {name: rule.unit for name, rule in self._rules.items() if rule.is_simple and rule.unit is not None},
            others=self._unknown == "keep",
            table=self.table,
        )

    def rule_of(self, metric: str) -> MetricRule | None:
        """Return the rules of a metric: by its name, else by the most specific pattern; None if it is unknown."""
        try:
            return self._named[metric]
        except KeyError:
            pass
        found = next((rule for pattern, rule in self._patterns if pattern.fullmatch(metric)), None)
        if len(self._named) < _MAX_NAMES:
            self._named[metric] = found
        return found

    def check(
        self, decoded: Decoded, match: RouteMatch, received_us: int, number: int, memory: Tracks
    ) -> Reject | None:
        """See `ReadingPolicy.check`. If a `reject` fails, nothing of the message passes, and `decoded` is left half done."""
        if not decoded.readings and not decoded.rejects:
            return None  # it has no readings, so nothing is missing: ignored, as without a profile
        is_clean = self._passes(decoded.readings)
        if is_clean and not self._looks_back:
            return None
        sieve = _Sieve(self, decoded, match)
        refused = None
        if not is_clean:
            refused = sieve.inspect()
            if refused is None and self._required:
                refused = sieve.miss(self._find_missing(decoded, match))
        if refused is None and self._looks_back:
            refused = sieve.look_back(received_us, number, memory)
        if refused is None:
            decoded.readings = sieve.kept
            decoded.rejects = [*decoded.rejects, *sieve.rejects]
        return refused

    def _passes(self, readings: list[Reading]) -> bool:
        """Return whether everything passes without earlier readings; False also if that needs a closer check.

        The usual message needs only this: known metrics, plain numbers, in range, each required one present.
        """
        rules, missing = self._named, len(self._required)
        for reading in readings:
            rule = rules.get(reading.metric)
            if reading.index or reading.message_id is not None:
                return False  # of a batch: each of its items must have what is required
            if rule is None:
                if self._unknown != "keep" or reading.metric not in rules:
                    return False
                continue
            value, unit = reading.value, reading.unit
            if (
                rule.is_simple
                and value is not None
                and reading.text is None
                and rule.low <= value <= rule.high
                and (unit is None or unit == rule.unit or rule.unit is None)
            ):
                if unit is None:
                    reading.unit = rule.unit
            elif rule.converts or rule.inspect(reading) is not None:
                return False
            if rule.is_required:
                missing -= 1
        return missing == 0

    def unknown(self, reading: Reading) -> RuleViolation | None:
        """Return the profile's reaction to a metric that it does not name."""
        if self._unknown == "keep":
            return None
        return RuleViolation(
            Reason.UNKNOWN_METRIC, self._unknown, show_reading(reading), "a metric that the profile names"
        )

    def missing(self, metric: str) -> RuleViolation:
        """Return the profile's reaction to a message without this required metric."""
        rule = self._rules[metric]
        return rule.fault("missing_field", "nothing", f"{metric}: {rule.wanted}")

    def _find_missing(self, decoded: Decoded, match: RouteMatch) -> list[tuple[str, str]]:
        """Return (path, metric) of each required metric that an item lacks. One that its decoder rejected is not missing."""
        items: dict[str, set[str]] = {}
        is_batch = native_batch(decoded, match)
        for reading in decoded.readings:
            items.setdefault(item_path(match, reading, is_batch), set()).add(reading.metric)
        if not items:
            items["$.values" if match.decoder == "native" else "$"] = set()
        refused = {reject.path or "" for reject in decoded.rejects}
        return [
            (path, metric)
            for root, present in items.items()
            for metric in sorted(self._required - present)
            if not _is_among(path := member_path(root, metric), refused)
        ]


class _Sieve:
    """One message in a profile. Its methods return why the whole message is rejected, else None."""

    __slots__ = ("_decoded", "_is_batch", "_match", "_profile", "kept", "rejects")

    def __init__(self, profile: CompiledProfile, decoded: Decoded, match: RouteMatch) -> None:
        self._profile, self._decoded, self._match = profile, decoded, match
        self._is_batch = native_batch(decoded, match)
        self.kept = decoded.readings
        self.rejects: list[Reject] = []

    def inspect(self) -> Reject | None:
        """Check each reading by itself."""
        kept: list[Reading] = []
        rule_of, unknown = self._profile.rule_of, self._profile.unknown
        for reading in self._decoded.readings:
            rule = rule_of(reading.metric)
            fault = unknown(reading) if rule is None else rule.inspect(reading)
            if fault is None or fault.action == "flag":
                kept.append(reading)
            if fault is not None:
                refused = self._apply(reading, fault)
                if refused is not None:
                    return refused
        self.kept = kept
        return None

    def miss(self, missing: list[tuple[str, str]]) -> Reject | None:
        """Handle missing required metrics; a flag for them is set on the message."""
        for path, metric in missing:
            fault = self._profile.missing(metric)
            if fault.action == "reject":
                return self._reject(path, fault)
            if fault.action == "salvage":
                self.rejects.append(self._reject(path, fault))
            elif fault.reason not in (flags := self._decoded.flags or []):
                self._decoded.flags = [*flags, fault.reason.value]
        return None

    def look_back(self, received_us: int, number: int, memory: Tracks) -> Reject | None:
        """Compare each reading with earlier ones, in order of time, whatever the order in the message."""
        tracks: dict[tuple[str, str], MetricTrack] = {}
        dropped: set[int] = set()
        refused, device, rule_of = None, self._decoded.device, self._profile.rule_of
        for reading in _in_order(self.kept, received_us):
            rule = rule_of(reading.metric)
            if rule is None or not rule.is_temporal:
                continue
            key = device, reading.metric
            look = look_back(rule, reading, tracks.get(key) or memory.get(key), received_us)
            if look.track is not None:
                tracks[key] = look.track
            if look.fault is not None:
                refused = self._apply(reading, look.fault)
                if refused is not None:
                    break
                if look.fault.action == "salvage":
                    dropped.add(id(reading))
        if dropped:
            self.kept = [reading for reading in self.kept if id(reading) not in dropped]
        for key, track in tracks.items():
            memory.put(number, key, track if refused is None else _seen_only(track, memory.get(key)))
        return refused

    def _apply(self, reading: Reading, fault: RuleViolation) -> Reject | None:
        if fault.action == "flag":
            reading.flags = [*(reading.flags or ()), fault.reason.value]
            return None
        reject = self._reject(reading_path(self._match, reading, is_batch=self._is_batch), fault)
        if fault.action == "reject":
            return reject
        self.rejects.append(reject)
        return None

    def _reject(self, path: str, fault: RuleViolation) -> Reject:
        return Reject(fault.reason, path, fault.got, fault.wanted, profile=self._profile.profile.label)


def _in_order(readings: list[Reading], received_us: int) -> list[Reading]:
    """Sort by time; readings of one time keep their order."""
    first = readings[0].time_us if readings else None
    if all(reading.time_us == first for reading in readings):
        return readings
    return sorted(readings, key=lambda one: received_us if one.time_us is None else one.time_us)


def _is_among(path: str, refused: set[str]) -> bool:
    return any(was == path or was.startswith((f"{path}.", f"{path}[")) for was in refused)


def _seen_only(track: MetricTrack, before: MetricTrack | None) -> MetricTrack:
    """Return the track after its message was rejected as a whole: seen, but nothing of it passed."""
    if before is None:
        return track._replace(good=None, good_us=0)
    return track._replace(good=before.good, good_us=before.good_us)
