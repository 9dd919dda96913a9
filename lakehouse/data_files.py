"""Columns of data files, read by pyarrow from a local disk or an object store."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse.paths import is_local

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_columns", "sample_columns", "sync_files"]


def sync_files(folder: Path, names: Iterable[str]) -> None:
    """Return when these files of a folder and their names are on the disk: after a power cut they are there, and whole."""
    paths = [folder / name for name in names]
    for path in (*paths, *dict.fromkeys(path.parent for path in paths)):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_columns(uri: str, paths: Sequence[str], columns: Sequence[str]) -> "pa.Table":
    """Columns of the data files at these paths under a table, file after file in their own order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    filesystem = _filesystem(uri)
    prefix = f"{uri.removeprefix('file:')}/" if filesystem is None else ""
    tables = [
        pq.ParquetFile(_source(filesystem, prefix + path)).read(columns=list(columns), use_threads=False)
        for path in paths
    ]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def sample_columns(uri: str, paths: Sequence[str], columns: Sequence[str], most_rows: int) -> "pa.Table":
    """Columns of the first rows of the data files at these paths, at most so many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    filesystem = _filesystem(uri)
    prefix = f"{uri.removeprefix('file:')}/" if filesystem is None else ""
    found, left = [], most_rows
    for path in paths:
        file = pq.ParquetFile(_source(filesystem, prefix + path))
        for batch in file.iter_batches(batch_size=most_rows, columns=list(columns), use_threads=False):
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
            if left <= 0:
                return pa.Table.from_batches(found)
    return pa.Table.from_batches(found)


def _filesystem(uri: str) -> Any:
    if is_local(uri):
        return None
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(uri))


def _source(filesystem: Any, path: str) -> Any:
    return path if filesystem is None else filesystem.open_input_file(path)
