"""Roles in Kafka of each part's user, by the settings. Every form of deployment takes them from here.

Canary and fleet do not use Kafka, and the commands of people have the role operator.
"""

import shlex
from collections.abc import Callable
from typing import Final, NamedTuple

from deploy.settings import Settings
from ingest.topics.roles import Role

__all__ = ["MORE", "ROLES", "MoreRights", "acl_arguments", "part_roles", "rights_section"]


class MoreRights(NamedTuple):
    """A role that a part needs with some settings only."""

    name: str
    role: Role
    is_needed: Callable[[Settings], bool]


def _sends_stored_receipts(settings: Settings) -> bool:
    """Return whether the gateway reads the landing's progress and the records, for receipts of stored messages."""
    return settings.receipts.enabled and settings.receipts.positive


def _page_writes(settings: Settings) -> bool:
    """Return whether the page has a login that redrives. The token's file may not exist yet, so it is not opened."""
    return settings.monitoring.page_token_file is not None or bool(settings.monitoring.proxy_write_users)


ROLES: Final = {"gateway": Role.GATEWAY, "stream": Role.STREAM, "monitor": Role.READER}
"""Role that each part always has."""
MORE: Final = {
    "gateway": MoreRights("receipts", Role.READER, _sends_stored_receipts),
    "monitor": MoreRights("redrive", Role.REDRIVE, _page_writes),
}


def part_roles(settings: Settings) -> dict[str, tuple[Role, ...]]:
    """Return the roles of each part, as `tidegate topics acl` knows them."""
    found = {part: (role,) for part, role in ROLES.items()}
    return found | {part: (ROLES[part], more.role) for part, more in MORE.items() if more.is_needed(settings)}


def acl_arguments(settings: Settings) -> str:
    """Return the arguments of `tidegate topics acl` for one user that all parts share."""
    kafka = settings.kafka
    user = kafka.sasl_username or ("CN=NAME" if kafka.ssl_certificate_file else "ANONYMOUS")
    roles = dict.fromkeys(role for found in part_roles(settings).values() for role in found)
    return " ".join([f"--principal User:{shlex.quote(user)}", *(f"--role {role}" for role in roles)])


def rights_section(settings: Settings) -> str:
    """Return the section of an exported README about the rights of the Kafka user; empty if the parts do not log in."""
    if not (settings.kafka.sasl_mechanism or settings.kafka.ssl_certificate_file):
        return ""
    return f"""
## Rights in Kafka

With these settings all parts are one user of Kafka. An administrator of Kafka shows the rights that it needs, and with `--apply`
grants them. ADMIN.toml is a settings file with the login of the administrator:

    tidegate topics acl {acl_arguments(settings)} --config ADMIN.toml
"""
