"""Files of `tidegate export prometheus`."""

from pathlib import Path
from typing import Any, Final

import yaml

import monitoring
from monitoring.alerts.alertmanager import alertmanager_config
from monitoring.alerts.rules import rule_file
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.prometheus.scrape_config import scrape_config

__all__ = ["EVERY_SECONDS", "prometheus_files"]

ALERTMANAGER: Final = "http://127.0.0.1:9093"
"""Address of the Alertmanager that the exported README starts."""
EVERY_SECONDS: Final = 15
"""Scrape interval of Prometheus; Grafana derives the windows of rates from it."""
RULES: Final = "tidegate-rules.yml"
MADE: Final = "# Written by `tidegate export prometheus`. Run it again with --force to replace this file.\n"
README: Final = """\
# Tidegate for your Prometheus

| file | content |
|---|---|
| `prometheus.yml` | a complete configuration: scrape jobs, rule file, Alertmanager |
| `tidegate-rules.yml` | all alerts, and the recorded ratios that burn-rate alerts read |
| `alertmanager.yml` | a complete configuration: grouping, and rules that mute an alert while its cause fires |
| `kafka-jmx.yml` | the metrics that the JMX agent exports from a Kafka broker, under the names that alerts and dashboards use |

## Run a new Prometheus

    promtool check config prometheus.yml
    amtool check-config alertmanager.yml
    prometheus --config.file=prometheus.yml
    alertmanager --config.file=alertmanager.yml

`prometheus.yml` sends alerts to the Alertmanager at `monitoring.alertmanager_url`. If that is not set, it sends them to the one
that the last line starts, at 127.0.0.1:9093.

## Use a Prometheus that you already run

1. Copy `tidegate-rules.yml` to your rules, and name it under `rule_files`.
2. Copy the jobs `tidegate-…` under `scrape_configs` into your configuration. Keep their names: rules and dashboards use
   `job="tidegate-gateway"` and so on.
3. If one Prometheus watches several installations, add the targets of each to the same jobs, with a label `cluster` of its own.
   Rules, inhibition and dashboards separate them by this label. A single installation needs no label (`external_labels` is for
   what Prometheus sends on).

       - job_name: tidegate-gateway
         static_configs:
           - targets: ["plant-a:9471"]
             labels: {cluster: plant-a}
           - targets: ["plant-b:9471"]
             labels: {cluster: plant-b}

4. Copy `inhibit_rules` and the routes of `alertmanager.yml` into your configuration.

Other exporters use the names `kafka_…`, `node_…` and `broker_…` too, for other machines. So rules and dashboards read these
names only from `job="tidegate-monitor"` and `job="tidegate-kafka"`. To use your own kafka_exporter instead of the monitor's
figures, drop the monitor's series and give the series of your exporter that job, both with `metric_relabel_configs`:
`[{target_label: job, replacement: tidegate-monitor}]`.

## Use a Kafka of your own

`tidegate up` starts its Kafka with the JMX agent. Start each of your brokers with it too (`jmx_prometheus_javaagent`; version
1.0.1 is tested), and name the brokers in `monitoring.targets` or under the job `tidegate-kafka`:

    KAFKA_OPTS="-javaagent:/opt/jmx_prometheus_javaagent-1.0.1.jar=9404:/opt/kafka-jmx.yml"

A broker exits if its agent cannot listen, so choose a free port. An agent with your own rules also works if they keep the names
of the agent's public rules for KRaft.

## Parts that you do not run

If you run no canary, set `monitoring.canary_port = 0`, or `canary = []` under `[monitoring.targets]`, and export again.
Otherwise `TidegateTargetDown` fires for it all the time. `spark` and `kafka` are scraped only if `monitoring.spark_jmx_port`,
`monitoring.kafka_jmx_port` or `monitoring.targets` name the addresses of their JMX agents.

## Login

If `monitoring.read_token_file` is set, the job `tidegate-monitor` sends this token. Copy the file to Prometheus' machine, and
give Prometheus' user the right to read it. If only a proxy logs users in, also set `monitoring.read_token_file` and export again.

## Watch a running benchmark

Set `monitoring.bench_port` to a port, export again, and give the same port to `tidegate bench run --metrics-port`. The job
`tidegate-bench` then feeds the dashboard Bench. It is down while no benchmark runs, and no alert fires for it.

## Commands in alerts and runbooks

Alerts and runbooks name `tidegate status` and `tidegate logs PART`, which work for an embedded run. If the parts are services
of your own, use `tidegate status --config FILE`, and read the log where your supervisor writes it: `journalctl -u UNIT`,
`docker logs CONTAINER`.

## Receivers

The receivers `critical`, `warning` and `watchdog` have a name but no address. Nobody is notified until you add one, such as

    receivers:
      - name: critical
        webhook_configs:
          - url: http://pager.example/hook

Send `watchdog` to a service that raises an alarm when it stops arriving. Every alert has an annotation `runbook_url`. If the
people who get alerts cannot reach the ops page, set `monitoring.runbook_base_url` and export again.
"""


def prometheus_files(settings: MonitoringSettings) -> dict[str, str]:
    """Return file name -> content. The configuration always names an Alertmanager, else alerts would reach nobody."""
    told = settings.model_copy(update={"alertmanager_url": settings.alertmanager_url or ALERTMANAGER})
    return {
        "prometheus.yml": _yaml(scrape_config(told, rules=RULES, every_seconds=EVERY_SECONDS)),
        RULES: _yaml(rule_file(settings)),
        "alertmanager.yml": _yaml(alertmanager_config(settings)),
        "kafka-jmx.yml": MADE + (Path(monitoring.__file__).parent / "jmx" / "kafka.yml").read_text("utf-8"),
        "README.md": README,
    }


def _yaml(content: dict[str, Any]) -> str:
    return MADE + str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120))
