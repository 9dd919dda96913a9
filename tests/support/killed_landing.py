"""A landing that dies in the middle of a batch; `from tests.support.killed_landing import killed_before`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def killed_before(table: str) -> Iterator[None]:
    """Let a batch that lands in this block die before its commit to the table; fails where nothing dies.

    The landing commits `dead_letters`, `duplicates` and `readings`, in this order.
    """
    from streaming.land import Landing

    whole = Landing._commit

    def crash(self: Any, append: Any, batch: Any, name: str, *rest: Any) -> None:
        if name == table:
            raise RuntimeError("killed here")
        whole(self, append, batch, name, *rest)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Exception, match="killed here"):
        patched.setattr(Landing, "_commit", crash)
        yield
