# SPDX-License-Identifier: Apache-2.0
"""Where the launcher cannot make its namespace: one sentence with the rule and the remedy."""

import os
import subprocess
from pathlib import Path

import pytest

from .conftest import NOBODY, TIME_LIMIT_S, Emulator, needs

FORBID_UNSHARE = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
UNSHARE, EPERM = 272, 1
filters = [(0x20, 0, 0, 0), (0x15, 0, 1, UNSHARE)]
filters += [(6, 0, 0, 0x50000 | EPERM), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in filters))
program = struct.pack("=H6xQ", len(filters), ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_where_a_filter_forbids_namespaces_the_remedy_is_said(anybody: Emulator) -> None:
    prefix = (*anybody.prefix, "/usr/bin/python3", "-c", FORBID_UNSHARE)
    result = Emulator(anybody.program, prefix).run("--", "echo", "started")
    assert (result.returncode, result.stdout) == (1, b"")
    assert "a system call filter (seccomp)" in result.stderr.decode()
    assert "--security-opt seccomp=unconfined" in result.stderr.decode()
    assert result.stderr.count(b"\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change what /proc shows")
def test_where_apparmor_forbids_namespaces_the_remedy_is_said(emulator: Emulator) -> None:
    # What refuses them is a filter; that the rule is in force is what Ubuntu's kernel shows.
    script = (
        "mount -t tmpfs none /proc/sys/kernel; "
        "echo 1 >/proc/sys/kernel/apparmor_restrict_unprivileged_userns; "
        'exec "$@"'
    )
    filtered = (*NOBODY, "/usr/bin/python3", "-c", FORBID_UNSHARE)
    prefix = ("unshare", "-m", "sh", "-euc", script, "sh", *filtered)
    result = Emulator(emulator.program, prefix).run("--", "echo", "started")
    assert (result.returncode, result.stdout) == (1, b"")
    assert result.stderr.decode() == (
        "headrace: cannot make a namespace for the emulated devices: AppArmor forbids user "
        "namespaces to this program (Operation not permitted); allow them as root "
        "(sysctl -w kernel.apparmor_restrict_unprivileged_userns=0), or run as root\n"
    )


@needs("setpriv")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("umask", [0o027, 0o077, 0o000])
def test_other_users_can_read_etc_whatever_the_umask(emulator: Emulator, umask: int) -> None:
    script = """
import os
os.setgid(65534); os.setuid(65534)
open("/etc/passwd").close(); open("/etc/ld.so.preload").close()
for path in ("/etc", "/etc/ld.so.preload", "/dev/dsa-emulator/etc/ld.so.preload"):
    assert os.stat(path).st_mode & 0o022 == 0, path
"""
    result = emulator.run("--", "/usr/bin/python3", "-c", script, umask=umask)
    assert result.returncode == 0, result.stderr.decode()


@needs("unshare", "setpriv")
def test_where_the_system_allows_no_user_namespaces_the_remedy_is_said(emulator: Emulator) -> None:
    script = (
        "echo 0 >/proc/sys/user/max_user_namespaces;"
        'exec setpriv --bounding-set=-all --securebits=+noroot -- "$@"'
    )
    prefix = ("unshare", "-Ur", "sh", "-ec", script, "sh")
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("the limit cannot be set here")
    result = Emulator(emulator.program, prefix).run("--", "echo", "started")
    assert (result.returncode, result.stdout) == (1, b"")
    assert "sysctl -w user.max_user_namespaces" in result.stderr.decode()


EMPTY_DEV = 'mount -t tmpfs none /dev; touch /dev/null; exec "$@"'


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take /dev/fuse away")
def test_without_fuse_the_remedy_is_said(emulator: Emulator) -> None:
    bare = Emulator(emulator.program, ("unshare", "-m", "sh", "-ec", EMPTY_DEV, "sh"))
    result = bare.run("--", "true")
    assert result.returncode == 1
    assert "there is no /dev/fuse; load the kernel module fuse" in result.stderr.decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change what /dev/fuse is")
def test_where_another_file_is_in_the_place_of_fuse_that_is_said(emulator: Emulator) -> None:
    script = 'mount --bind /dev/null /dev/fuse; exec "$@"'
    bound = Emulator(emulator.program, ("unshare", "-m", "sh", "-ec", script, "sh"))
    result = bound.run("--", "true")
    assert (result.returncode, result.stdout) == (1, b"")
    assert result.stderr.decode() == (
        "headrace: cannot serve the files of the emulated devices by FUSE: /dev/fuse is not "
        "the FUSE device; put the device there (as root: rm /dev/fuse; mknod -m 666 "
        "/dev/fuse c 10 229), or give the container the device (docker run --device /dev/fuse)\n"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can chroot")
@pytest.mark.parametrize(
    "prefix, is_mount_point, words",
    [
        ((), False, "the root directory is not a mount point, as in a chroot"),
        (NOBODY, False, "the root directory is not a mount point, as in a chroot"),
        (NOBODY, True, "permission denied: user namespaces, as in a chroot"),
    ],
)
def test_in_a_chroot_the_remedy_is_said(
    emulator: Emulator,
    shared_path: Path,
    prefix: tuple[str, ...],
    is_mount_point: bool,
    words: str,
) -> None:
    script = """
    root=$1; program=$2; is_mount_point=$3
    shift 3
    if [ "$is_mount_point" = True ]; then mount --bind "$root" "$root"; fi
    mkdir "$root/tmp"
    for place in bin dev etc lib lib64 proc sbin sys usr; do
      if [ -L "/$place" ]; then ln -s "$(readlink "/$place")" "$root/$place"
      elif [ -d "/$place" ]; then
        mkdir -p "$root/$place"
        mount --rbind "/$place" "$root/$place"
      fi
    done
    mkdir "$root/tmp/emulator"
    cp "$(dirname "$program")"/*emulator* "$(dirname "$program")"/*.so "$root/tmp/emulator"
    exec chroot "$root" "$@" "/tmp/emulator/$(basename "$program")" -- /bin/true
    """
    root = shared_path / "root"
    root.mkdir()
    arguments = (str(root), str(emulator.program), str(is_mount_point), *prefix)
    result = subprocess.run(
        ["unshare", "-m", "sh", "-euc", script, "sh", *arguments],
        capture_output=True,
        check=False,
        timeout=TIME_LIMIT_S,
        cwd="/",
    )
    assert result.returncode == 1, result.stderr
    assert words in result.stderr.decode()
    assert result.stderr.count(b"\n") == 1
