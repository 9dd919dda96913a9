"""Checks of settings beyond their types: routes, profiles, and security options that contradict each other."""

from pydantic import SecretStr

from deploy.settings import Settings
from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings

__all__ = ["check_settings"]


def check_settings(settings: Settings) -> None:
    """Check everything that needs no server. A password may be missing: the environment of a hop has it.

    Raises:
        ConfigError: a route or a profile is wrong, the network could read the page without a login, or security options
            contradict each other.
    """
    from gateway.profiles.policy import make_policy
    from gateway.routes import compile_routes
    from ingest.security import client_conf
    from monitoring.page.page_tokens import login_fault

    if fault := login_fault(settings.monitoring):
        raise ConfigError(fault)
    compile_routes(settings.routes, settings.gateway)
    make_policy(settings.gateway, settings.routes)
    client_conf(_with_password(settings.kafka), client_id="tidegate-check")


def _with_password(kafka: KafkaSettings) -> KafkaSettings:
    if kafka.sasl_username is None or kafka.sasl_password is not None:
        return kafka
    return kafka.model_copy(update={"sasl_password": SecretStr("not known yet")})
