# SPDX-License-Identifier: Apache-2.0
"""Machines in QEMU for tests: `scripts/guest` runs these, with a kernel in $HEADRACE_KERNEL."""

import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "dev"
COMMAND = Path(sysconfig.get_path("scripts")) / "headrace"
# Of what takes a minute on a machine that does nothing else.
TIME_LIMIT_S = 900
Guest = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not str(item.path).startswith(str(Path(__file__).parent)):
            continue
        item.add_marker(pytest.mark.guest)
        if "HEADRACE_KERNEL" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="needs a kernel: run scripts/guest"))


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    """Runs words on the machine of a record, in a folder of its own; options come first."""

    def run(record: str, *words: str | Path, **others: object) -> subprocess.CompletedProcess[str]:
        options = {"capture_output": True, "text": True, "cwd": tmp_path}
        return subprocess.run(
            [COMMAND, "machine", "run", record, *words],
            timeout=TIME_LIMIT_S,
            check=False,
            **(options | others),  # type: ignore[call-overload]
        )

    return run
