"""gzip, decompressed within a bound: a small message must not become a large one."""

import zlib
from typing import Final

from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason

__all__ = ["inflate_gzip", "is_gzip"]

_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_ONLY: Final = 16 + zlib.MAX_WBITS


def is_gzip(payload: bytes) -> bool:
    """Return whether this begins like gzip (RFC 1952); no protobuf message does: its first field would be of wire type 7."""
    return payload.startswith(_MAGIC)


def inflate_gzip(payload: bytes, max_bytes: int) -> bytes | Reject:
    """Return the content of the one member, at most `max_bytes` of it ever held; its checksum is checked."""
    unpacker = zlib.decompressobj(_GZIP_ONLY)
    try:
        content = unpacker.decompress(payload, max_bytes + 1)
    except zlib.error as error:
        return Reject(Reason.UNDECODED, got=f"gzip that cannot be unpacked: {error}"[:120], wanted="whole gzip data")
    if len(content) > max_bytes:
        return Reject(Reason.TOO_LARGE, got=f"gzip of more than {max_bytes} bytes", wanted=f"at most {max_bytes} bytes")
    if not unpacker.eof or unpacker.unused_data:
        got = "gzip that is cut off" if not unpacker.eof else "bytes after the end of the gzip data"
        return Reject(Reason.UNDECODED, got=got, wanted="whole gzip data")
    return content
