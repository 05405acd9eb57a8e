# SPDX-License-Identifier: Apache-2.0
"""dsa_test, the test program of accel-config: every mode, operation, flag and length."""

import json
from pathlib import Path

import pytest

from .conftest import Emulator, needs

DSA_TEST = Path("/usr/libexec/accel-config/test/dsa_test")
pytestmark = pytest.mark.skipif(not DSA_TEST.exists(), reason="accel-config-test is not installed")

# What dsa_test of version 3.5 knows: no-op, drain, move, fill, compare, compare pattern, create and
# apply delta, dualcast, CRC, copy with CRC, and flush; DIF by its own numbers.
OPCODES = (
    *("0x0", "0x2", "0x3", "0x4", "0x5", "0x6", "0x7", "0x8"),
    *("0x9", "0x10", "0x11", "0x12", "0x13", "0x14", "0x15", "0x20"),
)
DELTAS = ("0x7", "0x8")
# Offsets in a delta have 16 bits and count units of 8 bytes, so they end at 0x80000 bytes: a delta
# of 1 MiB is refused, on hardware as well, and the greatest that there is runs in its place.
DELTA_BYTES_MAX = 0x80000
BATCHED = "0x3 0x4 0x5 0x6 0x9"
# Runs one combination; what fails is named on stdout.
RUN = """
one() { timeout 100 DSA_TEST "$@" >/dev/null 2>"$log" || { echo "failed: $*"; tail -2 "$log"; }; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
""".replace("DSA_TEST", str(DSA_TEST))


def operations_of(path: Path) -> int:
    operations = json.loads(path.read_text())["summary"]["operations"]
    assert isinstance(operations, int)
    return operations


@pytest.mark.parametrize("mode", ["dedicated", "shared"])
@pytest.mark.parametrize("flags", ["0x0", "0x1"])
def test_every_operation_passes(
    emulator: Emulator, shared_path: Path, mode: str, flags: str
) -> None:
    stats = shared_path / "stats.json"
    options = f"-w {int(mode == 'shared')} -f {flags}"
    combinations = [
        (opcode, min(length, DELTA_BYTES_MAX) if opcode in DELTAS else length)
        for length in (4096, 65536, 1 << 20)
        for opcode in OPCODES
    ]
    script = RUN + "\n".join(
        f"one {options} -l {length} -o {opcode}" for opcode, length in combinations
    )
    result = emulator.shell(script, "--stats", stats)
    assert result.stdout == b""
    assert operations_of(stats) > 40


@pytest.mark.parametrize("mode", ["dedicated", "shared"])
def test_every_batch_passes(emulator: Emulator, shared_path: Path, mode: str) -> None:
    stats = shared_path / "stats.json"
    script = (
        RUN
        + f"""
    for length in 4096 65536 1048576; do
      for opcode in {BATCHED}; do
        one -w {int(mode == "shared")} -l $length -o 0x1 -b $opcode -c 16 -f 0x1 t4
      done
    done
    """
    )
    result = emulator.shell(script, "--stats", stats)
    assert result.stdout == b""
    assert operations_of(stats) >= 3 * 5 * 16


def test_it_passes_as_an_ordinary_user(anybody: Emulator) -> None:
    result = anybody.shell(RUN + "one -w 1 -l 65536 -o 0x3 -f 0x1 t8; one -w 0 -l 65536 -o 0x3 t8")
    assert result.stdout == b""


@pytest.mark.parametrize("engines", ["1", "4"])
@pytest.mark.parametrize("seed", [(), ("--seed", "1")], ids=["free", "seed"])
def test_two_clients_with_batches_finish(
    emulator: Emulator, shared_path: Path, seed: tuple[str, ...], engines: str
) -> None:
    stats = shared_path / "stats.json"
    batches = "one -w 1 -l 65536 -o 0x1 -b 0x3 -c 16 -f 0x1 t20"
    script = RUN + f"for i in 1 2 3 4 5; do {batches} & {batches} & wait; done"
    result = emulator.shell(script, "--engines", engines, *seed, "--stats", stats)
    assert result.stdout == b""
    summary = json.loads(stats.read_text())["summary"]
    assert summary["batches"] == summary["submissions"] > 0


@needs("valgrind")
def test_a_dedicated_queue_works_under_valgrind(emulator: Emulator, shared_path: Path) -> None:
    stats = shared_path / "stats.json"
    words = ("valgrind", "-q", DSA_TEST, "-w", "0", "-l", "4096", "-o", "3", "-t", "20000")
    result = emulator.run("--wq", "dedicated", "--stats", stats, "--", *words)
    assert result.returncode == 0, result.stderr.decode()
    assert operations_of(stats) == 1  # On a shared one it would be submitted again.
