"""A message that repeats is logged once a while, and none is left out without a count."""

import logging

from hypothesis import given
from hypothesis import strategies as st

from ingest.clients import MAX_MESSAGES, RepeatedMessageFilter


class Log:
    """A logger's way through the filter at times of the test's choice."""

    def __init__(self) -> None:
        self.now, self.lines = 0.0, list[str]()
        self._filter = RepeatedMessageFilter(every=30.0, clock=lambda: self.now)

    def say(self, text: str, *args: object, level: int = logging.ERROR) -> None:
        record = logging.LogRecord("x", level, __file__, 1, text, args, None)
        if self._filter.filter(record):
            self.lines.append(record.getMessage())


def test_an_outage_is_logged_once_a_while_with_a_count() -> None:
    log = Log()
    for number in range(121):
        log.now = number * 0.5
        log.say("connect to %s failed (after %dms)", "127.0.0.1:9092", number)
    assert log.lines == [
        "connect to 127.0.0.1:9092 failed (after 0ms)",
        "connect to 127.0.0.1:9092 failed (after 60ms) (and 59 more like it in 30 s)",
        "connect to 127.0.0.1:9092 failed (after 120ms) (and 59 more like it in 30 s)",
    ]


def test_another_message_or_level_is_not_kept_back() -> None:
    log = Log()
    log.say("a is away")
    log.say("b is away")
    log.say("a is away", level=logging.WARNING)
    log.say("100 % of a")
    assert log.lines == ["a is away", "b is away", "a is away", "100 % of a"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 20))))
def test_each_message_is_logged_or_counted(said: list[tuple[str, float]]) -> None:
    log = Log()
    for text, pause in said:
        log.now += pause
        log.say(text)
    for text in "abc":
        lines = [line for line in log.lines if line.startswith(text)]
        counted = sum(int(line.split("and ")[1].split()[0]) if "and " in line else 0 for line in lines)
        assert len(lines) + counted <= sum(each == text for each, _ in said)
        assert bool(lines) == any(each == text for each, _ in said)


def test_its_memory_is_bounded() -> None:
    log = Log()
    for number in range(3 * MAX_MESSAGES):
        log.say("x" * number)
    assert len(log._filter._seen) == MAX_MESSAGES
