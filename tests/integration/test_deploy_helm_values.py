"""Whatever is in the values arrives in the settings of a part: helm's templates write TOML that says the same."""

import tomllib
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from deploy.settings import load_settings
from tests.support.helm import Render

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff"), max_size=12),
    st.sampled_from(
        ["a\nb", "\t", "{{ x }}", "$(POD_NAME)", "#", '"', "'", '"""', "\\", "true", "1e3", "~", "<&>", "[a]"]
    ),
)
"""Texts without control characters, which a ConfigMap cannot hold, and those that mean something to a parser on the way."""
MAPS = st.dictionaries(TEXTS, TEXTS, max_size=3)
ROUTES = st.fixed_dictionaries(
    {"filter": st.just("site/{site}/{device}")},
    optional={
        "device": TEXTS,
        "tags": MAPS,
        "units": MAPS,
        "payload": st.lists(TEXTS, max_size=3),
        "only": st.dictionaries(TEXTS, st.lists(TEXTS, max_size=2), max_size=2),
    },
)
SECTIONS = {
    "mqtt": {"host": TEXTS, "username": TEXTS, "port": st.integers(1, 65535), "tls": st.booleans()},
    "gateway": {
        "window_bytes": st.integers(1024, 2**52),
        "device_rate": st.floats(0, 2**53),
        "presets": st.lists(TEXTS, max_size=3),
    },
    "kafka": {"retention_bytes": st.integers(8 * 1024**2, 2**52)},
    "monitoring": {"freshness_objective": st.floats(1e-9, 0.9999), "audit_seconds": st.sampled_from([0, 30, 7199.5])},
}
VALUES = st.fixed_dictionaries(
    {name: st.fixed_dictionaries({}, optional=fields) for name, fields in SECTIONS.items()},
    optional={"routes": st.lists(ROUTES, max_size=3)},
)
MEMBERS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True),
            "clientId": TEXTS.filter(bool),
            "subscriptions": st.lists(st.sampled_from(["a/#", "ä/+", "b c/#", "<x>/y"]), min_size=1, max_size=3),
        }
    ),
    min_size=1,
    max_size=4,
)
many = hypothesis.settings(
    max_examples=30,
    # Each example starts helm, so a search for the smallest one would take minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def gateway_files(documents: list[dict[str, Any]]) -> list[str]:
    """The settings files of the gateways, in the order of their pods."""
    (found,) = (
        each["data"]
        for each in documents
        if each["kind"] == "ConfigMap" and each["metadata"]["labels"].get("app.kubernetes.io/component") == "gateway"
    )
    return [found[f"tidegate-gateway-{number}.toml"] for number in range(len(found))]


@many
@given(values=VALUES)
def test_settings_pass_through_the_chart(values: dict[str, Any], render: Render, tmp_path: Path) -> None:
    (text,) = gateway_files(render({"settings": values}))
    found = tomllib.loads(text)
    assert found.get("routes", []) == values.get("routes", [])
    for section in SECTIONS:
        assert {name: found[section][name] for name in values[section]} == values[section]
    file = tmp_path / "gateway.toml"
    file.write_text(text, encoding="utf-8")
    load_settings(file, environ={})


@many
@given(members=MEMBERS)
def test_every_member_is_a_pod_of_its_own(members: list[dict[str, Any]], render: Render) -> None:
    found = [tomllib.loads(text) for text in gateway_files(render({"gateway": {"members": members}}))]
    assert [
        {
            "id": each["gateway"]["gateway_id"],
            "clientId": each["mqtt"]["client_id"],
            "subscriptions": each["mqtt"]["subscriptions"],
        }
        for each in found
    ] == members
