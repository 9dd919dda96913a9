"""The files of `tidegate export prometheus`."""

from pathlib import Path
from typing import Any, Final

import yaml

import monitoring
from monitoring.alerts.alertmanager import alertmanager_config
from monitoring.alerts.rules import rule_file
from monitoring.prometheus.scrape_config import scrape_config
from monitoring.settings import MonitoringSettings

__all__ = ["EVERY_SECONDS", "prometheus_files"]

ALERTMANAGER: Final = "http://127.0.0.1:9093"
"""Where one of one's own answers: that which the README starts."""
EVERY_SECONDS: Final = 15
"""How often Prometheus asks; Grafana makes the windows of rates from it."""
RULES: Final = "tidegate-rules.yml"
MADE: Final = "# Made by `tidegate export prometheus`; made anew by the same command.\n"
README: Final = """\
# Tidegate for your Prometheus

| file | what it is |
|---|---|
| `prometheus.yml` | a whole configuration: whom to ask, which rules, whom to tell |
| `tidegate-rules.yml` | every alert, and the recorded shares that burn-rate alerts read |
| `alertmanager.yml` | a whole configuration: grouping, and which alert is not told while its cause fires |
| `kafka-jmx.yml` | what the JMX agent takes from a Kafka broker, under the names that alerts and dashboards ask for |

## A Prometheus of its own

    promtool check config prometheus.yml
    amtool check-config alertmanager.yml
    prometheus --config.file=prometheus.yml
    alertmanager --config.file=alertmanager.yml

`prometheus.yml` tells the Alertmanager at `monitoring.alertmanager_url`, and where that is not set the one that the last line
starts, at 127.0.0.1:9093.

## A Prometheus that you already run

1. Copy `tidegate-rules.yml` to where your rules are, and name it under `rule_files`.
2. Copy the jobs `tidegate-…` under `scrape_configs` into yours. Their names matter: rules and dashboards ask for
   `job="tidegate-gateway"` and so on.
3. Several installations in one Prometheus: name the targets of each under the same jobs, with a label `cluster` of its own.
   Rules, inhibition and dashboards tell them apart by it; one alone needs none (`external_labels` is for what is sent on).

       - job_name: tidegate-gateway
         static_configs:
           - targets: ["plant-a:9471"]
             labels: {cluster: plant-a}
           - targets: ["plant-b:9471"]
             labels: {cluster: plant-b}

4. Copy `inhibit_rules` and the routes of `alertmanager.yml` into yours.

Names that other exporters tell too (`kafka_…`, `node_…`, `broker_…`) are asked of `job="tidegate-monitor"` and
`job="tidegate-kafka"` only: yours may speak of other machines. To have a kafka_exporter of your own judged in place of the
monitor's figures, drop those of the monitor and give its series that job, both by `metric_relabel_configs`:
`[{target_label: job, replacement: tidegate-monitor}]`.

## A Kafka of your own

`tidegate up` starts its Kafka with the JMX agent. Start each of your brokers with it too (`jmx_prometheus_javaagent`, 1.0.1
was tested), and name the brokers in `monitoring.targets`, or under the job `tidegate-kafka`:

    KAFKA_OPTS="-javaagent:/opt/jmx_prometheus_javaagent-1.0.1.jar=9404:/opt/kafka-jmx.yml"

An agent that cannot listen ends the broker, so choose a port that is free. An agent with rules of your own will do if they
keep the names of its public rules for KRaft.

## Parts that you do not run

No canary: `monitoring.canary_port = 0`, or `canary = []` under `[monitoring.targets]`, and export again; else
`TidegateTargetDown` fires about it for ever. `spark` and `kafka` are asked only where `monitoring.spark_jmx_port`,
`monitoring.kafka_jmx_port` or `monitoring.targets` say where their JMX agents answer.

## A benchmark while it runs

Set `monitoring.bench_port` to a port, export again, and give the same port to `tidegate bench run --metrics-port`: the job
`tidegate-bench` feeds the dashboard Bench. It is down while no benchmark runs, and nothing alarms about that.

## What alerts tell to do

Alerts and runbooks name `tidegate status` and `tidegate logs PART`, which know an embedded run. For services of your own
that is `tidegate status --config FILE`, and the log where your supervisor puts it: `journalctl -u UNIT`,
`docker logs CONTAINER`.

## Who is told

The receivers `critical`, `warning` and `watchdog` have a name and no address: nobody is told until you write one, such as

    receivers:
      - name: critical
        webhook_configs:
          - url: http://pager.example/hook

Send `watchdog` to something that raises alarm when it stops arriving. Every alert has an annotation `runbook_url`; where the
ops page is not reachable for those who get alerts, set `monitoring.runbook_base_url` and export again.
"""


def prometheus_files(settings: MonitoringSettings) -> dict[str, str]:
    """File name -> content. A Prometheus that tells nobody would be half a configuration: it has an Alertmanager always."""
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
