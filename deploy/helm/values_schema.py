"""Schema of the chart's values: that of the chart, with the product's own schema of the settings in it.

So helm rejects a misspelled setting and a secret in plain text before anything is installed.
"""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from deploy.helm.chart_values import MANAGED, PORTS, secret_fields
from deploy.settings import Settings
from deploy.settings_file import SECRET_NAME

__all__ = ["values_schema"]

_EMBEDDED: Final = frozenset({"canary_seconds"})
"""The one setting of the embedded run that a part in production reads."""


def values_schema(chart: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the chart with `$defs.settings` and `$defs.secrets` from the settings of the product."""
    product = Settings.model_json_schema()
    models = product.pop("$defs")
    made = copy.deepcopy(dict(chart))
    secrets: dict[str, Any] = {}
    for section, field in Settings.model_fields.items():
        model = field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        fields = models[model.__name__]["properties"]
        names = list(secret_fields(model))
        unwanted = {*names, *MANAGED.get(section, ())}
        if section == "embedded":
            unwanted = set(fields) - _EMBEDDED
        for name in unwanted:
            fields.pop(name, None)
        if "extra" in fields:
            fields["extra"]["propertyNames"] = {"not": {"pattern": _any_case(SECRET_NAME)}}
        if names:
            properties = {name: {"$ref": "#/$defs/secretKey"} for name in names}
            secrets[section] = {"type": "object", "additionalProperties": False, "properties": properties}
    for model in models.values():
        _drop_secrets(model)
    ports = models["MonitoringSettings"]["properties"]
    for name in PORTS:
        # The pods serve probes there, so a port that no other part knows does not work.
        ports[name]["minimum"] = 1
    made["$defs"] = {
        **made["$defs"],
        **models,
        "settings": {"type": "object", "additionalProperties": False, "properties": product["properties"]},
        "secrets": {"type": "object", "additionalProperties": False, "properties": secrets},
    }
    return made


def _drop_secrets(model: dict[str, Any]) -> None:
    """Remove the fields of a model that hold a secret, also those of a model inside a section."""
    fields = model.get("properties", {})
    for name in [name for name, field in fields.items() if '"password"' in json.dumps(field.get("anyOf", field))]:
        del fields[name]


def _any_case(pattern: re.Pattern[str]) -> str:
    """Return the pattern of words for both cases: JSON schemas have no flags."""
    return re.sub("[a-z]", lambda letter: f"[{letter[0].upper()}{letter[0]}]", pattern.pattern)
