"""Settings of hop 1: the MQTT session, the limits of messages and devices, receipts and routes."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator, model_validator

from gateway.decoders.mapping.settings import MappingSettings, Texts
from gateway.decoders.vendor_settings import OwnVendors, VendorSettings
from gateway.topic_filters import compile_filter
from ingest.contract.reasons import IgnoredReason

__all__ = ["GatewaySettings", "MqttLogin", "MqttSettings", "ReceiptSettings", "RouteSettings"]


class MqttLogin(BaseModel):
    """A user at the broker: a name with a password, a client certificate, or both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    username: str | None = Field(None, description="User name at the broker. Default: no user name.")
    password: SecretStr | None = Field(None, description="Password of username.")
    cert_file: str | None = Field(
        None,
        description="PEM file with the client certificate, for a broker that asks for one. It needs mqtt.tls and key_file.",
    )
    key_file: str | None = Field(None, description="PEM file with the private key of cert_file.")
    key_password: SecretStr | None = Field(None, description="Password of key_file. Default: the key is not encrypted.")

    @model_validator(mode="after")
    def _check_certificate(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            given, missing = ("key_file", "cert_file") if self.cert_file is None else ("cert_file", "key_file")
            message = f"{given} is set and {missing} is not: set both for a client certificate, or none of them"
            raise ValueError(message)
        if self.key_password is not None and self.key_file is None:
            message = "key_password is set and key_file is not: set cert_file and key_file too, or remove key_password"
            raise ValueError(message)
        return self


class MqttSettings(MqttLogin):
    """The broker, and the gateway's session at the broker."""

    host: str = Field("127.0.0.1", description="Host name or address of the MQTT broker.")
    port: int = Field(1883, ge=1, le=65535, description="Port of the MQTT broker.")
    protocol: Literal["3.1.1", "5"] = Field("5", description="MQTT version that the gateway speaks to the broker.")
    tls: bool = Field(False, description="Connect with TLS.")
    ca_file: str | None = Field(
        None, description="PEM file with the certificate of the authority that signed the broker's certificate."
    )
    crl_file: str | None = Field(
        None,
        description="PEM file with the revoked certificates (CRL) of that authority: a broker that shows one of them is refused. "
        "It is read at each connection.",
    )
    canary: MqttLogin | None = Field(
        None, description="User of the canary at the same broker. Default: the gateway's user."
    )
    monitor: MqttLogin | None = Field(
        None, description="User of the monitor at the same broker. Default: the gateway's user."
    )
    devices: MqttLogin | None = Field(
        None,
        description="User of the commands that act as devices: device simulate, watch and snippet, benchmarks. Default: the "
        "gateway's user.",
    )
    client_id: str = Field(
        "tidegate-gateway",
        min_length=1,
        description="MQTT client id, unique per gateway. It names the session at the broker.",
    )
    keepalive_seconds: int = Field(
        20,
        ge=5,
        le=3600,
        description="Keepalive interval in seconds. The gateway notices a half-open connection after up to twice this time.",
    )
    session_expiry_seconds: int = Field(
        7 * 24 * 3600,
        ge=60,
        description="Seconds that an MQTT 5 broker keeps the session and its queued messages while the gateway is away.",
    )
    subscriptions: tuple[str, ...] = Field(
        ("#",),
        min_length=1,
        description="Topic filters to subscribe to, each at QoS 1. Filters of several gateways must not overlap; see "
        "gateway.conflicts.",
    )
    session_file: str | None = Field(
        None,
        description="File for the topic filters that the broker's session holds. With it, a restart does not need to "
        "subscribe again. A gateway with a standby does not use it.",
    )
    reconnect_max_seconds: float = Field(
        30.0,
        gt=0,
        description="Longest pause in seconds between attempts to connect. The pauses start short and grow to this length.",
    )

    @field_validator("subscriptions")
    @classmethod
    def _check_filters(cls, filters: tuple[str, ...]) -> tuple[str, ...]:
        for text in filters:
            compile_filter(text)
        return filters

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if self.tls:
            return self
        logins = {"": self, "canary.": self.canary, "monitor.": self.monitor, "devices.": self.devices}
        given = [f"{place}cert_file" for place, login in logins.items() if login is not None and login.cert_file]
        given += [name for name in ("ca_file", "crl_file") if getattr(self, name) is not None]
        if given:
            message = f"{given[0]} is set and tls is not: set tls = true, or remove {given[0]}"
            raise ValueError(message)
        return self

    def with_login(self, name: Literal["canary", "monitor", "devices"]) -> Self:
        """Return the same settings with the user of that name, or with the gateway's where none is set."""
        login: MqttLogin | None = getattr(self, name)
        if login is None:
            return self
        return self.model_copy(update={field: getattr(login, field) for field in MqttLogin.model_fields})


class GatewaySettings(BaseModel):
    """Limits for messages, devices and memory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gateway_id: str = Field(
        "gw-1",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Name of this gateway in records and tables, unique per gateway.",
    )
    standby: bool = Field(
        False,
        description="Run several processes with these settings as one gateway: one works, the others wait and take over its "
        "session within lease_seconds and a few more if it dies, hangs or loses its network.",
    )
    lease_seconds: float = Field(
        20.0,
        ge=5,
        le=300,
        description="Seconds without a sign of life after which other processes consider this gateway gone. With standby, the "
        "process stops itself earlier: after 70 % it ends, after 80 % the system kills it.",
    )
    conflicts: Literal["reject", "warn"] = Field(
        "reject",
        description="Reaction at the start to a running gateway with this gateway_id, this client id at this broker, or an "
        "overlapping subscription: end with exit code 78 (reject), or log a warning and run (warn).",
    )
    window_messages: int = Field(
        1000,
        ge=1,
        le=65535,
        description="Maximum number of messages received and not yet acknowledged. Then an MQTT 5 broker stops sending; an "
        "MQTT 3.1.1 broker has its own limit. QoS 0 messages are dropped when twice as many are held.",
    )
    window_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1024,
        description="Maximum bytes of messages held in memory. Then the gateway stops reading, so messages at QoS 1 wait at "
        "the broker, and it drops messages at QoS 0.",
    )
    max_payload_bytes: int = Field(
        256 * 1024, ge=64, description="Largest payload in bytes. A larger message is rejected with reason too_large."
    )
    max_json_depth: int = Field(
        32, ge=1, le=200, description="Deepest nesting of a payload. A deeper message is rejected with reason too_deep."
    )
    max_readings_per_message: int = Field(
        10_000, ge=1, description="Most readings of one message. A message with more is rejected with reason too_large."
    )
    max_future_seconds: int = Field(
        600,
        ge=0,
        description="How many seconds a reading's own time may be ahead of its arrival. A later time is rejected with reason "
        "ts_too_far_future.",
    )
    clock_behind_seconds: int = Field(
        366 * 86_400,
        ge=0,
        description="A reading whose own time is more than this many seconds before its arrival gets the flag clock_behind. "
        "0 flags none.",
    )
    max_device_id_bytes: int = Field(
        256,
        ge=1,
        le=4096,
        description="Longest device id in bytes of UTF-8. A message with a longer id is rejected with reason bad_device_id.",
    )
    profiles: str | None = Field(
        None,
        description="Folder of validation profiles (*.toml), reloaded when it changes. Default: no profile applies.",
    )
    decoders: str | None = Field(
        None,
        description="Folder of decoders in Python (NAME.py), reloaded when it changes. Each decoder runs in its own process.",
    )
    decoder_seconds: float = Field(
        0.5,
        ge=0.01,
        le=30,
        description="Seconds that a decoder of that folder may take for one message. After that its process is killed, and the "
        "message is rejected with reason undecoded.",
    )
    device_registry: str | None = Field(
        None,
        description="File of registered devices (JSON lines), reloaded when it changes. `tidegate device add` adds a device.",
    )
    shared_inputs: bool = Field(
        False,
        description="Take the profiles and the registered devices from Kafka, where `tidegate profile push` and `tidegate device "
        "push` put them, and keep copies in profiles and device_registry. Each gateway needs a folder of its own for them.",
    )
    unregistered: Literal["accept", "quarantine", "refuse"] = Field(
        "accept",
        description="Reaction to a device that is not in the registry: store its messages (accept), or reject them with "
        "reason unknown_device. The dead letter has the payload (quarantine) or only its hash (refuse).",
    )
    device_rate: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Messages per second that one device may send. More are rejected with reason rate_limited. 0: no limit.",
    )
    device_burst: float | None = Field(
        None,
        ge=1,
        description="Messages that one device may send at once. Default: ten seconds of device_rate, at least 10.",
    )
    device_catch_up_seconds: float = Field(
        3600.0,
        ge=0,
        description="After a gateway outage of up to this many seconds, devices may send their backlog without rate limiting. "
        "After a longer one they may send the backlog of this many seconds.",
    )
    zone: str | None = Field(
        None,
        description="IANA zone of local times without an offset, such as Europe/Berlin, for all routes that do not name one.",
    )
    presets: tuple[str, ...] = Field(
        ("*",),
        description="Presets (shipped routes) that apply, as globs of their names. [] turns all of them off.",
    )
    _vendors: OwnVendors = PrivateAttr(default_factory=OwnVendors)

    @model_validator(mode="after")
    def _check_shared_inputs(self) -> Self:
        if self.shared_inputs and self.profiles is None and self.device_registry is None:
            message = "shared_inputs needs a place for the copies: set profiles to a folder, device_registry to a file, or both"
            raise ValueError(message)
        return self

    @property
    def vendors(self) -> OwnVendors:
        """The tables `[vendors.NAME]` of the settings, which are outside of `[gateway]`."""
        return self._vendors

    def with_vendors(self, vendors: Mapping[str, VendorSettings]) -> Self:
        """Return the same settings with these vendors."""
        changed = self.model_copy()
        changed._vendors = OwnVendors(vendors)
        return changed


class ReceiptSettings(BaseModel):
    """Receipts on `tidegate/receipts/<device>`, and their limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(True, description="Send receipts to devices.")
    per_device_per_minute: float = Field(
        60.0,
        gt=0,
        le=6000,
        description="Average number of receipts per minute to one device. Receipts beyond it are held back, and the next one "
        "that is sent counts them in `held_back`.",
    )
    per_device_burst: float = Field(
        5.0, ge=1, le=1000, description="Receipts that one device may get at once before the average applies."
    )
    per_second: float = Field(
        50.0,
        gt=0,
        le=10_000,
        description="Receipts per second to all devices together. Receipts beyond it are held back.",
    )
    positive: bool = Field(
        False,
        description="Send receipts for stored messages too, some seconds after they are stored. The gateway then reads each "
        "record from Kafka, which costs a second read.",
    )
    response_topics: tuple[str, ...] = Field(
        (),
        description="Topic filters that devices may use as MQTT 5 response topics for receipts, in addition to "
        "tidegate/receipts/#. Never name a filter of topics that carry commands: any device could then write there.",
    )

    @field_validator("response_topics")
    @classmethod
    def _check_response_topics(cls, filters: tuple[str, ...]) -> tuple[str, ...]:
        for text in filters:
            compile_filter(text)
        return filters


class RouteSettings(BaseModel):
    """A rule that says which decoder takes the messages of a topic filter, and what the payload itself does not say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filter: str = Field(
        min_length=1,
        description="MQTT topic filter with + and #, or with named segments: site/{site}/{device}; {rest#} names the rest, as "
        "in base/{rest#}.",
    )
    decoder: str = Field(
        "auto",
        description="Decoder: native, json, plain, the name of a format, or auto, which uses json for a payload that looks "
        "like JSON and plain otherwise.",
    )
    mapping: str | MappingSettings | None = Field(
        None,
        description="Mapping in place of a decoder: the name of a table [mappings.NAME], the name of a shipped mapping, or the "
        "table itself.",
    )
    ignore: IgnoredReason | None = Field(
        None,
        description="Reason to ignore these messages in place of a decoder: status, metadata, command or echo. They are "
        "acknowledged and counted, and not stored.",
    )
    only: dict[str, Texts] = Field(
        default_factory=dict,
        description="Named segment to globs. If no glob matches the segment, the next route is tried.",
    )
    payload: Texts = Field(
        (), description="Globs for the whole payload. If there are globs and none matches, the next route is tried."
    )
    device: str | None = Field(
        None, description="Device id: text with {segment} names of the filter. Default: the decoder's device id."
    )
    metric: str | None = Field(
        None,
        description="Name of a bare value: text with {segment} names of the filter. Default: the topic's last segment.",
    )
    time: tuple[str, ...] = Field(
        ("ts", "time", "timestamp", "Time"),
        description="Keys that hold the reading's time, in the order of preference.",
    )
    zone: str | None = Field(
        None, description="IANA zone of local times without an offset, such as Europe/Berlin. Default: gateway.zone."
    )
    units: dict[str, str] = Field(
        default_factory=dict,
        description="Metric to unit, for values whose payload does not name one. JSON metrics may be globs.",
    )
    numeric_text: Texts = Field(
        ("*",),
        description="Generic JSON: globs of text fields that become numbers, with the flag numeric_text, if they look like one. "
        "[] for none.",
    )
    tags: dict[str, str] = Field(
        default_factory=dict,
        description="Tag to text with {segment} names of the filter. Each reading gets these tags.",
    )
    profile: str | None = Field(
        None,
        description="Validation profile of this route's devices. Default: the profile whose `devices` match the id.",
    )

    @model_validator(mode="after")
    def _check_one_reader(self) -> Self:
        if (self.decoder != "auto") + (self.mapping is not None) + (self.ignore is not None) > 1:
            message = "decoder, mapping and ignore exclude each other: set only one of them"
            raise ValueError(message)
        return self
