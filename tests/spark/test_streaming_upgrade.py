"""Tables and checkpoint that an older version left go on under this one, or are refused with the step that is needed.

`upgrade/before-repair` was written by the version before marks held topic ids and there were derived tables: two batches of
`upgrade.readings`, messages 1 (boot 1, seq 1), 2, 3 (seq 3), and the dead letter 4.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.kafka_source import LandedTopics
from streaming.landing_offsets import newest_mark

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SOON = round(datetime(2026, 11, 28, 9, 35, tzinfo=UTC).timestamp()) * 1_000_000
"""Half a minute after the older version received message 1: when a broker may deliver it again."""
OLD = Path(__file__).parent / "upgrade" / "before-repair"


@pytest.mark.parametrize("lost", ["commit", "checkpoint"])
def test_a_checkpoint_and_tables_of_the_version_before_go_on(
    lander: Any, record: Any, dead_letter: Any, lost: str, wait_until: Any
) -> None:
    shutil.copytree(OLD / "tables", lander.root)
    shutil.copytree(OLD / "checkpoint", lander.checkpoint)
    lander.topics = LandedTopics("upgrade.readings", "upgrade.dead-letters")
    admin = AdminClient({"bootstrap.servers": lander.kafka.bootstrap_servers})
    names = lander.topics.names
    if names[0] in admin.list_topics(timeout=20).topics:
        for done in admin.delete_topics(list(names)).values():
            done.result(60)

    def made() -> bool:
        made = admin.create_topics([NewTopic(names[0], 2, 1), NewTopic(names[1], 1, 1)])
        return all(future.exception(20) is None for future in made.values())

    wait_until(made, what="the topics")
    lander.send(record(1, seq=1), record(2), record(3, seq=3), dead_letter(4))
    lander.forget_commit() if lost == "commit" else lander.forget_checkpoint()
    # A copy of what the older version stored, one with other content, and a new message.
    copy = record(1, seq=1, received_us=SOON)
    lander.land(copy, record(9, seq=3), record(5, seq=5, trace=TRACE, payload_hash=-7), dead_letter(6))
    assert [row["trace"] for row in lander.rows()] == [None] * 6 + [TRACE] * 2, (
        "a column that the older one did not write"
    )
    assert [row["payload_hash"] for row in lander.rows()] == [None] * 6 + [-7] * 2
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 2, 2, 3, 3, 5, 5]
    told = sorted((row["message_number"], row["reason"]) for row in lander.rows("dead_letters"))
    assert told == [(4, "bad_json"), (6, "bad_json"), (9, "conflicting_duplicate")]
    mark = newest_mark(lander.root, "readings")
    assert mark is not None
    assert set(mark.topics) == set(names)
