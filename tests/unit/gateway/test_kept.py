"""What is kept is bounded in entries and in bytes."""

import pytest

import gateway.fast_path.bounded_cache
from gateway.fast_path.bounded_cache import BoundedCache


def test_what_is_kept_is_there_and_too_large_an_entry_is_not() -> None:
    kept: BoundedCache[str, int] = BoundedCache(100)
    kept.put("a", 1, 100)
    kept.put("b", 2, 101)
    assert kept == {"a": 1}
    assert kept.size_bytes == 100


def test_it_forgets_all_before_it_grows_past_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway.fast_path.bounded_cache, "MAX_BYTES", 1000)
    kept: BoundedCache[int, None] = BoundedCache(100)
    for number in range(500):
        kept.put(number, None, 90)
        assert kept.size_bytes == 90 * len(kept) <= 1000
        assert number in kept


def test_it_forgets_all_before_it_grows_past_its_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway.fast_path.bounded_cache, "MAX_ENTRIES", 10)
    kept: BoundedCache[int, None] = BoundedCache(100)
    for number in range(35):
        kept.put(number, None, 0)
    assert list(kept) == [30, 31, 32, 33, 34]
