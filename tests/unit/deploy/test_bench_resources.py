"""Resources of a run: rates of counters, own and foreign processor time, and what is not known is absent."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.bench.suite import resources
from deploy.bench.suite.cell_beds import LivePids
from deploy.bench.suite.judge import MeasuredCell, judge_cells
from deploy.bench.suite.resources import MB, ResourceSample, ResourceSampler, rates_between
from deploy.bench.suite.scenario import Scenario
from deploy.bench.suite.spread import better, spread_of
from deploy.testbed.server_process import ServerProcess
from monitoring.scrape import Scrape


def test_counters_become_rates_and_gauges_their_worst() -> None:
    samples = [
        ResourceSample(10.0, {"errors_per_second": 4.0}, {"purgatory_fetch": 1.0, "disk_available_gb": 50.0}),
        ResourceSample(11.0, {"errors_per_second": 5.0}, {"purgatory_fetch": 9.0, "disk_available_gb": 40.0}),
        ResourceSample(
            14.0, {"errors_per_second": 6.0, "late": 1.0}, {"purgatory_fetch": 2.0, "disk_available_gb": 45.0}
        ),
    ]
    found = rates_between(samples[0], samples[2], samples[1:2])
    assert found == {"errors_per_second": 0.5, "purgatory_fetch": 9.0, "disk_available_gb": 40.0}


def test_a_run_is_measured_with_its_own_processor_time_apart_from_that_of_others(tmp_path: Path) -> None:
    sampler = ResourceSampler(folder=tmp_path)

    def burn() -> Mapping[str, Any]:
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        return {"produced": 1}

    with sampler.running():
        figures, used = sampler.measure(burn)
    assert figures == {"produced": 1}
    assert used["client_cpu_cores"] > 0
    assert "broker_cpu_cores" not in used, "a run without brokers has no processor time of theirs"
    assert used["client_rss_mb"] > 1
    assert {"io_wait_ratio", "disk_available_gb", "context_switches_per_second", "other_cpu_cores"} <= set(used)
    broker = ResourceSampler(folder=tmp_path, brokers={"broker_1": os.getpid()}).measure(burn)[1]
    assert broker["broker_cpu_cores"] == broker["broker_1_cpu_cores"] > 0


def test_a_broker_that_gives_no_metrics_is_no_broker_without_errors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    errors = "kafka_network_requestmetrics_errors_total"
    answers: dict[str, list[Scrape | None]] = {
        "one": [Scrape(0.0, {(errors, (("error", "UNKNOWN"),)): count}) for count in (5.0, 9.0)],
        "two": [Scrape(0.0, {(errors, (("error", "UNKNOWN"),)): 90.0}), None],
    }
    monkeypatch.setattr(resources, "scrape", lambda url, timeout_seconds: answers[url].pop(0))
    sampler = ResourceSampler(folder=tmp_path, jmx_urls={"broker_1": "one", "broker_2": "two"})
    _, used = sampler.measure(dict)
    assert "client_cpu_cores" in used
    assert "errors_per_second" not in used
    goal = Scenario.model_validate({"title": "t", "goals": [{"figure": "errors_per_second", "at_most": 0}]})
    cell = goal.cells()[0].parameters
    (row,) = judge_cells(goal, [MeasuredCell(cell, {name: spread_of([value]) for name, value in used.items()})])
    assert (row["met"], row["why"]) == (None, "errors_per_second was not measured")


def _broker(**values: float) -> Scrape:
    """What one broker's agent serves: total time by request, and what is named."""
    requests = "kafka_network_requestmetrics_totaltimems"
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {
        (f"{requests}_{name}", (("request", "Produce"),)): value
        for name, value in values.items()
        if name in ("mean", "count")
    }
    named = {(name, ()): value for name, value in values.items() if name not in ("mean", "count")}
    return Scrape(0.0, {**found, **named})


