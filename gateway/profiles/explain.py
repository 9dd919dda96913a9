"""Profiles in words: which one applies to a device and its rules; and its effect on messages in a file."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.plausible.apply_table import IMPLAUSIBLE, SENTINEL
from gateway.policy import ReadingPolicy
from gateway.profiles.model import Failure, MetricRules, Profile
from gateway.profiles.policy import ProfilePolicy
from gateway.profiles.profile_set import ProfileChoice
from gateway.profiles.rule import MetricRule
from gateway.reading_path import native_batch, reading_path, show_reading
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading

__all__ = ["describe_profile", "explain_device", "explain_lines"]

_FLAGS: Final = frozenset({*get_args(Failure), "unknown_metric", SENTINEL, IMPLAUSIBLE})


def explain_lines(
    lines: Iterable[str],
    routes: tuple[RouteSettings, ...],
    limits: GatewaySettings,
    policy: ReadingPolicy,
    *,
    received_us: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Explain the effect of profiles on each message of a file, reading by reading.

    Yields:
        Results of `decode_lines`, with `checks: [{device, profile, because, readings: [{path, metric, sent, stored,
        verdict: ok|flagged|refused, reason, got, wanted}]}]`; `profile` is None if none applies.
    """
    recorder = _Recorder(policy)
    for found in decode_lines(lines, routes, limits, received_us=received_us, policy=recorder):
        checks, recorder.checks = recorder.checks, []
        yield found | {"checks": checks}


class _Recorder(ReadingPolicy):
    """Policy that records the answers of another one."""

    def __init__(self, policy: ReadingPolicy) -> None:
        self._policy = policy
        self.checks: list[dict[str, Any]] = []

    def admit(self, device: str, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """See ReadingPolicy."""
        refused = self._policy.admit(device, match, received_us, number)
        if refused is not None:
            self.checks.append({"device": device, "profile": None, "because": None, "readings": [_refused(refused)]})
        return refused

    def check(self, decoded: Decoded, match: RouteMatch, received_us: int, number: int) -> Reject | None:
        """See ReadingPolicy."""
        choice = self._policy.choose(decoded.device, match) if isinstance(self._policy, ProfilePolicy) else None
        sent = [(reading, show_reading(reading), set(reading.flags or ())) for reading in decoded.readings]
        before = len(decoded.rejects)
        whole = self._policy.check(decoded, match, received_us, number)
        entry = _describe_choice(decoded.device, choice)
        if whole is None:
            kept = {id(reading) for reading in decoded.readings}
            is_batch = native_batch(decoded, match)
            entry["readings"] = [
                _kept(reading_path(match, reading, is_batch=is_batch), reading, text, flags)
                for reading, text, flags in sent
                if id(reading) in kept
            ]
            entry["readings"] += [_refused(reject) for reject in decoded.rejects[before:]]
        else:
            entry["readings"] = [_refused(whole)]
        self.checks.append(entry)
        return whole


def _kept(path: str, reading: Reading, sent: str, flags: set[str]) -> dict[str, Any]:
    reason = next((flag for flag in reading.flags or () if flag not in flags and flag in _FLAGS), None)
    return {
        "path": path,
        "metric": reading.metric,
        "sent": sent,
        "stored": show_reading(reading),
        "verdict": "ok" if reason is None else "flagged",
        "reason": reason,
        "got": None,
        "wanted": None,
    }


def _refused(reject: Reject) -> dict[str, Any]:
    return {
        "path": reject.path,
        "metric": None,
        "sent": None,
        "stored": None,
        "verdict": "refused",
        "reason": reject.reason.value,
        "got": reject.got,
        "wanted": reject.wanted,
    }


def _describe_choice(device: str, choice: ProfileChoice | None) -> dict[str, Any]:
    return {
        "device": device,
        "profile": None if choice is None else choice.compiled.profile.label,
        "because": None if choice is None else choice.because,
    }


def explain_device(policy: ProfilePolicy, device: str, match: RouteMatch | None = None) -> dict[str, Any]:
    """Explain which profile applies to a device and why, which others match, whether it is registered, and the rules.

    Args:
        policy: with the profiles and the registry.
        device: its id.
        match: the route of its messages, which may name a profile.
    """
    choice = policy.choose(device, match)
    known = policy.registered(device)
    return {
        **_describe_choice(device, choice),
        "registered": known is not None,
        "tags": {} if known is None else known.tags,
        "also_matching": [
            {"profile": other.compiled.profile.label, "pattern": other.because}
            for other in policy.profiles.matching(device)
            if choice is None or other.compiled is not choice.compiled
        ],
        **({} if choice is None else describe_profile(choice.compiled.profile)),
    }


def describe_profile(profile: Profile) -> dict[str, Any]:
    """Describe a profile in sentences, per metric."""
    return {
        "description": profile.description,
        "unknown_metrics": profile.unknown_metrics,
        "metrics": [_describe_metric(profile, name, rules) for name, rules in profile.metrics.items()],
    }


def _describe_metric(profile: Profile, name: str, rules: MetricRules) -> dict[str, Any]:
    asks = [MetricRule(profile, rules).wanted]
    if rules.required:
        asks.append("required")
    if rules.unit is not None:
        asks.append(f"in {rules.unit} if the payload names no unit")
    if rules.convert_to is not None:
        asks.append(f"converted to {rules.convert_to}")
    if rules.max_step is not None:
        asks.append(f"at most {rules.max_step:g} from the reading before")
    if rules.max_step_per_second is not None:
        asks.append(f"at most {rules.max_step_per_second:g} per second")
    if rules.stuck_count is not None:
        asks.append(f"stuck from {rules.stuck_count} equal values in a row")
    if rules.stuck_seconds is not None:
        asks.append(f"stuck after {rules.stuck_seconds:g} s unchanged")
    if accepted := (*profile.accept, *rules.accept):
        asks.append(f"accepts {', '.join(dict.fromkeys(accepted))}")
    policies = {failure: profile.action(rules, failure) for failure in get_args(Failure)}
    return {"metric": name, "asks": asks, "on": policies}
