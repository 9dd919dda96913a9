"""Push of profiles and registered devices to Kafka, from where gateways with `gateway.shared_inputs` take them."""

from collections.abc import Mapping

from gateway.shared_inputs import PushPlan, plan_push
from ingest.contract.errors import FatalError
from ingest.contract.shared_input import is_shared_input
from ingest.contract.topics import GATEWAY_STATE
from ingest.gateway_state import read_state
from ingest.kafka_settings import KafkaSettings
from ingest.manual_producer import OutgoingRecord, send_outgoing

__all__ = ["push_device", "push_inputs"]


def push_inputs(
    kafka: KafkaSettings, wanted: Mapping[str, bytes], *, profiles: bool, dry_run: bool = False
) -> PushPlan:
    """Make Kafka hold exactly these profiles or devices, and return what that changes.

    A push that ends early has sent whole records: each profile and each device is the old or the new one. Run it again then.

    Args:
        kafka: the cluster; the user needs READ and WRITE on the topic of states.
        wanted: of `profile_inputs` or `device_inputs`, not empty.
        profiles: True for profiles, False for devices.
        dry_run: send nothing.

    Raises:
        FatalError: the topic does not exist, this user may not read it, or Kafka rejected a record.
        UnavailableError: this user may not write.
        RetryableError: Kafka does not answer.
    """
    plan = plan_push(read_state(kafka, wanted=is_shared_input), wanted, profiles=profiles)
    if not dry_run:
        _send(kafka, plan)
    return plan


def push_device(kafka: KafkaSettings, entry: Mapping[str, bytes]) -> bool:
    """Add or change one device, of `device_inputs`; False if Kafka already holds this entry. Errors as of `push_inputs`."""
    held = read_state(kafka, wanted=lambda key: key in entry)
    plan = PushPlan({key: value for key, value in entry.items() if dict(held).get(key) != value}, (), 0)
    _send(kafka, plan)
    return bool(plan.changed)


def _send(kafka: KafkaSettings, plan: PushPlan) -> None:
    records = [OutgoingRecord(value, key.encode()) for key, value in plan.records]
    if not records:
        return
    sent = send_outgoing(kafka, GATEWAY_STATE, records)
    if sent.acknowledged < len(records):
        message = (
            f"Kafka took {sent.acknowledged} of {len(records)} records ({sent.why or 'interrupted'}). Each profile and device is "
            "the old or the new one. Run the command again."
        )
        raise FatalError(message)