def test_total_time_is_the_mean_of_the_runs_own_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kafka tells a mean since the start, of each broker; slow requests before the run are not the run's."""
    answers = {
        "one": [_broker(mean=100.0, count=10), _broker(mean=55.0, count=20)],
        "two": [_broker(mean=0.0, count=0), _broker(mean=4.0, count=30)],
    }
    monkeypatch.setattr(resources, "scrape", lambda url, timeout_seconds: answers[url].pop(0))
    _, used = ResourceSampler(folder=tmp_path, jmx_urls={"broker_1": "one", "broker_2": "two"}).measure(dict)
    assert used["produce_total_ms_mean"] == pytest.approx((10 * 10 + 30 * 4) / 40)
    assert "produce_total_ms_sum" not in used
    assert better("produce_total_ms_mean") == -1


def test_counts_of_a_broker_that_started_again_in_a_run_are_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its counts began again: their sum would hide errors and bytes."""
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    answers = {
        "one": [_broker(process_start_time_seconds=10.0, mean=5.0, count=9, **{name: 900.0})] * 2,
        "two": [
            _broker(process_start_time_seconds=began, mean=5.0, count=count, **{name: count})
            for began, count in ((11.0, 50.0), (99.0, 70.0))
        ],
    }
    monkeypatch.setattr(resources, "scrape", lambda url, timeout_seconds: answers[url].pop(0))
    _, used = ResourceSampler(folder=tmp_path, jmx_urls={"broker_1": "one", "broker_2": "two"}).measure(dict)
    assert "client_cpu_cores" in used
    assert not {"bytes_in_per_second", "produce_total_ms_mean", "produce_requests_per_second"} & set(used)


def test_of_an_existing_cluster_what_is_not_known_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its brokers may be anywhere: no processor time, memory or disk of theirs is made up, and none of this machine's."""
    _, used = ResourceSampler(folder=None).measure(dict)
    assert {"client_cpu_cores", "machine_cpu_cores", "memory_available_gb"} <= set(used)
    assert not {name for name in used if name.startswith(("broker", "disk", "purgatory", "errors", "bytes", "failed"))}

    answers = [
        _broker(process_cpu_seconds_total=value, process_resident_memory_bytes=7e6, mean=2.0, count=value)
        for value in (5.0, 9.0)
    ]
    monkeypatch.setattr(resources, "scrape", lambda url, timeout_seconds: answers.pop(0))
    _, used = ResourceSampler(folder=None, jmx_urls={"broker_1": "one"}).measure(dict)
    assert used["broker_cpu_cores"] > 0
    assert (used["broker_rss_mb"], used["produce_total_ms_mean"]) == (7.0, 2.0)
    # An agent with other rules does not serve those: nobody may read that as none.
    assert not {"bytes_in_per_second", "errors_per_second", "failed_requests_per_second", "purgatory_fetch"} & set(used)


def test_a_server_that_is_called_broker_counts_once() -> None:
    """A whole pipeline calls its mosquitto so: what it used twice would hide what other programs used."""
    burn = "import time; print(flush=True); input()\nwhile time.process_time() < 0.6: pass\nprint(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        sampler = ResourceSampler(brokers={"broker": server.pid}, folder=None)

        def look() -> tuple[float, Mapping[str, float]]:
            assert server.stdout is not None and server.stdout.readline() == b"\n"
            return sum(psutil.Process(server.pid).cpu_times()[:2]), sampler.look().counters

        def go_on() -> None:
            assert server.stdin is not None
            server.stdin.write(b"\n")
            server.stdin.flush()

        used_before, before = look()
        go_on()
        used, after = look()
        go_on()
    grown = {name: after[name] - before[name] for name in after}
    assert grown["broker_cpu_cores"] == pytest.approx(used - used_before, rel=0.1)
    assert grown["server_broker_cpu_cores"] == grown["broker_cpu_cores"]
    rest = grown["machine_cpu_cores"] - grown["client_cpu_cores"] - grown["broker_cpu_cores"]
    assert grown["other_cpu_cores"] == pytest.approx(rest, abs=1e-6)


