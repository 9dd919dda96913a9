"""Keys of `telemetry.gateway-state` for what people give to all gateways: profile files and registered devices."""

from typing import Final

__all__ = ["DEVICE_INPUT", "PROFILE_INPUT", "device_key", "input_name", "is_shared_input", "profile_key"]

_BASE: Final = "tidegate/shared/"
PROFILE_INPUT: Final = f"{_BASE}profile/"
DEVICE_INPUT: Final = f"{_BASE}device/"
"""Beginnings of the keys of each kind."""
_END: Final = "/input"
"""Keys end with it, so that none looks like the record of a gateway with the id `shared`."""


def profile_key(file: str) -> str:
    """Return the key of a profile file by its name."""
    return f"{PROFILE_INPUT}{file}{_END}"


def device_key(device: str) -> str:
    """Return the key of a registered device."""
    return f"{DEVICE_INPUT}{device}{_END}"


def is_shared_input(key: str) -> bool:
    """Return whether a key is that of a profile file or of a registered device."""
    return key.startswith((PROFILE_INPUT, DEVICE_INPUT)) and key.endswith(_END)


def input_name(key: str) -> str:
    """Return the name of the profile file, or the id of the device."""
    return key.removeprefix(PROFILE_INPUT).removeprefix(DEVICE_INPUT).removesuffix(_END)
