# SPDX-License-Identifier: Apache-2.0
"""Places that lack what the emulator needs: one sentence with cause and remedy, exit code 1."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from .conftest import NOBODY, TIME_LIMIT_S, Emulator, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take things away")

COMMAND = ("--", "echo", "started")


def expect_refusal(result: subprocess.CompletedProcess[bytes], *words: str) -> None:
    said = result.stderr.decode()
    assert result.returncode == 1, said
    assert result.stdout == b""
    assert said.startswith("headrace: cannot ")
    assert said.count("\n") == 1, said
    for each in words:
        assert each in said


def in_mounts(script: str, emulator: Emulator, *prefix: str) -> subprocess.CompletedProcess[bytes]:
    """Run the emulator where `script` has changed the mounts."""
    words = ["unshare", "-m", "sh", "-euc", f'{script}\nexec "$@"', "sh"]
    return Emulator(emulator.program, (*words, *prefix)).run(*COMMAND, cwd="/")


@pytest.mark.parametrize(
    "prefix",
    [
        ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"),
        (*NOBODY, "--no-new-privs"),
    ],
    ids=["root without CAP_SYS_ADMIN", "nobody without new privileges"],
)
def test_a_user_namespace_has_the_capabilities_that_the_caller_lacks(
    emulator: Emulator, prefix: tuple[str, ...]
) -> None:
    result = Emulator(emulator.program, prefix).run("--", "ls", "/dev/dsa")
    assert result.stdout == b"wq0.0\nwq0.1\n", result.stderr.decode()


def test_without_user_namespaces(emulator: Emulator) -> None:
    # Only an exec as a user whom the namespace knows brings the capabilities.
    script = """
    read -r mapped
    exec sh -euc 'echo 0 >/proc/sys/user/max_user_namespaces || exit 77; exec "$@"' sh "$@"
    """
    words = ["unshare", "-U", "-m", "sh", "-euc", script, "sh", *NOBODY, str(emulator.program)]
    process = subprocess.Popen(
        [*words, *COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/tmp",
        env=os.environ | {"HOME": "/tmp"},
    )
    namespace = Path(f"/proc/{process.pid}/ns/user")
    wait_until(lambda: namespace.readlink() != Path("/proc/self/ns/user").readlink())
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{process.pid}/{name}").write_text("0 0 65535\n")
    out, said = process.communicate(b"\n", TIME_LIMIT_S)
    if process.returncode == 77:
        pytest.skip(said.decode())
    result = subprocess.CompletedProcess(words, process.returncode, out, said)
    expect_refusal(
        result, "permission denied: user namespaces", "sysctl -w user.max_user_namespaces="
    )


def test_without_proc_or_sys(emulator: Emulator) -> None:
    expect_refusal(in_mounts("umount -l /proc", emulator), "/proc is not mounted")
    expect_refusal(in_mounts("umount -l /sys", emulator), "/sys/bus cannot be listed", "sysfs")


def test_it_needs_no_place_to_write_to(emulator: Emulator) -> None:
    result = in_mounts("mount -o bind,ro / /; mount -o remount,bind,ro /", emulator)
    assert result.stdout == b"started\n", result.stderr.decode()
    result = emulator.run(*COMMAND, env=os.environ | {"TMPDIR": "/proc/self"})
    assert result.stdout == b"started\n", result.stderr.decode()


def test_a_temporary_directory_that_runs_nothing_or_is_full_will_do(emulator: Emulator) -> None:
    # Not under /tmp, which is hidden.
    directory = Path(tempfile.mkdtemp(prefix="headrace-", dir="/var/tmp"))
    directory.chmod(0o755)
    try:
        for name in (emulator.program.name, "libheadrace-dsa-trap.so"):
            shutil.copy(emulator.program.parent / name, directory)
        kept = Emulator(directory / emulator.program.name)
        no_execution = "mount -t tmpfs -o noexec,mode=1777 none /tmp"
        full = "mount -t tmpfs -o size=4k,mode=1777 none /tmp; ! head -c 9999 /dev/zero >/tmp/full"
        for script in (no_execution, full):
            for prefix in ((), NOBODY):
                result = in_mounts(script, kept, *prefix)
                assert result.stdout == b"started\n", result.stderr.decode()
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("prefix", [(), NOBODY])
def test_without_a_home_and_a_temporary_directory(
    emulator: Emulator, prefix: tuple[str, ...]
) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": "/proc"}
    result = Emulator(emulator.program, prefix).run(*COMMAND, env=environment)
    assert result.stdout == b"started\n", result.stderr.decode()
    assert result.stderr == b""
