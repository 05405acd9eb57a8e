# SPDX-License-Identifier: Apache-2.0
"""The preload of ``headrace run`` as a client of the emulator, for root and for ordinary users."""

import json
import shutil
from pathlib import Path

import pytest

from headrace._cli.run import library_path
from headrace.errors import NotFoundError

from .conftest import Emulator, needs

COPY = """
a = bytes(range(251)) * 20000
b = bytearray(a)
b[:] = bytes(b)
assert b == a
print("copied")
"""


@needs("python3")
def test_a_program_copies_by_the_device(
    anybody: Emulator, public_directory: Path, shared_path: Path
) -> None:
    try:
        library = Path(shutil.copy(library_path(), public_directory))
    except NotFoundError as problem:
        pytest.skip(str(problem))
    stats = shared_path / "stats.json"
    # The loader adds the emulator's own library, whatever is in LD_PRELOAD.
    script = f"""
        export LD_PRELOAD="{library}" HEADRACE_PATH=dsa HEADRACE_PROFILE=none
        exec python3 -I -c '{COPY}'
    """
    result = anybody.shell(script, "--wq", "shared", "--stats", stats)
    assert result.stdout == b"copied\n"
    summary = json.loads(stats.read_text())["summary"]
    assert summary["operations"] > 0
    assert summary["errors"] == 0
