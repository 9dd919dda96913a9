import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.topic_filters import (
    BadFilter,
    compile_filter,
    empty_level,
    id_fault,
    native_topic,
    subscription_filter,
)


@pytest.mark.parametrize(
    ("text", "topic", "names"),
    [
        ("site/#", "site", {}),
        ("site/#", "site/a/b", {}),
        ("site/#", "sites/a", None),
        ("#", "a/b", {}),
        ("#", "/a", {}),
        ("#", "$SYS/broker", None),
        ("+/a", "$SYS/a", None),
        ("$SYS/#", "$SYS/broker/load", {}),
        ("+/b", "a/b", {}),
        ("+/b", "/b", {}),
        ("+", "a/b", None),
        ("a/+/c", "a//c", {}),
        ("a/+", "a/line\nbreak", {}),
        ("site/{site}/{device}/state", "site/x/y/state", {"site": "x", "device": "y"}),
        ("site/{site}/state", "site//state", None),
        ("{a}/b", "$x/b", None),
        ("{top}/{rest#}", "gw", {"top": "gw", "rest": ""}),
        ("{top}/{rest#}", "gw/", {"top": "gw", "rest": ""}),
        ("{top}/{rest#}", "gw/a//b/", {"top": "gw", "rest": "a//b/"}),
        ("{rest#}", "/a", {"rest": "/a"}),
        ("{rest#}", "$SYS/a", None),
        ("a/{rest#}", "ab", None),
        ("a.b/c", "axb/c", None),
    ],
)
def test_filters_match_as_mqtt_says(text: str, topic: str, names: dict[str, str] | None) -> None:
    assert compile_filter(text).match(topic) == names


@pytest.mark.parametrize("text", ["", "a#", "#/a", "a/+b", "a/{x}/{x}", "a/{1x}", "a/{x", "a/b{x}", "a\0b"])
def test_filters_that_mqtt_does_not_know_are_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadFilter, match=r"\w+ \w+"):
        compile_filter(text)


LEVELS = st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=5).map("/".join)


@given(LEVELS, st.lists(st.sampled_from(["a", "b", "+", ""]), max_size=4))
def test_a_named_rest_matches_as_a_hash_does(topic: str, begin: list[str]) -> None:
    hashed, named = compile_filter("/".join([*begin, "#"])), compile_filter("/".join([*begin, "{rest#}"]))
    found = named.match(topic)
    assert (hashed.match(topic) is None) is (found is None)
    if found is not None:
        assert found["rest"] == "/".join(topic.split("/")[len(begin) :])


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("a/b", ""),
        ("/a", "level 1 of the topic is empty (before the first slash)"),
        ("a/", "level 2 of the topic is empty (after the last slash)"),
        ("a//b/", "level 2 of the topic is empty"),
    ],
)
def test_the_empty_level_is_named(topic: str, said: str) -> None:
    assert empty_level(topic) == said


def test_named_segments_reach_the_broker_as_plus() -> None:
    assert subscription_filter("site/{site}/+/#") == "site/+/+/#"


@pytest.mark.parametrize(
    ("topic", "device"),
    [
        ("tidegate/v1/dev-1/readings", "dev-1"),
        ("tidegate/v1/a%2Fb/readings", "a%2Fb"),
        ("tidegate/v1//readings", ""),
        ("tidegate/v1/readings", None),
        ("tidegate/v1/a/b/readings", None),
        ("tidegate/v2/a/readings", None),
        ("tidegate/v1/a/readings/x", None),
    ],
)
def test_the_native_grammar(topic: str, device: str | None) -> None:
    assert native_topic(topic) == device


@pytest.mark.parametrize(
    "device", ["1", "x" * 23, "x" * 256, "a/b", "a b", "🌊", "..", "%2f", "ж", "\u202eabc", "'; DROP"]
)
def test_ids_that_are_kept_as_they_are(device: str) -> None:
    assert id_fault(device, 256) is None


@pytest.mark.parametrize("device", ["", "x" * 257, "🌊" * 65, "a\0b", "a\nb", "a\x1b[31m", "a\x7f", "a\x85"])
def test_ids_that_are_refused(device: str) -> None:
    assert id_fault(device, 256)
