"""The step that keeps a field which a mapping leaves out is the one that works."""

import json
from typing import Any

import pytest

from gateway.decoders.vendor_settings import OwnVendors, VendorSettings
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.keep_field import add_keep_steps, find_keep_step
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import Route, RouteTable, compile_routes
from ingest.contract.reading import decode_record

LIMITS, NONE = GatewaySettings(), OwnVendors()
OWN = "[[routes]] number 1 (site/{device})"


def own(mapping: Any) -> RouteTable:
    route = {"filter": "site/{device}", "device": "{device}", "mapping": mapping}
    return compile_routes((RouteSettings.model_validate(route),), LIMITS)


def left_out(table: RouteTable, topic: str, document: dict[str, Any]) -> tuple[set[str], dict[str, Route]]:
    """The metrics that a message gives, and the fields that it does not, each with its route."""
    gate = MessageProcessor(table, LIMITS)
    records = gate.decide(Message(1, 1, 1_795_900_000_000_000, topic.encode(), json.dumps(document).encode())).records
    metrics = {reading.metric for record in records for reading in decode_record(record.value).readings}
    routes = {route.label: route for route in table.routes}
    return metrics, {field: routes[label] for label, fields in table.left_out().items() for field in fields}


@pytest.mark.parametrize(
    ("mapping", "field", "step", "changed"),
    [
        ({"keep": ["t"]}, "x", f'Add `"x"` to `keep`, in the mapping of {OWN}.', {"keep": ["t", "x"]}),
        ({"keep": ["t"], "skip": ["x"]}, "x", f'Leave `"x"` out of `skip`, in the mapping of {OWN}.', {}),
        ({"skip": ["x*"]}, "x", f'Leave `"x*"` out of `skip`, in the mapping of {OWN}.', {"skip": []}),
        ({"text": ["t"]}, "s", f'Add `"s"` to `text`, in the mapping of {OWN}.', {"text": ["s"]}),
        ({"skip": ["y"], "rename": {"x": "y"}}, "x", f'Leave `"y"` out of `skip`, in the mapping of {OWN}.', {}),
        ({"prefix": "p.", "skip": ["p.x"]}, "x", f'Leave `"p.x"` out of `skip`, in the mapping of {OWN}.', {}),
        ({"skip": ["o"]}, "o", f'Leave `"o"` out of `skip`, in the mapping of {OWN}.', {}),
        (
            {"cases": [{"when": {"t": True}, "skip": ["x"]}]},
            "x",
            f'Leave `"x"` out of `skip` of its case 1, in the mapping of {OWN}.',
            {},
        ),
    ],
)
def test_the_step_names_the_list_that_leaves_a_field_out(
    mapping: dict[str, Any], field: str, step: str, changed: dict[str, Any]
) -> None:
    document = {"t": 1, "x": 2, "s": "on", "o": {"z": 3}}
    table = own(mapping)
    metrics, fields = left_out(table, "site/a", document)
    assert field not in metrics
    assert find_keep_step(fields[field], field, NONE) == step
    if changed:
        assert field in left_out(own(mapping | changed), "site/a", document)[0]


def test_the_step_for_a_shipped_mapping_is_a_route_that_extends_it() -> None:
    document = {"_type": "location", "tst": 1_795_900_000, "lat": 10.2, "conn": "m", "bs": 1, "batt": 80}
    topic = "owntracks/fleet/truck9"
    _, fields = left_out(compile_routes((), LIMITS), topic, document)
    step = find_keep_step(fields["bs"], "bs", NONE)
    assert step is not None
    assert '`extends = "owntracks"`; in it, leave `"bs"` out of `skip` of its case 1' in step
    assert "`tidegate route show owntracks`" in step
    chosen = compile_routes((), LIMITS)
    status = next(route for route in chosen.routes if route.settings.mapping == "chirpstack-status")
    assert '`keep = ["...", "rssi"]`' in str(find_keep_step(status, "rssi", NONE))
    decoded = next(route for route in chosen.routes if route.settings.mapping == "chirpstack")
    assert find_keep_step(decoded, "Node_type", NONE) == (
        'Write a table `[vendors.dragino]` with `extends = "dragino"`; in it, leave `"Node_type"` out of `skip`.'
    )
    own_one = OwnVendors({"dragino": VendorSettings(extends="dragino", text=("x",))})
    assert find_keep_step(decoded, "y", own_one) == 'In `[vendors.dragino]`, add `"y"` to `text`.'
    named = own("owntracks").routes[0]
    assert str(find_keep_step(named, "bs", NONE)).startswith(
        f'In {OWN}, write a mapping that has `extends = "owntracks"`'
    )


@pytest.mark.parametrize("field", ["tidegate erase a", "x`y`", "x\n", "ü" * 70, '"', ""])
def test_a_name_that_a_device_chose_is_no_command(field: str) -> None:
    step = find_keep_step(own({"keep": ["t"]}).routes[0], field, NONE)
    assert step == f"Add the field to `keep`, in the mapping of {OWN}."


def test_rows_of_unknown_routes_have_no_step() -> None:
    rows = [{"route": OWN, "field": "x"}, {"route": "another table's", "field": "x"}]
    assert [row["next"] is None for row in add_keep_steps(rows, own({"keep": ["t"]}), NONE)] == [False, True]
    assert add_keep_steps(rows, own({}), NONE)[0]["next"] is None, "nothing leaves it out now"
