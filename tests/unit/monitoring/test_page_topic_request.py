"""Questions for a topic's records: what can be meant is taken, all else is one sentence before anybody is asked."""

from typing import Any

import pytest

from monitoring.page.page_api import PageError, TopicRequest
from monitoring.page.topic_request import MOST_PLACES, topic_request

NAME = "telemetry.readings"
PLAIN = TopicRequest(name=NAME, begin="newest", at=0, places=None, partition=None, key=None, limit=50)


def test_a_name_alone_asks_for_the_newest() -> None:
    assert topic_request({"name": NAME}) == PLAIN


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"from": "oldest", "limit": "1"}, {"begin": "oldest", "limit": 1}),
        ({"partition": "0", "key": "päth/../1"}, {"partition": 0, "key": "päth/../1"}),
        ({"from": "offset", "partition": "3", "at": "0"}, {"begin": "offset", "partition": 3, "at": 0}),
        ({"from": "time", "at": "1764000000123"}, {"begin": "time", "at": 1764000000123}),
        ({"from": "time", "at": "2026-01-31T12:00:00+01:00"}, {"begin": "time", "at": 1769857200000}),
        (
            {"from": "before", "at": "0:17,12:9223372036854775807"},
            {"begin": "before", "places": {0: 17, 12: 2**63 - 1}},
        ),
        ({"from": "after", "at": "0:0"}, {"begin": "after", "places": {0: 0}}),
    ],
)
def test_what_can_be_meant_is_taken(query: dict[str, str], wanted: dict[str, Any]) -> None:
    found = topic_request({"name": NAME, **query})
    assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"name": ""}, "?name="),
        ({"name": "a b"}, "?name="),
        ({"name": "x" * 250}, "?name="),
        ({"name": "x" * 2000}, "at most 1024 characters"),
        ({"from": "end"}, "Invalid ?from=: use one of newest, oldest"),
        ({"partition": "-1"}, "Invalid ?partition=: use a whole number"),
        ({"partition": "\u0661"}, "Invalid ?partition=: use a whole number"),
        ({"partition": "99999999999"}, "Invalid ?partition=: use a whole number"),
        ({"limit": "0"}, "Invalid ?limit=: use a whole number from 1 to 200"),
        ({"limit": "201"}, "Invalid ?limit=: use a whole number from 1 to 200"),
        ({"from": "offset", "at": "1"}, "add ?partition="),
        ({"from": "offset", "partition": "1"}, "needs ?at="),
        ({"from": "offset", "partition": "1", "at": "9" * 19}, "Invalid ?at=: use a whole number"),
        ({"from": "time", "at": "yesterday"}, "from=time needs ?at="),
        ({"from": "time", "at": "2026-01-31T12:00:00"}, "from=time needs ?at="),
        ({"from": "time", "at": "0001-01-01T00:00:00Z"}, "from=time needs ?at="),
        ({"from": "before"}, "from=before and from=after need ?at="),
        ({"from": "before", "at": "1"}, "from=before and from=after need ?at="),
        ({"from": "after", "at": "0:1,"}, "from=before and from=after need ?at="),
        ({"from": "after", "at": "0:1,0:2"}, "from=before and from=after need ?at="),
        ({"from": "after", "at": "1:1," * MOST_PLACES}, "from=before and from=after need ?at="),
        ({"key": "k" * 1025}, "?key= is too long: at most 1024 characters"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(query: dict[str, str], sentence: str) -> None:
    with pytest.raises(PageError) as told:
        topic_request({"name": NAME, **query})
    assert told.value.status == 400
    assert sentence in str(told.value)
