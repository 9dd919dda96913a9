"""Choice between several routes of a topic by the payload: the first route whose condition holds."""

from gateway.decoders.shape import RouteMatch
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import Document, strip_byte_order_mark
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["choose_candidate"]


def choose_candidate(
    match: RouteMatch, payload: bytes, limits: GatewaySettings
) -> tuple[RouteMatch, Document | None] | Reject:
    """Return the candidate that takes this payload, and the payload's document if its mapping needs it.

    A payload is parsed once for all mappings of one format. A payload that no candidate takes is rejected: as broken if
    it cannot be parsed, else as `no_route`.
    """
    documents: dict[str, Document | Reject] = {}
    broken: Reject | None = None
    text = (
        strip_byte_order_mark(payload).strip()
        if any(candidate.payload is not None for candidate in match.candidates)
        else payload
    )
    for candidate in match.candidates:
        if candidate.payload is not None and not candidate.payload.fullmatch(text):
            continue
        mapping = candidate.mapping
        if mapping is None or not mapping.when.texts:
            return candidate, None
        document = documents.get(mapping.format)
        if document is None:
            document = documents[mapping.format] = mapping.parse(payload, limits)
        if isinstance(document, Reject):
            broken = document
        elif mapping.when.hold(document.value):
            return candidate, document
    wanted = "a payload that one of these takes: " + ", ".join(candidate.route for candidate in match.candidates)
    return broken or Reject(Reason.NO_ROUTE, "$", f"{len(payload)} bytes", show_text(wanted))
