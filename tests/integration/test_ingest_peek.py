"""A look into topics of a real Kafka: which records, in which order, how far it looked, and that it leaves no trace."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.contract.errors import RetryableError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.read.browse import BrowseRequest, browse_topic, partition_of_key
from ingest.topics.offsets import end_offsets
from tests.support.servers import make_topics

PARTITIONS = 3
DAY_MS = 86_400_000
Send = Callable[..., None]


@pytest.fixture
def settings(kafka_server: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers, partitions=PARTITIONS)


@pytest.fixture
def admin(settings: KafkaSettings) -> AdminClient:
    return AdminClient({"bootstrap.servers": settings.bootstrap_servers})


@pytest.fixture
def make_topic(settings: KafkaSettings, unique_name: str) -> Callable[..., str]:
    def make(suffix: str = "", partitions: int = PARTITIONS, **config: str) -> str:
        name = unique_name + suffix
        make_topics(settings.bootstrap_servers, NewTopic(name, partitions, 1, config=config))
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic()


@pytest.fixture
def send(settings: KafkaSettings) -> Send:
    def send_all(topic: str, records: list[dict[str, Any]], **options: Any) -> None:
        producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "compression.type": "lz4", **options})
        for record in records:
            producer.produce(topic, **record)
        assert producer.flush(60) == 0

    return send_all


def numbered(count: int, *, first: int = 0, size: int = 0) -> list[dict[str, Any]]:
    """Records of all partitions in turn, a second apart, long ago."""
    return [
        {
            "value": b"%d %s" % (n, b"x" * size),
            "key": b"key-%d" % (n % 7),
            "partition": n % PARTITIONS,
            "timestamp": DAY_MS + 1000 * n,
        }
        for n in range(first, first + count)
    ]


def numbers(look: Any) -> list[int]:
    return [int(record.value.text.split()[0]) for record in look.records]


class TestOrder:
    def test_pages_older_and_newer_show_every_record_once(
        self, settings: KafkaSettings, topic: str, send: Send
    ) -> None:
        send(topic, numbered(100))
        look, shown = browse_topic(settings, BrowseRequest(topic, limit=17)), list[int]()
        assert numbers(look) == list(range(99, 82, -1))
        while True:
            shown += numbers(look)
            if look.older is None:
                break
            look = browse_topic(settings, BrowseRequest(topic, "before", positions=look.older, limit=17))
        assert shown == list(range(99, -1, -1))
        look, again = browse_topic(settings, BrowseRequest(topic, "oldest", limit=17)), list[int]()
        assert numbers(look) == list(range(16, -1, -1))
        while look.records:
            again += reversed(numbers(look))
            look = browse_topic(settings, BrowseRequest(topic, "after", positions=look.newer, limit=17))
        assert again == list(range(100))
        send(topic, numbered(2, first=100))
        assert numbers(browse_topic(settings, BrowseRequest(topic, "after", positions=look.newer, limit=17))) == [
            101,
            100,
        ]

    def test_from_a_time_an_offset_and_one_partition(self, settings: KafkaSettings, topic: str, send: Send) -> None:
        send(topic, numbered(30))
        assert numbers(browse_topic(settings, BrowseRequest(topic, "time", at=DAY_MS + 25_000, limit=3))) == [
            27,
            26,
            25,
        ]
        assert numbers(browse_topic(settings, BrowseRequest(topic, "time", at=DAY_MS * 400, limit=3))) == []
        assert numbers(browse_topic(settings, BrowseRequest(topic, "offset", at=4, partition=1, limit=2))) == [16, 13]
        assert numbers(browse_topic(settings, BrowseRequest(topic, partition=2, limit=2))) == [29, 26]
        gone = browse_topic(settings, BrowseRequest(topic, "offset", at=400, partition=1))
        assert (gone.records, gone.gone) == ((), True)
        with pytest.raises(UnavailableError, match="has no partition 9: it has 3, counted from 0"):
            browse_topic(settings, BrowseRequest(topic, partition=9))

    def test_times_that_jump_leave_no_record_out(self, settings: KafkaSettings, topic: str, send: Send) -> None:
        records = numbered(30)
        for number, record in enumerate(records):
            record["timestamp"] = DAY_MS + (number * 7919 % 30) * 1000
        send(topic, records)
        look, shown = browse_topic(settings, BrowseRequest(topic, limit=4)), list[int]()
        while True:
            shown += numbers(look)
            if look.older is None:
                break
            look = browse_topic(settings, BrowseRequest(topic, "before", positions=look.older, limit=4))
        assert sorted(shown) == list(range(30))


class TestKey:
    def test_a_key_is_found_by_a_scan_or_in_its_partition(
        self, settings: KafkaSettings, topic: str, send: Send
    ) -> None:
        send(topic, [{"key": f"pump-{n % 9}", "value": b"%d" % n} for n in range(900)], partitioner="murmur2_random")
        scanned = browse_topic(settings, BrowseRequest(topic, key=b"pump-4", limit=5))
        direct = browse_topic(settings, BrowseRequest(topic, key=b"pump-4", limit=5), keyed=True)
        assert numbers(scanned) == numbers(direct) == [895, 886, 877, 868, 859]
        assert direct.only_partition == partition_of_key(b"pump-4", PARTITIONS)
        assert direct.looked < scanned.looked
        nothing = browse_topic(settings, BrowseRequest(topic, key=b"pump"))
        assert (nothing.records, nothing.looked, nothing.spent, nothing.older) == ((), 900, None, None)

    def test_a_scan_that_is_broken_off_says_how_far_it_looked_and_goes_on_from_there(
        self, settings: KafkaSettings, topic: str, send: Send
    ) -> None:
        records = numbered(3000)
        records[30]["key"] = b"rare"
        send(topic, records)
        look, looks = browse_topic(settings, BrowseRequest(topic, key=b"rare"), most_records=800), 1
        assert (look.records, look.spent) == ((), "records")
        assert look.back_to_ms is not None
        assert DAY_MS + 1000 * (3000 - 801) <= look.back_to_ms < DAY_MS + 1000 * 2990
        while not look.records:
            assert look.older is not None
            look = browse_topic(
                settings, BrowseRequest(topic, "before", positions=look.older, key=b"rare"), most_records=800
            )
            looks += 1
        assert numbers(look) == [30]
        assert looks < 12

    def test_all_of_one_page_is_left_for_the_next_where_a_stretch_had_more(
        self, settings: KafkaSettings, topic: str, send: Send
    ) -> None:
        """A key in bulk behind a gap: the stretch that meets it holds far more than a page."""
        head = [{"key": b"bulk", "value": b"%d" % n, "partition": 0} for n in range(300)]
        send(topic, head + [{"key": b"other", "value": b"-1", "partition": 0} for _ in range(700)])
        look, shown = browse_topic(settings, BrowseRequest(topic, key=b"bulk", limit=10)), list[int]()
        while True:
            shown += numbers(look)
            if look.older is None:
                break
            look = browse_topic(settings, BrowseRequest(topic, "before", positions=look.older, key=b"bulk", limit=10))
        assert shown == list(range(299, -1, -1))


class TestRecords:
    def test_bytes_are_text_or_base64_and_large_ones_are_cut(
        self, settings: KafkaSettings, make_topic: Callable[..., str], send: Send
    ) -> None:
        topic = make_topic("-one", 1)
        headers = [("traceparent", b"00-ab"), ("traceparent", b"twice"), ("raw", b"\xff"), ("none", None)]
        send(topic, [
            {"key": None, "value": None},
            {"key": b"\xff\x00", "value": "héllo", "headers": headers},
            {"key": b"big", "value": b"a" + "é".encode() * 40_000},
            {"key": b"", "value": b""},
        ])  # fmt: skip
        empty, big, text, tombstone = browse_topic(settings, BrowseRequest(topic)).records
        assert (tombstone.key, tombstone.value, tombstone.size_bytes) == (None, None, 0)
        assert (text.key.base64, text.value.text, text.size_bytes) == (
            "/wA=",
            "héllo",
            2 + 6 + 11 + 5 + 11 + 5 + 3 + 1 + 4,
        )
        assert [(name, each and (each.text or each.base64)) for name, each in text.headers] == [
            ("traceparent", "00-ab"), ("traceparent", "twice"), ("raw", "/w=="), ("none", None),
        ]  # fmt: skip
        assert (big.value.is_cut, big.value.size_bytes, big.value.base64) == (True, 80_001, None)
        assert len(big.value.text.encode()) == 64 * 1024 - 1
        assert (empty.key.text, empty.value.text) == ("", "")
        assert {record.time_type for record in (empty, big, text)} == {"create"}

    def test_large_records_end_a_look_by_their_bytes(self, settings: KafkaSettings, topic: str, send: Send) -> None:
        send(topic, numbered(60, size=100_000))
        look = browse_topic(settings, BrowseRequest(topic), most_bytes=2_000_000)
        assert 3 <= len(look.records) < 30
        assert look.looked_bytes < 2_200_000
        assert look.older is not None

    def test_holes_of_compaction_and_transactions_and_empty_partitions(
        self, settings: KafkaSettings, topic: str, admin: AdminClient, wait_until: Callable[..., Any]
    ) -> None:
        assert browse_topic(settings, BrowseRequest(topic)).records == ()
        producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "transactional.id": topic})
        producer.init_transactions(60)
        for number in range(8):
            # Each transaction ends with a marker, which takes an offset and is no record.
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number, partition=1)
            producer.commit_transaction(60)
        # The coordinator writes the last marker after it has answered.
        wait_until(lambda: end_offsets(settings, topic)[1] == 16, what="the transactions' markers")
        assert numbers(browse_topic(settings, BrowseRequest(topic, limit=5))) == [7, 6, 5, 4, 3]
        assert numbers(browse_topic(settings, BrowseRequest(topic, "oldest", limit=5))) == [4, 3, 2, 1, 0]
        assert numbers(browse_topic(settings, BrowseRequest(topic, partition=1))) == list(range(7, -1, -1))
        admin.delete_records([TopicPartition(topic, 1, 9)])[TopicPartition(topic, 1, 9)].result(60)
        assert numbers(browse_topic(settings, BrowseRequest(topic, "offset", at=0, partition=1))) == [7, 6, 5]


class TestHarmless:
    def test_a_look_leaves_no_group_no_commit_and_no_topic(
        self, settings: KafkaSettings, topic: str, send: Send, admin: AdminClient
    ) -> None:
        send(topic, numbered(20))
        browse_topic(settings, BrowseRequest(topic))
        browse_topic(settings, BrowseRequest(topic, "oldest", key=b"key-3"))
        with pytest.raises(UnavailableError, match="has no topic"):
            browse_topic(settings, BrowseRequest(f"{topic}-not-there"))
        assert f"{topic}-not-there" not in admin.list_topics(timeout=60).topics
        listed = admin.list_consumer_groups(request_timeout=60).result(60).valid
        assert "tidegate-monitor" not in {each.group_id for each in listed}
        same = Consumer({"bootstrap.servers": settings.bootstrap_servers, "group.id": "tidegate-monitor"})
        committed = same.committed([TopicPartition(topic, each) for each in range(PARTITIONS)], timeout=60)
        same.close()
        assert all(each.offset < 0 for each in committed)

    def test_a_kafka_that_hangs_or_is_gone_is_one_sentence_in_time(self, new_kafka: Any) -> None:
        kafka = new_kafka()
        settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
        with pytest.raises(UnavailableError, match="has no topic t"):
            browse_topic(settings, BrowseRequest("t"), most_seconds=60)
        for fault in (kafka.hold, kafka.kill):
            fault()
            began = time.monotonic()
            with pytest.raises(RetryableError, match=r"^Kafka at \S+ does not answer in time.*: check that it is up$"):
                browse_topic(settings, BrowseRequest("t"), most_seconds=1.0)
            assert time.monotonic() - began < 30
