"""Access list of the embedded broker: the topics that each user may publish and read, in the form of mosquitto's plugin.

mosquitto's own access list cannot say "publish everything except receipts, and read receipts": its word for "never" forbids
reading too. The plugin `mosquitto_dynamic_security`, which comes with mosquitto, can, and takes changes without a restart.
"""

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.settings import Settings
from gateway.replies.receipts import receipt_topic
from gateway.topic_filters import is_shared, subscription_filter

__all__ = [
    "DEVICE_ROLE",
    "Rights",
    "acl_entries",
    "device_rights",
    "find_plugin",
    "password_hash",
    "rights_of_run",
    "security_file",
]

PLUGIN: Final = "mosquitto_dynamic_security.so"
DEVICE_ROLE: Final = "device:"
"""Beginning of the name of a device's role; the rest is the device."""
CONTROL: Final = "$CONTROL/dynamic-security/#"
RECEIPTS: Final = "tidegate/receipts/#"
# A rebirth request goes below the topic of its node, whatever comes before spBv1.0.
_REBIRTHS: Final = tuple(f"{'+/' * levels}spBv1.0/+/NCMD/+" for levels in range(5))
# The iteration count of mosquitto_passwd 2.0. The file has salted hashes of random passwords, and only one user can read it.
ITERATIONS: Final = 101
SALT_BYTES: Final = 12


@dataclass(frozen=True)
class Rights:
    """Topic filters of one user. Everything else is denied; `never_publish` wins over `publish`."""

    publish: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    never_publish: tuple[str, ...] = ()


def find_plugin(executable: Path) -> Path | None:
    """Return the plugin that was installed with this mosquitto; None if it was not. One of another version may not load."""
    for base in dict.fromkeys((executable.parent.parent, executable.resolve().parent.parent)):
        for pattern in (f"lib/{PLUGIN}", f"lib64/{PLUGIN}", f"lib/*/{PLUGIN}"):
            if found := next(base.glob(pattern), None):
                return found
    return None


def rights_of_run(settings: Settings) -> dict[str, Rights]:
    """Return the rights of each user of an embedded run.

    The devices' user publishes on every topic, because known devices have topics of their own, but never as the gateway:
    receipts come from the gateway alone. It reads answers of the gateway only, so no device sees the readings of another one.
    """
    own, canary = settings.mqtt.subscriptions, "tidegate-canary"
    filters = tuple(subscription_filter(text) for text in own)
    plain = tuple(text.split("/", 2)[2] if is_shared(text) else text for text in filters)
    special = tuple(text for text in plain if text.startswith("$") and not text.startswith(("$SYS", "$CONTROL")))
    responses = tuple(subscription_filter(text) for text in settings.receipts.response_topics)
    return {
        "gateway": Rights(publish=(RECEIPTS, *_REBIRTHS, *responses), read=tuple(dict.fromkeys((*plain, *filters)))),
        "canary": Rights(publish=(f"tidegate/v1/{canary}/readings",), read=(receipt_topic(canary),)),
        "monitor": Rights(read=("$SYS/#",)),
        "tidegate": Rights(publish=("#", *special), never_publish=(RECEIPTS,), read=(RECEIPTS, *responses)),
        "admin": Rights(publish=(CONTROL,), read=(CONTROL,)),
    }


def device_rights(device: str, topics: Sequence[str] = ()) -> Rights:
    """Return the rights of a device with a login of its own: its native topics, its receipts, and more topics to publish."""
    return Rights(
        publish=(f"tidegate/v1/{device}/#", *topics), read=(receipt_topic(device),), never_publish=(RECEIPTS,)
    )


def acl_entries(rights: Rights) -> list[dict[str, Any]]:
    """Return the plugin's entries for these rights."""

    def entry(kind: str, topic: str, *, allow: bool = True) -> dict[str, Any]:
        return {"acltype": kind, "topic": topic, "priority": 0 if allow else 1, "allow": allow}

    return [
        *(entry("publishClientSend", topic, allow=False) for topic in rights.never_publish),
        *(entry("publishClientSend", topic) for topic in rights.publish),
        *(entry(kind, topic) for topic in rights.read for kind in ("publishClientReceive", "subscribePattern")),
    ]


def security_file(users: Mapping[str, str], rights: Mapping[str, Rights], earlier: str) -> str:
    """Return the plugin's file: these users with their rights, and the logins of devices that an earlier file has."""
    devices = _kept(earlier)
    document = {
        "defaultACLAccess": {
            "publishClientSend": False, "publishClientReceive": False, "subscribe": False, "unsubscribe": True,
        },
        "clients": [
            *({"username": name, "roles": [{"rolename": name}], **_hashed(secret)} for name, secret in users.items()),
            *devices["clients"],
        ],
        "roles": [
            *({"rolename": name, "acls": acl_entries(rights.get(name, Rights()))} for name in users),
            *devices["roles"],
        ],
    }  # fmt: skip
    return json.dumps(document, indent=1) + "\n"


def _kept(earlier: str) -> dict[str, list[Any]]:
    """Return clients and roles of devices; none if the file is damaged: a login that is missing admits nobody."""
    try:
        found = json.loads(earlier)
        roles = [role for role in found["roles"] if role["rolename"].startswith(DEVICE_ROLE)]
        known = {role["rolename"] for role in roles}
        clients = [one for one in found["clients"] if {role["rolename"] for role in one.get("roles", ())} & known]
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"clients": [], "roles": []}
    return {"clients": clients, "roles": roles}


def _hashed(password: str) -> dict[str, Any]:
    salt, hashed = password_hash(password)
    return {"password": hashed, "salt": salt, "iterations": ITERATIONS}


def password_hash(password: str) -> tuple[str, str]:
    """Return a new salt and the PBKDF2 hash with SHA-512, both in base64, as mosquitto keeps them."""
    salt = os.urandom(SALT_BYTES)
    hashed = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return base64.b64encode(salt).decode(), base64.b64encode(hashed).decode()
