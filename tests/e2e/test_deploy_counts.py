"""What is counted in several places is the same number in all of them; the canary's readings are in none that is the fleet's."""

import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from deploy.demo.part_faults import hang_part, started_at
from deploy.local.canary_probe import DEVICE as CANARY
from deploy.monitor.fleet_probe import TOP as MOST_TALKERS
from ingest.contract.topics import READINGS
from monitoring.metrics.stream import STAGES
from monitoring.scrape import OPENER, Scrape, scrape

pytestmark = pytest.mark.promise("P8")

MESSAGES = 1_000
DEVICES = 10
GATEWAY = {name: f"tidegate_gateway_messages_{name}_total" for name in ("received", "accepted", "acknowledged")}
STORED = f"coalesce(sum(stored) FILTER (settled AND device <> '{CANARY}' AND minute >= now() - INTERVAL 1 HOUR), 0)"


@pytest.fixture
def still(pipeline: Any, wait_until: Callable[..., Any]) -> Iterator[Any]:
    """The run while its fleet stands still, and nothing is started anew for it: besides the test only the canary publishes."""
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    run = pipeline.run
    with ExitStack() as stack:
        os.kill(run.pid, signal.SIGSTOP)
        stack.callback(os.kill, run.pid, signal.SIGCONT)
        stack.enter_context(hang_part(run.parts["fleet"], run.run_id))
        yield pipeline
    wait_until(pipeline.ready, seconds=300, what="the run being ready again")


def ask(pipeline: Any, part: str) -> Scrape:
    found = scrape(pipeline.url(part), timeout_seconds=30)
    assert found is not None, f"{part} does not answer"
    return found


def page(pipeline: Any, path: str) -> Any:
    with OPENER.open(pipeline.url("page", path), timeout=30) as answer:
        return json.loads(answer.read())


def counted(pipeline: Any) -> dict[str, float]:
    """The same messages as broker, gateway, Kafka, stream and monitor count them; each has one reading."""
    gateway, stream, monitor = (ask(pipeline, part) for part in ("gateway", "stream", "page"))
    published = "broker_publish_messages_received"
    return {
        # Not every broker tells it.
        **({"broker": monitor.total(published)} if (published, ()) in monitor.values else {}),
        **{name: gateway.total(metric) for name, metric in GATEWAY.items()},
        "kafka": monitor.total("kafka_topic_partition_current_offset", topic=READINGS),
        "rows": stream.total("tidegate_stream_rows_total", table="readings"),
        **{stage: stream.total("tidegate_stage_latency_seconds_count", stage=stage) for stage in STAGES},
    }


class Rest:
    """Called again and again: what is counted once everything that was on its way has arrived, None before."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._counts: dict[str, float] = {}
        self._since = 0.0

    def __call__(self) -> dict[str, float] | None:
        now = counted(self._pipeline)
        if now != self._counts:
            self._counts, self._since = now, time.time()
        # Two looks of the monitor and a batch; and the broker's own figures come when they come.
        is_old = time.time() - self._since > 3.0 and broker_told_at(self._pipeline) > self._since + 1.0
        return now if is_old and sum(self._pipeline.status()["lag"].values()) == 0 else None


def broker_told_at(pipeline: Any) -> float:
    """Of when the broker's figures are, by its uptime among them; a broker that tells none is never waited for."""
    uptime = ask(pipeline, "page").total("broker_uptime")
    return started_at(pipeline.run.parts["broker"]) + uptime if uptime else float("inf")


def kafkas_own(pipeline: Any) -> tuple[float, int]:
    """Records that came in as Kafka itself counts them, of all topics together; and how far all of its logs reach."""
    topics = pipeline.json("topics", "ls", "--all")
    ends = sum(part["end"] for topic in topics for part in topic["by_partition"])
    return ask(pipeline, "kafka_jmx").total("kafka_server_brokertopicmetrics_messagesin_total"), ends


def of_the_fleet(pipeline: Any) -> dict[str, float] | None:
    """What the fleet's panels count: totals minus the canary's of the same moment; None where one of those came between."""
    before = ask(pipeline, "canary")
    gateway, stream = ask(pipeline, "gateway"), ask(pipeline, "stream")
    after = ask(pipeline, "canary")
    arrived, seen = (f"tidegate_canary_{name}_total" for name in ("acknowledged", "seen"))
    if any(before.total(name) != after.total(name) for name in (arrived, seen)):
        return None
    return {
        **{name: gateway.total(metric) - after.total(arrived) for name, metric in GATEWAY.items()},
        "rows": stream.total("tidegate_stream_rows_total", table="readings") - after.total(seen),
    }


def mostly_of_the_fleet(pipeline: Any) -> dict[str, float]:
    """The same as most of many looks show it: between the counts of one message by two processes lies a moment."""
    looks = [look for look in (of_the_fleet(pipeline) for _ in range(25)) if look is not None]
    return {name: statistics.mode(look[name] for look in looks) for name in looks[0]} if looks else {}


def stored_by_others(pipeline: Any, fleet: Any) -> float:
    """Messages of the last settled hour that are neither this fleet's nor the canary's."""
    (row,) = pipeline.json("sql", f"SELECT {STORED} AS stored FROM ledger WHERE device NOT LIKE '{fleet.name}-%'")
    return float(row["stored"])


