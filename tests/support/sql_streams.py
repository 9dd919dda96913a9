"""SQL streams of a test, as commands ask for them and the chores' thread runs them; the fixture `scene`."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

from ingest.contract.reading import Reading
from ingest.contract.topics import stream_group, stream_topic
from ingest.groups.offset_mirror import group_lag
from lakehouse.lake_settings import LakeSettings
from lakehouse.requests import Request
from streaming.background_tasks import handle_request
from streaming.sql.stream_offsets import checkpoint_path
from streaming.sql.stream_supervisor import StreamSupervisor
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext


class Scene:
    """The writing process of a test: requests as a command sends them, passes as the chores' thread makes them."""

    def __init__(self, lander: Any, record: Any, wait_until: Any) -> None:
        self.lander, self.record, self.wait_until = lander, record, wait_until
        settings = StreamSettings(checkpoint=str(lander.checkpoint / "land"))
        lake = LakeSettings(root=lander.root)
        self.writer = WriterContext(lander.lake.spark, lander.kafka, settings, lake, lander.metrics, lander.topics)
        self.streams = StreamSupervisor(self.writer)
        self.sent = 0

    def ask(self, kind: str, name: str, **arguments: Any) -> dict[str, Any]:
        return handle_request(self.writer, Request(f"streams.{kind}", {"name": name, **arguments}))

    def apply(self, name: str, text: str) -> dict[str, Any]:
        return self.ask("apply", name, text=text)

    def send(self, device: str, metric: str, *, at: datetime | None = None, tags: Any = None, **value: Any) -> None:
        self.sent += 1
        time_us = int(at.timestamp() * 1_000_000) if at else None
        reading = Reading(metric, time_us=time_us, **value)
        self.lander.send(
            self.record(self.sent, device=device, readings=[reading], tags=tags, message_id=f"m{self.sent}")
        )

    def event(self, name: str, country: str, city: str) -> None:
        self.send(f"event-{name}", "event_name", text=name, tags={"country": country, "city": city})

    def restart(self) -> None:
        self.streams.close()
        self.streams = StreamSupervisor(self.writer)

    def rows(self, table: str) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(f"{self.lander.root}/{table}"):
            return []
        return list(pa.table(DeltaTable(f"{self.lander.root}/{table}").to_pyarrow_table()).to_pylist())

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        looked_at = 0.0

        def passed() -> Any:
            nonlocal looked_at
            if time.monotonic() - looked_at < 0.2:  # looking costs Spark and Kafka more than the wait
                return None
            looked_at = time.monotonic()
            self.streams.run()
            return condition()

        return self.wait_until(passed, seconds=120, what=what)

    def until_read(self, *names: str) -> None:
        """Until the group of each stream stands at the end of what it reads."""

        def read() -> bool:
            for name in names:
                lag = group_lag(self.lander.kafka, stream_group(name), self.sources(name))
                if not lag or any(at < end for parts in lag.values() for at, end in parts.values()):
                    return False
            return True

        self.until(read, f"{names} to be read")

    def sources(self, name: str) -> list[str]:
        from streaming.sql.applied_streams import load_applied

        return list(load_applied(self.lander.root)[name].start)

    def records(self, name: str) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
        """Key, value and headers of a stream's topic."""
        conf = {"bootstrap.servers": self.lander.kafka.bootstrap_servers, "group.id": "t", "enable.auto.commit": False}
        consumer, found = Consumer(conf), []
        topic = stream_topic(name)
        for part in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=10)
            consumer.assign([TopicPartition(topic, part, 0)])
            while end > 0:
                message = consumer.poll(10)
                assert message is not None
                assert message.error() is None
                headers = {key: value.decode() for key, value in message.headers()}
                found.append((message.key().decode(), json.loads(message.value()), headers))
                if message.offset() == end - 1:
                    break
        consumer.close()
        return found

    def forget_commit(self, name: str) -> None:
        """As after a crash between the table's commit and the checkpoint's."""
        commits = next(Path(checkpoint_path(self.writer.settings.checkpoint, name)).iterdir()) / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in (f"{newest}", f".{newest}.crc"):
            (commits / path).unlink(missing_ok=True)

    def metric(self, name: str, stream: str) -> float | None:
        return self.lander.metric(f"tidegate_stream_sql_{name}", stream=stream)


@pytest.fixture
def scene(lander: Any, record: Any, wait_until: Any) -> Iterator[Scene]:
    from lakehouse.create import ensure_tables
    from lakehouse.derived_tables import ALL_TABLES

    ensure_tables(lander.root, ALL_TABLES.values(), log_retention_hours=24)
    made = Scene(lander, record, wait_until)
    yield made
    made.streams.close()
