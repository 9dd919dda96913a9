"""Settings of hop 1: the MQTT session, the limits of a message, the routes."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator, model_validator

from gateway.decoders.mapping_settings import MappingSettings, Texts
from gateway.decoders.vendor_settings import OwnVendors, VendorSettings
from gateway.topics import compile_filter
from ingest.contract.reasons import IgnoredReason

__all__ = ["GatewaySettings", "MqttSettings", "ReceiptSettings", "RouteSettings"]


class MqttSettings(BaseModel):
    """The broker and the session that the gateway keeps there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(1883, ge=1, le=65535)
    protocol: Literal["3.1.1", "5"] = Field("5", description="MQTT version that the gateway speaks to the broker.")
    username: str | None = None
    password: SecretStr | None = None
    tls: bool = False
    ca_file: str | None = Field(None, description="PEM of the authority that signed the broker's certificate.")
    client_id: str = Field("tidegate-gateway", min_length=1, description="Names the session: unique per gateway.")
    keepalive_seconds: int = Field(
        20, ge=5, le=3600, description="A link that is half open is noticed after up to twice this."
    )
    session_expiry_seconds: int = Field(7 * 24 * 3600, ge=60)
    subscriptions: tuple[str, ...] = Field(("#",), min_length=1, description="Topic filters, each at QoS 1.")
    session_file: str | None = Field(
        None,
        description="Remembers which filters the broker's session holds, so that a restart need not subscribe anew.",
    )
    reconnect_max_seconds: float = Field(30.0, gt=0)

    @field_validator("subscriptions")
    @classmethod
    def _check_filters(cls, filters: tuple[str, ...]) -> tuple[str, ...]:
        for text in filters:
            compile_filter(text)
        return filters


class GatewaySettings(BaseModel):
    """Limits of a message and of what may be in flight."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gateway_id: str = Field("gw-1", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    window_messages: int = Field(1000, ge=1, le=65535, description="Messages received and not yet acknowledged.")
    window_bytes: int = Field(
        64 * 1024 * 1024, ge=1024, description="Held in memory beyond which messages at QoS 0 are dropped, in bytes."
    )
    max_payload_bytes: int = Field(256 * 1024, ge=64)
    max_json_depth: int = Field(32, ge=1, le=200)
    max_readings_per_message: int = Field(10_000, ge=1)
    max_future_seconds: int = Field(600, ge=0, description="How far a device's clock may run ahead before quarantine.")
    clock_behind_seconds: int = Field(
        366 * 86_400,
        ge=0,
        description="A reading whose own time is further before its arrival is flagged clock_behind; 0: none is.",
    )
    max_device_id_bytes: int = Field(256, ge=1, le=4096)
    profiles: str | None = Field(
        None, description="Folder of validation profiles (*.toml), read anew when it changes; default: none apply."
    )
    decoders: str | None = Field(
        None,
        description="Folder of decoders in Python (NAME.py), each in a process of its own, loaded anew when it changes.",
    )
    decoder_seconds: float = Field(
        0.5, ge=0.01, le=30, description="Time that a decoder of that folder may take for a message; then it is ended."
    )
    device_registry: str | None = Field(
        None, description="File of registered devices (JSON lines), read anew when it changes."
    )
    unregistered: Literal["accept", "quarantine", "refuse"] = Field(
        "accept",
        description="Devices not in the registry: dead letters with the payload (quarantine) or its hash only (refuse).",
    )
    device_rate: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="Messages per second that one device may send; 0: no limit."
    )
    device_burst: float | None = Field(
        None, ge=1, description="Messages that it may send at once; default: ten seconds' worth, at least 10."
    )
    device_catch_up_seconds: float = Field(
        3600.0, ge=0, description="How long a stop of ours devices may catch up after it without being over their rate."
    )
    zone: str | None = Field(
        None, description="IANA zone of local times without an offset, for all routes that name none: Europe/Berlin."
    )
    presets: tuple[str, ...] = Field(
        ("*",), description="Shipped formats whose topics are routed by themselves, as globs; [] for none."
    )
    _vendors: OwnVendors = PrivateAttr(default_factory=OwnVendors)

    @property
    def vendors(self) -> OwnVendors:
        """The tables `[vendors.NAME]` of the settings, which stand outside of `[gateway]`."""
        return self._vendors

    def with_vendors(self, vendors: Mapping[str, VendorSettings]) -> Self:
        """The same settings with these vendors."""
        changed = self.model_copy()
        changed._vendors = OwnVendors(vendors)
        return changed


class ReceiptSettings(BaseModel):
    """Telling devices why on `tidegate/receipts/<device>`, and how much of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    per_device_per_minute: float = Field(60.0, gt=0, le=6000, description="Receipts that one device gets, on average.")
    per_device_burst: float = Field(5.0, ge=1, le=1000, description="Receipts that it may get at once.")
    per_second: float = Field(50.0, gt=0, le=10_000, description="Receipts to all devices together.")
    positive: bool = Field(
        False, description="Tell devices also what is stored, some seconds after; costs a second read."
    )
    response_topics: tuple[str, ...] = Field(
        (),
        description="Topic filters where devices may ask for receipts by an MQTT 5 response topic, beside "
        "tidegate/receipts/#; never one where others take commands, for any device could then write there.",
    )

    @field_validator("response_topics")
    @classmethod
    def _check_response_topics(cls, filters: tuple[str, ...]) -> tuple[str, ...]:
        for text in filters:
            compile_filter(text)
        return filters


class RouteSettings(BaseModel):
    """Which decoder reads the messages of a topic filter, and what the payload itself does not say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filter: str = Field(
        min_length=1,
        description="MQTT topic filter, with + and #, or named segments: site/{site}/{device}, base/{rest#} for the rest.",
    )
    decoder: str = Field(
        "auto", description="native, json, plain, auto (json where it looks like JSON, else plain), or a format's name."
    )
    mapping: str | MappingSettings | None = Field(
        None, description="Instead of a decoder: the name of a table [mappings.NAME] or of a shipped one, or the table."
    )
    ignore: IgnoredReason | None = Field(
        None, description="Instead of a decoder: these messages are no readings (status, metadata, command, echo)."
    )
    only: dict[str, Texts] = Field(
        default_factory=dict, description="Named segment to globs that it must match, else the next route is tried."
    )
    payload: Texts = Field(
        (), description="Globs for the whole payload, one of which must match, else the next route is tried."
    )
    device: str | None = Field(
        None, description="Device id: text with {segment} names of the filter; default: by the decoder."
    )
    metric: str | None = Field(
        None, description="Name of a bare value, with {segment} names; default: the topic's last segment."
    )
    time: tuple[str, ...] = Field(("ts", "time", "timestamp", "Time"), description="Keys that hold the reading's time.")
    zone: str | None = Field(None, description="IANA zone of local times without an offset, such as Europe/Berlin.")
    units: dict[str, str] = Field(
        default_factory=dict, description="Unit per metric (of JSON also by glob), where the payload names none."
    )
    numeric_text: Texts = Field(
        ("*",),
        description="Of generic JSON: patterns of text fields that become numbers, flagged numeric_text, where they look like "
        "one; [] for none.",
    )
    tags: dict[str, str] = Field(default_factory=dict)
    profile: str | None = Field(None, description="Validation profile of this route's devices; default: by device id.")

    @model_validator(mode="after")
    def _check_one_reader(self) -> Self:
        if (self.decoder != "auto") + (self.mapping is not None) + (self.ignore is not None) > 1:
            message = "decoder, mapping and ignore exclude each other: name one of them"
            raise ValueError(message)
        return self
