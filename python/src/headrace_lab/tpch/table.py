# SPDX-License-Identifier: Apache-2.0
"""The tables of TPC-H as Parquet files, generated once and kept.

A file appears under its name only when complete: it is generated in a temporary directory and
renamed. If generation ends early, also by an interrupt, that directory is removed and the generator
is killed.
"""

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from headrace import _core
from headrace._files import is_there
from headrace._signals import undone_at_signals
from headrace._temporary import child_process, temporary_folder
from headrace.errors import CapacityExceededError, Error, IoFailedError, NotFoundError

SCALE_FACTOR_MIN = 0.001
SCALE_FACTOR_MAX = 100_000.0
"""The largest in the specification."""
ROWS_PER_SCALE_FACTOR = 6_001_215
"""Rows of lineitem; at other scale factors the ratio differs by less than one in a thousand."""

TABLES = ("lineitem", "orders", "partsupp", "customer", "part", "supplier", "nation", "region")

_FILE_BYTES_PER_SCALE_FACTOR = {
    "lineitem": 240_000_000,
    "orders": 66_000_000,
    "partsupp": 46_000_000,
    "customer": 15_000_000,
    "part": 8_000_000,
    "supplier": 1_000_000,
}
"""Bytes as Snappy-compressed Parquet; for progress and for the check of free space."""

Progress = Callable[[float], None]
"""Called with the completed share, 0 to 1."""


def default_directory() -> Path:
    """Directory of generated tables: $HEADRACE_DATA, or the user's cache directory."""
    chosen = os.environ.get("HEADRACE_DATA")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace" / "tpch"


def table_path(name: str, scale_factor: float, directory: Path) -> Path:
    return directory / f"sf{scale_factor:.12g}" / f"{name}.parquet"


def ensure_lineitem(
    scale_factor: float, directory: Path, progress: Progress = lambda _share: None
) -> Path:
    """Return the file of lineitem; see `ensure_tables`."""
    return ensure_tables(("lineitem",), scale_factor, directory, progress)["lineitem"]


def ensure_tables(
    names: Sequence[str],
    scale_factor: float,
    directory: Path,
    progress: Progress = lambda _share: None,
) -> dict[str, Path]:
    """Return the files of tables, generating missing ones."""
    paths = {name: table_path(name, scale_factor, directory) for name in names}
    subject = names[0] if len(names) == 1 else "tables"
    tried = f"generate TPC-H {subject} at scale factor {scale_factor:g} in '{directory}'"
    missing = [name for name, path in paths.items() if not is_there(path, tried)]
    if not missing:
        return paths
    generator = _find_generator(tried)
    kept = paths[missing[0]].parent
    try:
        with ExitStack() as left_behind:
            left_behind.enter_context(undone_at_signals(partial(_remove_if_empty, kept)))
            left_behind.callback(_remove_if_empty, kept)
            kept.mkdir(parents=True, exist_ok=True)
            expected_bytes = scale_factor * sum(
                _FILE_BYTES_PER_SCALE_FACTOR.get(name, 0) for name in missing
            )
            if (free := shutil.disk_usage(kept).free) < expected_bytes:
                needed = _core.bytes_text(math.ceil(expected_bytes))
                cause = f"it takes about {needed} and {_core.bytes_text(free)} are free"
                remedy = "use a smaller scale factor or another --data-dir"
                raise CapacityExceededError(tried, cause, remedy)
            work = left_behind.enter_context(temporary_folder(".generating-", kept))
            arguments = [generator, "parquet", "-s", f"{scale_factor:.12g}"]
            arguments += ["--tables", ",".join(missing)]
            _generate(
                tried,
                arguments,
                work,
                missing,
                lambda made: progress(min(made / max(expected_bytes, 1), 0.99)),
            )
            for each in missing:
                (work / f"{each}.parquet").replace(paths[each])
            progress(1.0)
    except Error:
        raise
    except OSError as problem:
        raise IoFailedError(
            tried, "it cannot be written", "choose another folder by --data-dir", problem.errno or 0
        ) from problem
    return paths


def _find_generator(tried: str) -> str:
    # First beside the interpreter: in a virtual environment it may not be on the path.
    beside = Path(sys.executable).parent
    found = shutil.which("tpchgen-cli", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise NotFoundError(
            tried,
            "the program tpchgen-cli is not installed",
            "run 'pip install tpchgen-cli' in a virtual environment",
        )
    return found


def _generate(
    tried: str,
    arguments: Sequence[str],
    work: Path,
    names: Sequence[str],
    progress: Callable[[int], None],
) -> None:
    complaints = work / "complaints"
    nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    words = [*arguments, "--quiet", "--output-dir", str(work)]
    with (
        complaints.open("wb") as stderr,
        # Its own process group, so that only the parent gets the terminal's SIGINT.
        child_process(words, **nothing, stderr=stderr, process_group=0) as child,
    ):
        while child.poll() is None:
            with suppress(FileNotFoundError):  # The generator renamed or removed a file.
                progress(sum(each.stat().st_size for each in work.iterdir()))
            time.sleep(0.05)
    said = complaints.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    made = all((work / f"{name}.parquet").exists() for name in names)
    if child.returncode != 0 or not made:
        ended = subprocess.CalledProcessError(child.returncode, "tpchgen-cli")
        cause = said[-1] if said else str(ended).rstrip(".")
        raise IoFailedError(tried, cause, "try again, or give a file by --data")


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):  # Holds the file, or another process is generating there.
        directory.rmdir()
