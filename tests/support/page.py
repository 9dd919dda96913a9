"""The ops page with scripted snapshots behind the real server; what the tables and Kafka would answer is a test's to write."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.local.ports import choose_port
from monitoring.metrics.monitor import MonitorMetrics
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.page.app import make_page
from monitoring.page.page_api import PageApi, PageError
from monitoring.page.server import PageServer
from monitoring.page.snapshot_broadcaster import SnapshotBroadcaster
from tests.support.page_stories import a_device, a_field, a_letter, normal_snapshot
from tests.support.page_topics import ScriptedTopics

TOKEN = "a-token-of-tests"


def _counted(letters: list[dict[str, Any]]) -> dict[str, Any]:
    redriven = sum(each["redriven_as"] not in (None, "refused") for each in letters)
    last = max(each["received_at"] for each in letters)
    return {"letters": len(letters), "redriven": redriven, "last_received_at": last}


def _causes(letters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the monitor counts them: by reason, and within it by device."""
    found = []
    for reason in dict.fromkeys(each["reason"] for each in letters):
        these = [each for each in letters if each["reason"] == reason]
        by_device = [
            {"device": name, "mqtt_topic": of_it[-1]["mqtt_topic"], **_counted(of_it)}
            for name in dict.fromkeys(each["device"] for each in these)
            if (of_it := [each for each in these if each["device"] == name])
        ]
        devices = sum(each["device"] is not None for each in by_device)
        found.append({"reason": reason, "devices": devices, "by_device": by_device, **_counted(these)})
    return found


