"""What the supervisor says by itself, whether or not a monitor watches."""

from deploy.local.supervisor import part_alerts

PLENTY = 10 * 1024**3


def test_alerts_name_the_part_and_the_next_step() -> None:
    parts = {"kafka": {"state": "restarting", "detail": "killed by SIGKILL; starts again in 1 s"}}
    texts = [alert["text"] for alert in part_alerts(parts, disk_free_bytes=5 * 1024**2)]
    assert texts[0] == "kafka: killed by SIGKILL; starts again in 1 s. See `tidegate logs kafka`."
    assert "5 MB of disk" in texts[1]
    assert part_alerts({"kafka": {"state": "ready", "detail": ""}}, disk_free_bytes=PLENTY) == []


def test_a_part_that_was_ready_and_is_not_now_is_an_alert() -> None:
    parts = {
        "gateway": {"state": "starting", "detail": "waiting for Kafka", "seconds": 3.0},
        "stream": {"state": "starting", "detail": "starting Spark", "seconds": None},
        "topics": {"state": "failed", "detail": "ended with exit code 78", "seconds": None},
        "fleet": {"state": "stopping", "detail": "", "seconds": 1.0},
        "broker": {"state": "ready", "detail": "", "seconds": 1.0},
        "canary": {"state": "down", "detail": "does not answer", "seconds": 1.0},
    }
    found = {alert["part"]: alert["text"] for alert in part_alerts(parts, disk_free_bytes=PLENTY)}
    assert set(found) == {"gateway", "topics", "canary"}
    assert found["gateway"] == "gateway: waiting for Kafka. See `tidegate logs gateway`."


def test_a_detail_that_is_a_sentence_ends_once() -> None:
    parts = {"stream": {"state": "restarting", "detail": "Kafka does not answer; landing waits for it."}}
    (alert,) = part_alerts(parts, disk_free_bytes=PLENTY)
    assert "waits for it. See `tidegate logs stream`." in alert["text"]
