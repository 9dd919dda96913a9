"""Rights of Strimzi's users as real helm renders them: those of the roles that the settings of each part need, and no others."""

from typing import Any

import pytest
import yaml

from deploy.kafka_users import part_roles
from deploy.settings import Settings
from ingest.topics.roles import OWN_TOPICS, needed_acls
from tests.support.helm import Document, Render

TOKEN = {"monitoring": {"page_token_file": {"name": "page", "key": "token"}}}
PROXY = {"proxy_user_header": "X-User", "proxy_addresses": ["10.0.0.5"], "proxy_write_users": ["kim"]}
MEMBERS = [
    {"id": "east", "clientId": "tidegate-east", "subscriptions": ["east/#"]},
    {
        "id": "west", "clientId": "tidegate-west", "subscriptions": ["west/#"],
        "settings": {"receipts": {"positive": True}},
    },
]  # fmt: skip
# Values, and the overrides of the settings that they stand for.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "usual": ({}, {}),
    "token": ({"secrets": TOKEN}, {"monitoring": {"page_token_file": "/t"}}),
    "token of the monitor": ({"monitor": {"secrets": TOKEN}}, {"monitoring": {"page_token_file": "/t"}}),
    "proxy": ({"settings": {"monitoring": PROXY}}, {"monitoring": PROXY}),
    "receipts": ({"settings": {"receipts": {"positive": True}}}, {"receipts": {"positive": True}}),
    "receipts of one member": ({"gateway": {"members": MEMBERS}}, {"receipts": {"positive": True}}),
    "no receipts": ({"settings": {"receipts": {"positive": True, "enabled": False}}}, {}),
}


def rights(document: Document) -> set[tuple[str, str]]:
    rules = document["spec"]["authorization"]["acls"]
    return {(rule["resource"]["name"], word.upper()) for rule in rules for word in rule["operations"]}


@pytest.mark.parametrize("topics", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_user_has_the_rights_that_its_part_needs(name: str, topics: bool, render: Render) -> None:
    values, overrides = CASES[name]
    strimzi = {"cluster": "plant", "users": {"enabled": True}, "topics": {"enabled": topics}}
    users = {
        each["metadata"]["name"]: rights(each)
        for each in render({**values, "strimzi": strimzi})
        if each["kind"] == "KafkaUser"
    }
    wanted = {
        f"tidegate-{part}": {
            (acl.name, acl.operation.replace("_", ""))
            for acl in needed_acls(roles)
            # Strimzi creates the topics.
            if not (topics and acl.operation == "CREATE" and acl.name in OWN_TOPICS)
        }
        for part, roles in part_roles(Settings.model_validate(overrides)).items()
    }
    assert users == wanted, yaml.safe_dump(users)
