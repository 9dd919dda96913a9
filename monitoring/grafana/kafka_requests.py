"""Panels of Kafka's requests: rates, durations, errors, and queues."""

from monitoring.grafana.panel import Panel, PanelQuery, timeseries
from monitoring.grafana.promql import rate, select, total

__all__ = ["request_panels"]

_TOPICS = "kafka_server_brokertopicmetrics"
_REQUESTS = "kafka_network_requestmetrics"


def request_panels() -> list[Panel]:
    """Return the panels. The gateway waits for Produce, the stream for FetchConsumer."""
    return [
        timeseries(
            "Request rate",
            "Answered Produce and FetchConsumer requests per second.",
            "reqps",
            PanelQuery(rate(f"{_REQUESTS}_totaltimems_count", "request"), "{{request}}"),
        ),
        _times("Produce", "the gateway acknowledges a message only after the answer"),
        _times(
            "FetchConsumer", "this includes waiting for new data, so half a second is normal while nothing comes in"
        ),
        timeseries(
            "Error rate",
            "Answers with an error, by request and error. NONE (no error) is left out.",
            "reqps",
            PanelQuery(
                f"({rate(f'{_REQUESTS}_errors_total', 'request, error', _wrong())}) > 0", "{{request}} {{error}}"
            ),
            PanelQuery(rate(f"{_TOPICS}_failedproducerequests_total"), "Produce, failed in the broker"),
            PanelQuery(rate(f"{_TOPICS}_failedfetchrequests_total"), "Fetch, failed in the broker"),
        ),
        timeseries(
            "Purgatory size",
            "Waiting requests: Produce waits for replicas, Fetch for data. Growth of Produce means slow replicas.",
            "short",
            PanelQuery(
                total("kafka_server_delayedoperationpurgatory_purgatorysize", "delayedOperation"),
                "{{delayedOperation}}",
            ),
        ),
        timeseries(
            "Idle handlers",
            "Idle share of request handlers and network threads. Below 0.3 the broker needs more processors.",
            "percentunit",
            PanelQuery(_worst("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"), "handlers"),
            PanelQuery(_worst("kafka_network_socketserver_networkprocessoravgidlepercent"), "network"),
            maximum=1,
        ),
        timeseries(
            "Requests waiting",
            "Requests in the queue that wait for a handler.",
            "short",
            PanelQuery(total("kafka_network_requestchannel_requestqueuesize"), "waiting"),
        ),
        timeseries(
            "Records and requests in",
            "Records that producers sent, and produce and fetch requests by topic.",
            "cps",
            PanelQuery(rate(f"{_TOPICS}_messagesin_total"), "records"),
            PanelQuery(rate(f"{_TOPICS}_totalproducerequests_total"), "produce requests"),
            PanelQuery(rate(f"{_TOPICS}_totalfetchrequests_total"), "fetch requests"),
        ),
    ]


def _times(request: str, why: str) -> Panel:
    where = f'request="{request}"'
    metric = f"{_REQUESTS}_totaltimems"
    return timeseries(
        f"Total time of {request}",
        f"TotalTimeMs by quantile, slowest broker: {why}.",
        "ms",
        PanelQuery(f"max by (quantile) ({select(metric, where)})", "quantile {{quantile}}"),
    )


def _wrong() -> str:
    return 'error!="NONE"'


def _worst(metric: str) -> str:
    return total(metric, how="min")
