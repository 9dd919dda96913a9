"""PromQL expressions of the dashboards: every selector follows the variables cluster, job and instance."""

from typing import Final

from monitoring.indicators import INSTALLATION

__all__ = ["INSTALLED", "OURS", "age", "growth", "mean", "quantile", "rate", "select", "total"]

INSTALLED: Final = f'{INSTALLATION}=~"${INSTALLATION}"'
"""The installations that the viewer chose; all of them if no series has the label."""
_CHOSEN: Final = f'{INSTALLED}, job=~"$job", instance=~"$instance"'
OURS: Final = 'job=~"tidegate-.+|prometheus|alertmanager"'
"""For names that every exporter serves: other systems in the same Prometheus must not appear as parts of Tidegate."""
_TIDEGATE: Final = 'job=~"tidegate-.+"'
"""For names that exporters of brokers and machines serve: other exporters describe other machines."""
_WINDOW: Final = "$__rate_interval"


def select(metric: str, where: str = "") -> str:
    """Return the series of a metric that the viewer chose."""
    is_told_by_others = not metric.startswith("tidegate_") and "job=" not in where
    return f"{metric}{{{', '.join(filter(None, (_CHOSEN, _TIDEGATE if is_told_by_others else '', where)))}}}"


def total(metric: str, by: str = "", where: str = "", *, how: str = "sum") -> str:
    """Return the sum over all instances; `how` names another aggregation, such as max."""
    return f"{how}{_by(by)}({select(metric, where)})"


def rate(metric: str, by: str = "", where: str = "", *, window: str = _WINDOW) -> str:
    """Return a counter's events per second, all instances together."""
    return f"sum{_by(by)}(rate({select(metric, where)}[{window}]))"


def growth(metric: str, by: str = "", where: str = "", *, window: str = _WINDOW) -> str:
    """Return a counter's events within the window."""
    return f"sum{_by(by)}(increase({select(metric, where)}[{window}]))"


def quantile(share: float, histogram: str, by: str = "", where: str = "") -> str:
    """Return a quantile of a histogram, named without `_bucket`."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', labels, where)})"


def mean(histogram: str, by: str = "", where: str = "") -> str:
    """Return the mean of a histogram; no value if nothing was counted."""
    return f"{rate(f'{histogram}_sum', by, where)} / ({rate(f'{histogram}_count', by, where)} > 0)"


def age(timestamp: str, by: str = "", where: str = "") -> str:
    """Return the seconds since an instant that a gauge holds; an instant that never came (0) has no age."""
    return f"time() - max{_by(by)}({select(timestamp, where)} > 0)"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""
