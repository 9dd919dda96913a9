"""Patterns of names: what they match, and that no text takes long, whoever chose it."""

import re
import time
from collections.abc import Callable
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.mapping.names import PatternTable
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.glob_patterns import compile_glob, compile_globs
from gateway.profiles.profile_folder import parse_profile
from gateway.profiles.profile_set import ProfileSet
from gateway.routes import compile_routes

PATTERN = "*-*-*-*-*-x"
SHORT, LONG = 30, 120
"""A pattern with five stars that backtracks takes about a thousand times as long for four times the text."""


def _profile_of_a_device(text: str) -> object:
    profile = parse_profile(f'name = "p"\nversion = 1\ndevices = ["{PATTERN}"]\n[metrics.a]\nmin = 0\n'.encode())
    return ProfileSet([profile]).choose(text)


def _rule_of_a_metric(text: str) -> object:
    profile = parse_profile(f'name = "p"\nversion = 1\n[metrics."{PATTERN}"]\nmin = 0\n'.encode())
    found = ProfileSet([profile]).get("p")
    assert found is not None
    return found.rule_of(text)


def _route_by_segment(text: str) -> object:
    routes = (RouteSettings(filter="at/{name}", only={"name": (PATTERN,)}),)
    found = compile_routes(routes, GatewaySettings(presets=())).match(f"at/{text}")
    return None if found is None else found


@pytest.mark.parametrize(
    "match",
    [
        compile_glob(PATTERN).fullmatch,
        compile_globs([PATTERN, "a*b*c"]),
        lambda text: PatternTable([(PATTERN, "V"), ("*-*-*-y", "A")]).find(text, text),
        _profile_of_a_device,
        _rule_of_a_metric,
        _route_by_segment,
    ],
    ids=["compile_glob", "compile_globs", "mapping", "device", "metric", "only"],
)
def test_a_pattern_takes_time_in_proportion_to_the_text(match: Callable[[str], object]) -> None:
    def best_of(size: int) -> float:
        times = []
        for _ in range(5):
            begin = time.process_time()
            assert not match("-" * size)
            times.append(time.process_time() - begin)
        return min(times)

    assert match("1-2-3-4-5-x")
    assert best_of(LONG) < 50 * best_of(SHORT)


@given(st.text("ab-*?", max_size=12), st.text("ab-\n", max_size=20))
def test_a_glob_matches_as_in_a_shell(pattern: str, text: str) -> None:
    assert bool(compile_glob(pattern).fullmatch(text)) is bool(re.match(translate(pattern), text))


@given(st.text(max_size=12), st.text(max_size=20))
def test_brackets_and_other_signs_stand_for_themselves(pattern: str, text: str) -> None:
    shell = re.sub(r"\[", "[[]", pattern)
    assert bool(compile_glob(pattern).fullmatch(text)) is bool(re.match(translate(shell), text))
