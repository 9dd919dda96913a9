"""Settings of the exporters."""

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["MonitoringSettings"]


class MonitoringSettings(BaseModel):
    """Where each process serves `/metrics` and `/healthz`. Port 0 takes a free one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to bind; loopback unless the network is trusted.")
    gateway_port: int = Field(9471, ge=0, le=65535)
    stream_port: int = Field(9472, ge=0, le=65535)
    canary_port: int = Field(9473, ge=0, le=65535)
