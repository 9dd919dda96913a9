"""Checks of Kafka for `tidegate doctor`: the login of the settings works, and its user has the rights of a role."""

from collections.abc import Iterator, Sequence

from deploy.local.preflight import PreflightCheck
from ingest.contract.errors import TidegateError
from ingest.kafka_login import user_name
from ingest.kafka_settings import KafkaSettings
from ingest.topics.rights import missing_by_role
from ingest.topics.roles import Acl, Role

__all__ = ["check_kafka", "rights_check"]


def check_kafka(kafka: KafkaSettings) -> Iterator[PreflightCheck]:
    """Yield the login, and if it works, the roles of its user."""
    try:
        missing = missing_by_role(kafka)
    except TidegateError as error:
        yield PreflightCheck("kafka login", "fail", str(error))
        return
    yield PreflightCheck("kafka login", "ok", _login(kafka))
    yield rights_check(kafka, missing)


def rights_check(kafka: KafkaSettings, missing: dict[Role, list[Acl]]) -> PreflightCheck:
    """Return the finding about the rights: ok if the user has all rights of a role, a warning if DESCRIBE_CONFIGS is missing.

    Every part runs without DESCRIBE_CONFIGS: it learns limits from Kafka's errors, or does not show them.
    """
    user = user_name(kafka)
    held = [role for role, acls in missing.items() if not acls]
    lacking = {role: acls for role, acls in missing.items() if acls}
    if not lacking:
        return PreflightCheck("kafka rights", "ok", f"the Kafka user {user} has the rights of every role")
    if set(held) - {Role.REDRIVE}:
        others = "; ".join(f"not of {role} ({_missing_text(acls)})" for role, acls in lacking.items())
        return PreflightCheck(
            "kafka rights", "ok", f"the Kafka user {user} has the rights of {', '.join(held)}; {others}"
        )
    if nearly := [
        role
        for role, acls in lacking.items()
        if role is not Role.REDRIVE and {one.operation for one in acls} == {"DESCRIBE_CONFIGS"}
    ]:
        text = f"the Kafka user {user} has the rights of {', '.join(nearly)}, except that it cannot see the topics' settings"
        return PreflightCheck("kafka rights", "warn", text, "Grant it DESCRIBE_CONFIGS on Tidegate's topics.")
    # Redrive is a role for a user who has another one.
    role = min((each for each in lacking if each is not Role.REDRIVE), key=lambda name: len(lacking[name]))
    return PreflightCheck(
        "kafka rights",
        "fail",
        f"The Kafka user {user} has the rights of no role; for {role} it lacks {_missing_text(lacking[role])}",
        "As an administrator of Kafka, run `tidegate topics acl --principal User:NAME --role ROLE --apply --config FILE`.",
    )


def _login(kafka: KafkaSettings) -> str:
    if not kafka.sasl_mechanism and not kafka.ssl_certificate_file:
        return f"not needed ({kafka.security_protocol})"
    how = kafka.sasl_mechanism or "client certificate"
    return f"the Kafka user {user_name(kafka)} is logged in ({how}, {kafka.security_protocol})"


def _missing_text(acls: Sequence[Acl]) -> str:
    """Return missing rights by resource, such as `READ, WRITE on telemetry.readings`."""
    by_name: dict[str, list[str]] = {}
    for one in acls:
        name = f"groups {one.name}*" if one.resource == "group" else one.name
        by_name.setdefault(name, []).append(one.operation)
    return " and ".join(f"{', '.join(operations)} on {name}" for name, operations in by_name.items())
