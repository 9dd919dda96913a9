"""The resource that limits a figure, as text: cores, Kafka, clients, Python or disk, with the rates of other clients here."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["join_limits", "limit_of"]

_FULL: Final = 0.85
"""Share of the cores above which they count as busy, since a load's few processes never share them evenly."""
_KEPT_UP: Final = 0.85
"""Share of the producers' rate from which consumers kept up: a consumer ends a little after them."""
_RATE: Final = "_per_second"
_NUMBER: Final = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?![\w.])")
_PEERS: Final = {"peer_c_": "a C client (librdkafka)", "peer_": "Kafka's own tools"}


def limit_of(
    figures: Mapping[str, float], cores: int, figure: str = "", *, processes: int = 1, streams: bool = False
) -> str:
    """Return the resource that was full while a figure was measured; empty if none was, or none is known.

    Args:
        figures: medians of a cell.
        cores: of this machine.
        figure: `produce_per_second`, `consume_per_second` or `publish_per_second` names what was full during that part; any
            other, during the run.
        processes: that produce, or that consume.
        streams: they did so at the same time.
    """
    side = figure.removesuffix(_RATE)
    kept_up = "the consumers kept up with the producers" if streams and _kept_up(side, figures) else ""
    limits = _disk_limit(figures) or _side_limit(side, figures, cores, processes) or _run_limit(figures, cores)
    return "; ".join(text for text in (kept_up, limits, *_peer_texts(figure, figures)) if text)


def join_limits(limits: Sequence[str]) -> str:
    """Return the limits of a cell's runs as one text: sentences that differ only in numbers are one, with ranges."""
    alike: dict[str, list[list[str]]] = {}
    for text in filter(None, limits):
        alike.setdefault(_NUMBER.sub("\0", text), []).append(_NUMBER.split(text))
    return "; ".join("".join(map(_range, zip(*runs, strict=True))) for runs in alike.values())


def _range(pieces: Sequence[str]) -> str:
    """Return the same piece of each text: words, or a number that may differ."""
    if len(set(pieces)) == 1:
        return pieces[0]
    return f"{min(pieces, key=float)} to {max(pieces, key=float)}"


def _kept_up(side: str, figures: Mapping[str, float]) -> bool:
    """Return whether consumers kept up: reading cannot be faster than writing."""
    rates = [figures.get(f"{name}{_RATE}", 0.0) for name in ("consume", "produce")]
    return side == "consume" and rates[0] > _KEPT_UP * rates[1]


def _disk_limit(figures: Mapping[str, float]) -> str:
    return "the processors waited for the disk" if figures.get("io_wait_ratio", 0.0) > 0.25 else ""


def _side_limit(side: str, figures: Mapping[str, float], cores: int, processes: int) -> str:
    clients, broker = figures.get(f"{side}_client_cores"), figures.get(f"{side}_broker_cores")
    if clients is None:
        return ""
    python = figures.get("produce_python_cores", 0.0) if side == "produce" else 0.0
    shares = f"clients {clients:.2f}{f', of it Python {python:.2f}' if python else ''}"
    if broker is None:
        full = clients > _FULL * min(processes, cores)
        return f"{'the clients are the limit' if full else 'the clients were not full'}: {shares} cores"
    server = "mosquitto" if side == "publish" else "Kafka"
    text = f"{server} {broker:.2f}, {shares}"
    if server == "mosquitto" and broker > _FULL:
        return f"mosquitto, which has one thread, is the limit ({text} cores)"
    if python > _FULL * processes:
        return f"Python is the limit ({text} cores)"
    if clients + broker > _FULL * cores:
        return f"the cores are the limit: all {cores} were busy ({text})"
    busy = clients + broker
    return f"the cores were not full: {busy:.2f} of {cores} were busy ({text}), the rest waited for answers"


def _run_limit(figures: Mapping[str, float], cores: int) -> str:
    if figures.get("machine_cpu_cores", 0.0) > 0.9 * cores:
        own, client = figures.get("broker_cpu_cores", 0.0), figures.get("client_cpu_cores", 0.0)
        more = "brokers" if own > client else "clients"
        return f"all {cores} cores were busy, mostly with the {more} ({max(own, client):.2g} cores)"
    if figures.get("client_cpu_cores", 0.0) > 0.9:
        return "the clients used a whole core"
    return ""


def _peer_texts(figure: str, figures: Mapping[str, float]) -> list[str]:
    if not figure.endswith(_RATE):
        return []
    return [
        f"{name} reached {figures[start + figure]:,.0f}" for start, name in _PEERS.items() if start + figure in figures
    ]
