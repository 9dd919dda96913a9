"""Overlap of topic filters, compared with every topic over a small alphabet."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.filter_overlap import common_topic, find_overlap
from gateway.topic_filters import compile_filter

NAMES = ("", "a", "b", "$s")
# One level more than any filter below, and a level that no filter names.
TOPICS = ["/".join(levels) for depth in range(1, 5) for levels in product((*NAMES, "any"), repeat=depth)][1:]

levels = st.lists(st.sampled_from((*NAMES, "+")), min_size=0, max_size=3)
filters = st.builds(lambda head, is_open: "/".join([*head, *(["#"] if is_open else [])]), levels, st.booleans()).filter(
    lambda text: bool(text) and text.count("/") < 3
)


@given(filters, filters)
@example("/#", "+")
@example("/#", "#")
@example("a/#", "a")
@example("+/#", "$s/a")
@example("$s/+", "$s/#")
def test_filters_overlap_if_and_only_if_a_topic_matches_both(first: str, second: str) -> None:
    one, other = compile_filter(first), compile_filter(second)
    both = [topic for topic in TOPICS if one.match(topic) is not None and other.match(topic) is not None]
    found = common_topic(first, second)
    assert (found is not None) == bool(both), (found, both[:3])
    if found is not None:
        assert one.match(found) is not None
        assert other.match(found) is not None


@given(filters, filters)
def test_overlap_does_not_depend_on_the_order(first: str, second: str) -> None:
    assert (common_topic(first, second) is None) == (common_topic(second, first) is None)


@pytest.mark.parametrize(
    ("ours", "theirs", "topic"),
    [
        (["site/east/#"], ["site/west/#"], None),
        (["site/+/state"], ["x/#", "site/east/#"], "site/east/state"),
        (["#"], ["site/#"], "site/any"),
        (["#"], ["$SYS/#"], None),
        (["site/{hall}/{rest#}"], ["site/a"], "site/a"),
        (["$share/g/site/#"], ["$share/g/site/#"], None),
        (["$share/g/site/#"], ["$share/h/site/#"], "site/any"),
        (["$share/g/site/#"], ["$share/g/site/a"], "site/a"),
        (["$share/g/site/#"], ["site/+"], "site/any"),
    ],
)
def test_gateways_overlap_where_a_message_would_come_twice(
    ours: list[str], theirs: list[str], topic: str | None
) -> None:
    found = find_overlap(ours, theirs)
    assert (None if found is None else found[2]) == topic
    if found is not None:
        assert found[0] in ours
        assert found[1] in theirs
