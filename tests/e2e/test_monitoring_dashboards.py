"""Every query of the exported dashboards gives numbers on the run that `tidegate up` starts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitoring.grafana.check import ask_prometheus


@pytest.fixture
def prometheus(pipeline: Any) -> str:
    url = pipeline.settings.monitoring.prometheus_url
    if url is None:
        pytest.skip("the run has no Prometheus: apt-get install prometheus prometheus-alertmanager")
    return str(url)


@pytest.mark.timeout(900)
def test_every_query_of_the_dashboards_gives_numbers(
    pipeline: Any, prometheus: str, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """What may be empty on a good run is listed with its reason in monitoring/grafana/check.py; chores need their first run."""
    command = ["export", "grafana", str(tmp_path), "--data", str(pipeline.data), "--check", prometheus]
    last: dict[str, list[str]] = {}

    def nothing_empty() -> bool:
        told = pipeline.json(*command, ok=(0, 1))
        last["empty"] = [
            f"{each['panel']}: {each['why']}: {each['expr']}" for each in told["empty"] if not each["expected"]
        ]
        last["expected"] = sorted({each["why"] for each in told["empty"] if each["expected"]})
        return not last["empty"]

    try:
        wait_until(nothing_empty, seconds=400)
    except pytest.fail.Exception:
        pytest.fail("\n".join(["these give nothing:", *last["empty"]]))
    ask = ask_prometheus(prometheus)
    if ask("tidegate_broker_sys_available == 1"):
        assert not [why for why in last["expected"] if "$SYS" in why]
    overview = json.loads((tmp_path / "dashboards" / "tidegate-overview.json").read_text("utf-8"))
    assert overview["uid"] == "tidegate-overview"