def test_the_memory_of_servers_is_a_sum_whatever_their_names_are() -> None:
    program = [sys.executable, "-c", "print(flush=True); input()"]
    servers = [subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        for each in servers:
            assert each.stdout is not None and each.stdout.readline() == "\n"
        names = ("broker", "client", "other", "kafka")
        # Which of them a look comes to last is not known.
        for turn in range(4):
            pids = [each.pid for each in (*servers[turn:], *servers[:turn])]
            gauges = ResourceSampler(brokers=dict(zip(names, pids, strict=True)), folder=None).look().gauges
            own = [gauges["kafka_rss_mb"], *(gauges[f"server_{name}_rss_mb"] for name in names[:3])]
            assert gauges["broker_rss_mb"] == pytest.approx(sum(own)) and min(own) > 0
            assert gauges["client_rss_mb"] >= psutil.Process().memory_info().rss / MB * 0.5
    finally:
        for each in servers:
            each.communicate("\n")


def test_a_broker_that_was_started_again_is_still_the_broker(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    process = ServerProcess(tmp_path / "log")
    pids = LivePids({"broker_1": process})
    sampler = ResourceSampler(folder=tmp_path, brokers=pids)
    assert (dict(pids), len(pids)) == ({}, 0)
    try:
        seen = list[int]()
        for count in (1, 2):
            process.spawn([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"])
            wait_until(lambda count=count: process.log().count("up") == count, what="the program being loaded")
            seen.append(pids["broker_1"])
            assert sampler.look().gauges["broker_1_rss_mb"] > 0
            process.kill()
        assert seen[0] != seen[1]
    finally:
        process.kill()


@pytest.mark.parametrize("is_child", [True, False])
def test_what_a_broker_used_until_it_was_killed_is_neither_forgotten_nor_that_of_others(
    tmp_path: Path, is_child: bool
) -> None:
    process = ServerProcess(tmp_path / "log")
    burn = "import time\nwhile time.process_time() < 1.2: pass\ntime.sleep(600)"
    program = [sys.executable, "-c", burn]
    parent = f"import subprocess; print(subprocess.Popen({program!r}, stdout=-3, stderr=-3).pid, flush=True)"
    pids: dict[str, int] = {}
    try:
        if is_child:
            process.spawn(program)
            pids["broker_1"] = process.pid or 0
        else:
            said = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
            pids["broker_1"] = int(said.stdout)
        while sum(psutil.Process(pids["broker_1"]).cpu_times()[:2]) < 1:
            pass
        sampler = ResourceSampler(folder=tmp_path, brokers=pids)
        before = sampler.look().counters
    finally:
        if is_child:
            process.kill()
        else:
            psutil.Process(pids["broker_1"]).kill()
    pids.clear()
    after = sampler.look().counters
    for name in ("broker_cpu_cores", "broker_1_cpu_cores"):
        assert after[name] == before[name] >= 1
    assert after["client_cpu_cores"] - before["client_cpu_cores"] < 0.5


def test_a_child_that_one_look_misses_is_still_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; input()'], stdin=sys.stdin)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as broker:
        try:
            # Between its fork and its exec a child has as much memory as its parent, and less afterwards.
            while [one.cmdline()[-1:] for one in psutil.Process(broker.pid).children()] != [["import time; input()"]]:
                assert broker.poll() is None
            sampler = ResourceSampler(brokers={"broker_1": broker.pid}, folder=tmp_path)
            both = sampler.look().gauges["broker_rss_mb"]
            monkeypatch.setattr(psutil.Process, "children", lambda self, recursive=False: [])
            assert sampler.look().gauges["broker_rss_mb"] > 0.7 * both
        finally:
            broker.communicate(b"\n")
    assert sampler.look().gauges["broker_rss_mb"] == 0
