"""Every query of the exported dashboards gives numbers on the run that `tidegate up` starts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitoring.grafana.query_check import ask_prometheus


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
    """At some look each; what may be empty on a good run is listed with its reason in monitoring/grafana/query_check.py."""
    command = ["export", "grafana", str(tmp_path), "--data", str(pipeline.data), "--check", prometheus]
    never: dict[str, str] = {}

    def nothing_left() -> bool:
        told = pipeline.json(*command, ok=(0, 1))["empty"]
        now = {f"{each['panel']}: {each['expr']}": each["why"] for each in told if not each["expected"]}
        # A batch or a chore may take longer than the window of a rate on a busy machine.
        left = {key: why for key, why in now.items() if not looked or key in never}
        never.clear()
        never.update(left)
        looked.append(len(left))
        return not left

    looked: list[int] = []
    try:
        wait_until(nothing_left, seconds=400)
    except pytest.fail.Exception:
        pytest.fail("\n".join(["these gave nothing at any look:", *(f"{why}: {key}" for key, why in never.items())]))
    told = pipeline.json(*command, ok=(0, 1))["empty"]
    if ask_prometheus(prometheus)("tidegate_broker_sys_available == 1"):
        assert not [each for each in told if "$SYS" in each["why"]]
    overview = json.loads((tmp_path / "dashboards" / "tidegate-overview.json").read_text("utf-8"))
    assert overview["uid"] == "tidegate-overview"
