"""The dashboards as files, and the settings that take the place of their placeholders.

To change a dashboard, edit its file by hand, or edit a copy in Grafana and save its JSON here; panels keep their ids.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client.utils import floatToGoString

from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["dashboards"]

_FOLDER: Final = Path(__file__).parent / "dashboards"
_NAMES: Final = ("tidegate-overview", "tidegate-pipeline", "tidegate-kafka", "tidegate-bench")
"""In the order of their use; a file's name is the dashboard's uid."""
_PLACEHOLDER: Final = re.compile(r"<<(\w+)>>")


def dashboards(settings: MonitoringSettings) -> tuple[dict[str, Any], ...]:
    """Return all dashboards, filled with the settings, in the order of their use."""
    values = _values(settings)
    return tuple(_filled(json.loads((_FOLDER / f"{name}.json").read_text("utf-8")), values) for name in _NAMES)


def _values(settings: MonitoringSettings) -> dict[str, tuple[str, float | str]]:
    """Return the value of each placeholder, as a part of a text and as a value of its own."""
    # The label of a histogram's bucket, as the exporters write it.
    bucket: str = floatToGoString(settings.freshness_seconds)  # type: ignore[no-untyped-call]
    found: dict[str, tuple[str, float | str]] = {
        "freshness_seconds": (f"{settings.freshness_seconds:g}", settings.freshness_seconds),
        "freshness_bucket": (bucket, bucket),
    }
    for name, share in (("freshness", settings.freshness_objective), ("validity", settings.validity_objective)):
        found[f"{name}_objective"] = f"{share:.4g}", share
        found[f"{name}_allowed"] = f"{1 - share:.6g}", 1 - share
        found[f"{name}_good"] = f"{(1 + share) / 2:.6g}", (1 + share) / 2
    return found


def _filled(content: Any, values: Mapping[str, tuple[str, float | str]]) -> Any:
    """Return the content with its placeholders filled; a text that is only a placeholder becomes a number."""
    if isinstance(content, dict):
        return {key: _filled(value, values) for key, value in content.items()}
    if isinstance(content, list):
        return [_filled(value, values) for value in content]
    if not isinstance(content, str):
        return content
    if whole := _PLACEHOLDER.fullmatch(content):
        return values[whole[1]][1]
    return _PLACEHOLDER.sub(lambda found: values[found[1]][0], content)