class ScriptedPage:
    """The real page in front of a board that a test writes. What the tables would answer is in its attributes."""

    def __init__(self, folder: Path, snapshot: dict[str, Any], *, token: bool = True) -> None:
        self.snapshot = snapshot
        self.letters = [a_letter(number) for number in range(6)]
        self.left_out: list[dict[str, Any]] | None = [
            a_field("conn", 412),
            a_field("<img src=x onerror=window.hit=1>", 7),
        ]
        self.payload_lines = ['{"values": {"temperature": 412.5}}', " " * 27 + "^" * 5]
        self.devices = [a_device(f"pump-{n}") for n in range(30)] + [a_device("boiler-0")]
        self.kafka = ScriptedTopics()
        self.redrives: list[tuple[list[str], bool]] = []
        self.report: dict[str, Any] = {"letters": 1, "accepted": 1, "readings": 1, "partial": 0, "stored": 0}
        file = folder / "page-token"
        if token:
            file.write_text(f"{TOKEN}\n")
        self._settings = MonitoringSettings(page_port=0, page_token_file=str(file) if token else None)
        self._readers = folder / "read-token"
        self._board, self._port = SnapshotBroadcaster(), choose_port(0)[0]
        self._ending = threading.Event()
        self.beating = threading.Event()
        self.beating.set()
        self._remember()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def show(self, snapshot: dict[str, Any]) -> None:
        """What the next looks see."""
        self.snapshot = snapshot
        self._look()

    def need_login(self, token: str = "a-token-of-readers") -> None:  # noqa: S107 - of tests
        """Let only those in who have this token or that of writers; another token applies without a restart."""
        self._readers.write_text(f"{token}\n")
        if self._settings.read_token_file is None:
            self._settings = self._settings.model_copy(update={"read_token_file": str(self._readers)})
            self.stop()
            self.start()

    def start(self) -> None:
        """Serve, after `stop` again on the same port."""
        registry = CollectorRegistry()
        answers = PageApi(
            device=self._device,
            devices=lambda search, limit: {"devices": [d for d in self.devices if search in d["device"]][:limit]},
            dead_letters=self._dead_letters,
            dead_letter=self._dead_letter,
            redrive=self._redrive,
            topics=self.kafka.listed,
            topic=self.kafka.look,
        )
        self._page = make_page(
            self._settings,
            self._board,
            answers,
            registry=registry,
            metrics=MonitorMetrics(registry),
            healthy=lambda: (True, "ok"),
        )
        self._server = PageServer(self._page.app, host="127.0.0.1", port=self._port)
        self._port = self._server.port

    def stop(self) -> None:
        self._page.close()
        self._server.close()

    def close(self) -> None:
        self._ending.set()
        self._thread.join(5)
        self.stop()

    def _remember(self) -> None:
        """Half an hour of a past that breathes."""
        now, point = time.time(), self.snapshot["point"]
        for back in range(1500, 0, -5):
            wave = 1 + 0.18 * math.sin(back / 90) + 0.06 * math.sin(back / 11)
            past = {name: None if value is None else value * wave for name, value in point.items()}
            self._board.publish({"at": now - back, "point": past})

    def _beat(self) -> None:
        while not self._ending.wait(0.25):
            if self.beating.is_set():
                self._look()

    def _look(self) -> None:
        self._board.publish(self.snapshot | {"at": time.time()})

    def _device(self, device: str) -> dict[str, Any]:
        now = time.time()
        at = [now - 10 * back for back in range(200, 0, -1)]

        def metric(name: str, unit: str, middle: float, swing: float) -> dict[str, Any]:
            return {
                "metric": name,
                "unit": unit,
                "at": at,
                "value": [middle + swing * math.sin(t / 97) + swing / 4 * math.sin(t / 7) for t in at],
            }

        known = next((each for each in self.devices if each["device"] == device), None)
        return {
            "device": known,
            "metrics": [
                metric("temperature", "°C", 61, 8),
                metric("pressure", "bar", 4.2, 0.3),
                metric("flow", "m³/h", 12, 2),
                metric("vibration", "mm/s", 1.1, 0.6),
            ],
            "ledger": {
                "received": 8640,
                "stored": 8421,
                "dead_lettered": 207,
                "ignored": 12,
                "duplicate": 0,
                "gap": 4,
                "late": 31,
            },
            "dead_letters": self.letters,
            "left_out": self.left_out,
            "silent_seconds": 2.0,
            "is_silent": False if known else None,
        }

    def _dead_letters(self, reason: str | None, device: str | None, limit: int, before: str | None) -> dict[str, Any]:
        of_device = [each for each in self.letters if device in (None, each["device"])]
        found = [each for each in of_device if reason in (None, each["reason"])]
        first = next((n + 1 for n, each in enumerate(found) if each["id"] == before), 0)
        return {"causes": _causes(of_device), "letters": found[first : first + limit]}

    def _dead_letter(self, letter: str) -> dict[str, Any]:
        for each in self.letters:
            if each["id"] == letter:
                return each | {
                    "payload_lines": self.payload_lines,
                    "payload_base64": "eyJ2IjoxfQ==",
                    "next": "Check the sensor, then redrive: `tidegate dlq redrive 3-1000`.",
                }
        raise PageError(404, f"There is no dead letter {letter}.")

    def _redrive(self, ids: Sequence[str], dry_run: bool) -> dict[str, Any]:
        self.redrives.append((list(ids), dry_run))
        if not dry_run:
            self.letters = [each | {"redriven_as": "accepted"} if each["id"] in ids else each for each in self.letters]
        return {
            "run": 1,
            "dry_run": dry_run,
            "refused": {},
            "ignored": {},
            "skipped": {},
            "examples": [],
            **self.report,
        }


@pytest.fixture(scope="session")
def serve_page() -> Callable[[Path], ScriptedPage]:
    """Serves a page that runs well; to be closed by who asked for it."""
    return lambda folder: ScriptedPage(folder, normal_snapshot())


@pytest.fixture
def scripted_page(tmp_path: Path) -> Iterator[ScriptedPage]:
    """A page that runs well, until the test says otherwise."""
    page = ScriptedPage(tmp_path, normal_snapshot())
    yield page
    page.close()
