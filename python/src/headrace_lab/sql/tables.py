# SPDX-License-Identifier: Apache-2.0
"""The tables and queries to measure: those of a directory, or those of TPC-H."""

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import InvalidArgumentError, IoFailedError, NotFoundError
from headrace_lab.tpch.lineitem import check_memory
from headrace_lab.tpch.table import TABLES, ensure_tables

QUERY_COUNT = 22
_MEMORY_PER_SCALE_FACTOR = 3_500_000_000
"""Bytes for tables, copies and DuckDB's own tables; lineitem alone has 1 GB."""


def tpch_queries() -> dict[str, str]:
    """The queries of TPC-H by their number."""
    text = resources.files("headrace_lab.tpch").joinpath("queries.sql").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    queries = [each.strip() for each in "\n".join(lines).split(";") if each.strip()]
    return {str(number): each for number, each in enumerate(queries, 1)}


def tpch_tables(
    scale_factor: float, directory: Path, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Read the tables of TPC-H into memory, generating them if missing."""
    check_memory(
        f"measure TPC-H at scale factor {scale_factor:g}",
        round(scale_factor * _MEMORY_PER_SCALE_FACTOR),
    )
    paths = ensure_tables(TABLES, scale_factor, directory, progress)
    return {name: _read(path) for name, path in paths.items()}


def tables_of(directory: Path) -> dict[str, Any]:
    """Read the Parquet and Arrow files of a directory into memory, by name without suffix."""
    tried = f"read the tables of '{directory}'"
    try:
        paths = sorted(each for each in directory.iterdir() if each.suffix in _READERS)
    except OSError as problem:
        raise IoFailedError(
            tried, "it cannot be listed", "name a folder by --data", problem.errno or 0
        ) from problem
    if not paths:
        raise NotFoundError(
            tried, "there is no .parquet, .arrow or .feather file", "name another folder by --data"
        )
    known: dict[str, Path] = {}
    for path in paths:
        # DuckDB's names are case-insensitive.
        if (other := known.setdefault(path.stem.lower(), path)) is not path:
            cause = f"'{other.name}' and '{path.name}' are the same table"
            raise InvalidArgumentError(tried, cause, "move one of them out of the folder")
    return {path.stem: _read(path) for path in paths}


def _read(path: Path) -> Any:  # noqa: ANN401 - pyarrow publishes no types.
    try:
        return _READERS[path.suffix](path)
    except (pa.ArrowException, OSError) as problem:
        raise IoFailedError(
            f"read the table '{path}'",
            str(problem).splitlines()[0],
            "make the file again, or move it out of the folder",
        ) from problem


def _read_ipc(path: Path) -> Any:  # noqa: ANN401
    with pa.OSFile(str(path)) as file:  # A mapped file would be read in place.
        return pa.ipc.open_file(file).read_all()


def _read_parquet(path: Path) -> Any:  # noqa: ANN401 - Its datasets load pandas: of folders only.
    return pq.read_table(path) if path.is_dir() else pq.ParquetFile(path).read()


_READERS = {".parquet": _read_parquet, ".arrow": _read_ipc, ".feather": _read_ipc}