def await_the_ledgers_panels(pipeline: Any, fleet: Any, wait_until: Callable[..., Any]) -> None:
    """The hour's messages and who talks most, as the page and Prometheus have them."""

    def hour() -> float:
        return ask(pipeline, "page").total("tidegate_ledger_messages", outcome="stored")

    def are_talkers() -> bool:
        talkers = {each["device"]: each["received"] for each in page(pipeline, "api/status")["devices"]["talkers"]}
        assert CANARY not in talkers
        own = {count for device, count in talkers.items() if device.startswith(fleet.name)}
        # Twenty are listed. In a run that is no longer young all of them may have sent more.
        others_sent_more = len(talkers) == MOST_TALKERS and min(talkers.values()) >= MESSAGES / DEVICES
        return own == {MESSAGES / DEVICES} or (not own and others_sent_more)

    wait_until(
        lambda: hour() - stored_by_others(pipeline, fleet) == MESSAGES,
        seconds=300,
        what=f"{MESSAGES} in tidegate_ledger_messages",
    )
    wait_until(are_talkers, seconds=60, what=f"{MESSAGES} by those who talk most")


def test_a_thousand_messages_are_a_thousand_wherever_they_are_counted(
    still: Any, start_fleet: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    with hang_part(still.run.parts["canary"], still.run.run_id):
        before = wait_until(Rest(still), seconds=300, what="a pipeline at rest")
        in_kafka, log_ends = kafkas_own(still)
        books_before = still.audit("2h")

        fleet = start_fleet(still, devices=DEVICES, rate=250, metrics=1, messages=MESSAGES)
        wait_until(lambda: fleet.totals is not None, seconds=300, what="the last message")
        assert (fleet.totals.sent, fleet.totals.acknowledged) == (MESSAGES, MESSAGES)

        def grown() -> dict[str, float]:
            return {name: value - before[name] for name, value in counted(still).items()}

        wait_until(lambda: set(grown().values()) == {MESSAGES}, seconds=300, what=f"{MESSAGES} everywhere")
        books = still.audit("2h")
        assert {name: books[name] - books_before[name] for name in ("received", "stored", "unaccounted")} == {
            "received": MESSAGES, "stored": MESSAGES, "unaccounted": 0,
        }  # fmt: skip

        ledger = (
            f"select sum(received) as received, sum(stored) as stored from ledger where device like '{fleet.name}-%'"
        )
        wait_until(
            lambda: still.json("sql", ledger) == [{"received": MESSAGES, "stored": MESSAGES}],
            seconds=300,
            what="the ledger holding all of them",
        )
        await_the_ledgers_panels(still, fleet, wait_until)
        canarys = f"select coalesce(sum(stored), 0) as stored from ledger where settled and device = '{CANARY}'"
        assert still.json("sql", canarys)[0]["stored"] > 0, "the ledger holds some that the panels do not count"
        assert len(still.stored_messages(fleet.boot)) == MESSAGES
        assert page(still, f"api/device?device={fleet.name}-01")["ledger"]["received"] == MESSAGES / DEVICES

        def kafkas_growth() -> tuple[float, int]:
            records, ends = kafkas_own(still)
            return records - in_kafka, ends - log_ends

        # Beside the readings Kafka takes outcomes and offsets of groups: what it counts is what its logs grew by.
        wait_until(
            lambda: MESSAGES < kafkas_growth()[0] == kafkas_growth()[1],
            seconds=300,
            what="Kafka's count being its logs'",
        )
        # Nothing of it was counted late.
        assert set(grown().values()) == {MESSAGES}


def test_the_canary_is_in_no_figure_of_the_fleet(
    still: Any, start_fleet: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    def rates() -> list[float | None]:
        shown = page(still, "api/status")["rates"]
        return [shown[name] for name in ("received", "accepted", "acknowledged", "rows")]

    def beats() -> float:
        return ask(still, "canary").total("tidegate_canary_seen_total")

    with hang_part(still.run.parts["canary"], still.run.run_id):
        wait_until(Rest(still), seconds=300, what="a pipeline at rest")
    first = beats()
    wait_until(lambda: beats() > first, seconds=300, what="a canary that goes on")
    # A look may have a beat in one of the counters and not yet in the other.
    wait_until(lambda: set(rates()) == {0.0}, seconds=300, what="a fleet that is told to send nothing")
    before = wait_until(
        lambda: mostly_of_the_fleet(still), seconds=300, what="looks at the canary and the rest at once"
    )
    fleet = start_fleet(still, devices=DEVICES, rate=250, metrics=1, messages=MESSAGES)
    wait_until(lambda: fleet.totals is not None, seconds=300, what="the last message")

    def grown() -> dict[str, float]:
        return {name: value - before[name] for name, value in mostly_of_the_fleet(still).items()}

    wait_until(lambda: set(grown().values()) == {MESSAGES}, seconds=300, what=f"{MESSAGES} without the canary's")
    # It has published all the while, and is in what counts everything.
    canarys = f"select count(*) as readings from readings where device = '{CANARY}'"
    sent = beats() - first
    assert sent >= 5
    assert still.json("sql", canarys)[0]["readings"] >= sent
