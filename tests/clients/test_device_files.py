# SPDX-License-Identifier: Apache-2.0
"""What a client finds of the device, and that no environment takes it away."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import NOBODY, TIME_LIMIT_S, Emulator, needs

ADDRESS = "d5a0:00:01.0"
TRAP = "/dev/dsa-emulator/libheadrace-dsa-trap.so"
JEMALLOC = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")
DSA_TEST = Path("/usr/libexec/accel-config/test/dsa_test")
STATIC = Path("/sbin/ldconfig")


def test_portals_are_character_devices_with_the_number_of_sysfs(anybody: Emulator) -> None:
    result = anybody.shell("stat -c '%F %Hr:%Lr %s' /dev/dsa/wq0.0 /dev/dsa/wq0.1; ls -l /dev/dsa")
    lines = result.stdout.decode().splitlines()
    assert lines[:2] == ["character special file 238:0 0", "character special file 238:1 0"]
    assert all(line.startswith("crw-------") for line in lines[3:])
    numbers = "cat /sys/bus/dsa/devices/dsa0/cdev_major /sys/bus/dsa/devices/wq0.1/cdev_minor"
    assert anybody.shell(numbers).stdout == b"238\n1\n"


def test_every_call_that_describes_a_file_agrees(anybody: Emulator) -> None:
    script = """
import os, stat
path = "/dev/dsa/wq0.1"
file = os.open(path, os.O_RDWR)
for found in (os.stat(path), os.lstat(path), os.fstat(file),
              os.stat("wq0.1", dir_fd=os.open("/dev/dsa", os.O_RDONLY))):
    assert stat.S_ISCHR(found.st_mode), oct(found.st_mode)
    assert (os.major(found.st_rdev), os.minor(found.st_rdev)) == (238, 1)
types = {entry.name: (entry.is_file(), entry.is_symlink()) for entry in os.scandir("/dev/dsa")}
assert types == {"wq0.0": (False, False), "wq0.1": (False, False)}, types
assert stat.S_ISREG(os.stat("/etc/passwd").st_mode)
assert stat.S_ISREG(os.stat("/dev/dsa-emulator/registers").st_mode)
"""
    result = anybody.run("--", "/usr/bin/python3", "-c", script)
    assert result.returncode == 0, result.stderr.decode()


def test_the_number_of_a_portal_leads_to_it(anybody: Emulator) -> None:
    script = "readlink -f /dev/char/238:1; ls -l /dev/char/238:0 | cut -c1; ls /dev/char"
    lines = anybody.shell(script).stdout.decode().split()
    assert lines[:2] == ["/dev/dsa/wq0.1", "l"]
    assert {"238:0", "238:1"} <= set(lines[2:])
    gone = "accel-config disable-wq dsa0/wq0.0 >/dev/null; test ! -e /dev/char/238:0"
    if shutil.which("accel-config"):
        anybody.shell(gone)


@needs("lspci", "setpci")
def test_the_device_is_on_the_pci_bus(anybody: Emulator) -> None:
    lines = anybody.shell("lspci -D -d 8086:0b25 -vv 2>/dev/null").stdout.decode()
    assert lines.startswith(f"{ADDRESS} System peripheral: Intel Corporation")
    assert "Kernel driver in use: idxd" in lines
    assert "NUMA node: 0" in lines
    assert "Region 0: Memory at" in lines
    assert ("Address Translation Service" in lines) == (not anybody.prefix and os.geteuid() == 0)
    real = subprocess.run(["lspci", "-D"], capture_output=True, check=False, timeout=TIME_LIMIT_S)
    shown = anybody.shell("lspci -D 2>/dev/null").stdout.splitlines()
    assert set(real.stdout.splitlines()) < set(shown)


def test_the_pci_device_is_that_of_the_bus_dsa(anybody: Emulator) -> None:
    device = f"/sys/bus/pci/devices/{ADDRESS}"
    script = f"""
        readlink -f {device}; dirname $(readlink -f /sys/bus/dsa/devices/dsa0)
        cat {device}/numa_node /sys/bus/dsa/devices/dsa0/numa_node {device}/vendor {device}/device
        readlink -f {device}/driver; wc -l <{device}/resource
        ls /sys/bus/pci/drivers/idxd | grep {ADDRESS}
    """
    lines = anybody.shell(script).stdout.decode().split()
    place = f"/sys/devices/pcid5a0:00/{ADDRESS}"
    driver = "/sys/bus/pci/drivers/idxd"
    assert lines == [place, place, "0", "0", "0x8086", "0x0b25", driver, "13", ADDRESS]


@needs("setpci")
def test_configuration_space_is_roots(anybody: Emulator) -> None:
    config = f"/sys/bus/pci/devices/{ADDRESS}/config"
    is_root = not anybody.prefix and os.geteuid() == 0
    assert anybody.shell(f"wc -c <{config}").stdout == (b"4096\n" if is_root else b"64\n")
    script = f"""
        setpci -s {ADDRESS} VENDOR_ID.w; setpci -s {ADDRESS} COMMAND.w=0142
        setpci -s {ADDRESS} COMMAND.w; setpci -s {ADDRESS} VENDOR_ID.w=1234
        setpci -s {ADDRESS} VENDOR_ID.w
    """
    result = anybody.run("--", "sh", "-c", script)
    if is_root:
        assert result.stdout.split() == [b"8086", b"0142", b"8086"]
    else:
        assert b"0142" not in result.stdout.split()
        assert anybody.run("--", "sh", "-c", f"echo x >{config}").returncode != 0


@pytest.mark.parametrize(
    "words",
    [
        ("env", "LD_PRELOAD=libm.so.6"),
        ("env", "-u", "LD_PRELOAD"),
        ("env", "-i"),
        ("sh", "-c", 'LD_PRELOAD= exec "$@"', "sh"),
    ],
    ids=" ".join,
)
def test_no_environment_takes_the_devices_away(
    anybody: Emulator, hostile: Path, hostile_config: Path, words: tuple[str, ...]
) -> None:
    result = anybody.run("--config", hostile_config, "--", *words, hostile, "dedicated_queue")
    assert result.returncode == 0, result.stderr.decode()


@pytest.mark.skipif(not (JEMALLOC.exists() and DSA_TEST.exists()), reason="not installed")
def test_another_preload_comes_before_or_alone(anybody: Emulator) -> None:
    test = (str(DSA_TEST), "-w", "1", "-l", "4096", "-o", "0x3", "-f", "0x1", "t50")
    for given in (str(JEMALLOC), f"{JEMALLOC}:{TRAP}", f"{TRAP}:{JEMALLOC}"):
        result = anybody.run("--", "env", f"LD_PRELOAD={given}", *test)
        assert result.returncode == 0, result.stdout + result.stderr


@needs("cc")
def test_address_sanitizer_runs_under_the_emulator(
    anybody: Emulator, public_directory: Path
) -> None:
    program = public_directory / "sanitized"
    source = '#include <stdio.h>\nint main(void) { return fopen("/dev/dsa/wq0.0", "r+") == NULL; }'
    words = ["cc", "-fsanitize=address", "-x", "c", "-", "-o", str(program)]
    if subprocess.run(words, input=source.encode(), capture_output=True, check=False).returncode:
        pytest.skip("this compiler has no AddressSanitizer")
    for prefix in ((), ("env", "-i", "ASAN_OPTIONS=detect_leaks=0"), ("env", "-i")):
        result = anybody.run("--", *prefix, program)
        assert b"ASan runtime does not come first" not in result.stderr
        assert b"LeakSanitizer" in result.stderr or result.returncode == 0, result.stderr


@pytest.mark.skipif(not STATIC.exists(), reason="no static program is at hand")
def test_a_static_program_that_is_started_later_is_named(anybody: Emulator) -> None:
    for script in (
        f"{STATIC} -p",
        f"exec {STATIC} -p",
        f"env {STATIC} -p",
        f"(env -i {STATIC} -p)",
    ):
        result = anybody.run("--", "sh", "-c", script)
        assert result.returncode == 0
        said = result.stderr.decode()
        assert said.count("\n") == 1, said
        assert "the emulated devices do not work in" in said
        assert "it is statically linked" in said


def test_where_overlays_are_refused_every_program_is_given_the_library(
    anybody: Emulator,
) -> None:
    # An overlay lies on two others at most.
    script = 'cat /etc/ld.so.preload; env -i sh -c "echo \\$LD_PRELOAD"; ls /dev/dsa'
    words = [*anybody.words("--")[len(anybody.prefix) :]] * 2
    result = anybody.run("--", *words, "sh", "-c", script)
    assert result.stdout.decode().split() == [TRAP, TRAP, "wq0.0", "wq0.1"], result.stderr.decode()


WRITER = """
import ctypes, mmap, os, struct, sys
file = os.open(sys.argv[1], os.O_RDWR)
record = mmap.mmap(-1, 4096)
completion = ctypes.addressof(ctypes.c_char.from_buffer(record))
# A no-op that wants a record.
assert os.write(file, struct.pack("=IIQ40xQ", 0, 0x0C, completion, 0)) == 64
while record[0] == 0:
    pass
assert record[0] == 1, record[0]
"""


def test_a_portal_opened_by_another_name_takes_a_written_descriptor(
    anybody: Emulator, shared_path: Path
) -> None:
    writer = ("/usr/bin/python3", "-c", WRITER)
    link = shared_path / "queue"
    link.symlink_to("/dev/dsa/wq0.1")
    for path in ("/dev/dsa/wq0.1", "/dev/char/238:1", link):
        result = anybody.run("--", *writer, path)
        assert result.returncode == 0, result.stderr.decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_only_users_of_a_portal_may_write_the_registers(emulator: Emulator) -> None:
    nobody = shlex.join(NOBODY)
    work = f"{nobody} /usr/bin/python3 -c {shlex.quote(WRITER)} /dev/dsa/wq0.1"
    registers = "/dev/dsa-emulator/registers"
    script = f"""
        refused() {{ if "$@" 2>/dev/null; then echo "allowed: $*"; fi; }}
        closed() {{ refused {nobody} test -r "$1"; refused {nobody} test -w "$1"; }}
        closed {registers}; closed /dev/dsa/wq0.1; refused {work}
        chmod 666 /dev/dsa/wq0.1; stat -c %a /dev/dsa/wq0.1 /dev/dsa/wq0.0 {registers}; {work}
        chmod 600 /dev/dsa/wq0.1; closed {registers}; closed /dev/dsa/wq0.1
        chown 65534:65534 /dev/dsa/wq0.1
        stat -c %u:%g:%a:%F /dev/dsa/wq0.1 /dev/dsa/wq0.0 {registers}; {work}
        {nobody} chmod 640 /dev/dsa/wq0.1; refused {nobody} chown 0 /dev/dsa/wq0.1
        refused {nobody} chmod 666 /dev/dsa/wq0.0
        refused chmod 666 /sys/bus/dsa/devices/dsa0/state
        stat -c %a {registers}
    """
    assert emulator.shell(script).stdout.decode().split("\n")[:-1] == [
        *("666", "600", "666"),
        "65534:65534:600:character special file",
        "0:0:600:character special file",
        "65534:65534:600:regular file",
        "640",
    ]


@needs("cc")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a set-user-ID program")
def test_a_set_user_id_program_ignores_the_emulators_variables(
    emulator: Emulator, shared_path: Path
) -> None:
    program = shared_path / "probe"
    source = """#include <stdio.h>
int main(void) {
  char line[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) fputs(line, stdout);
  return 0;
}"""
    words = ["cc", "-x", "c", "-", "-o", str(program)]
    subprocess.run(words, input=source.encode(), check=True, timeout=TIME_LIMIT_S)
    own = shared_path / "own"
    script = f"""
        cp /dev/dsa-emulator/registers {own}; chown 65534 {own}
        export HEADRACE_EMULATOR_REGISTERS={own}
        {shlex.join(NOBODY)} {program} | grep -c {own} || true
        chmod 4755 {program}; {shlex.join(NOBODY)} {program} | grep -e {own} -e registers
    """
    lines = emulator.shell(script).stdout.decode().splitlines()
    assert lines[0] == "1", "an ordinary program uses the file that it is given"
    assert [line.split()[-1] for line in lines[1:]] == ["/dev/dsa-emulator/registers"]


POLLER = """
import ctypes, mmap, os, select, struct, threading
file = os.open("/dev/dsa/wq0.1", os.O_RDWR)
portal = mmap.mmap(file, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE)
watch = select.poll()
watch.register(file, select.POLLIN | select.POLLOUT)
record = mmap.mmap(-1, 4096)

def submit(completion):
    # A no-op that wants a record.
    os.write(file, struct.pack("=IIQ40xQ", 0, 0x0C, completion, 0))

good = ctypes.addressof(ctypes.c_char.from_buffer(record))
submit(good)
while record[0] == 0:
    pass
assert record[0] == 1, record[0]
assert watch.poll(0) == [], "a completion"
found = []
waiting = threading.Thread(target=lambda: found.append(watch.poll()), daemon=True)
waiting.start()
while open(f"/proc/self/task/{waiting.native_id}/stat").read().rpartition(")")[2].split()[0] != "S":
    pass
submit(0x1000)
waiting.join(100)
assert found == [[(file, select.POLLIN)]], found
assert watch.poll(0) == [(file, select.POLLIN)]
"""


def test_poll_waits_for_device_errors_alone(anybody: Emulator) -> None:
    result = anybody.run("--", "/usr/bin/python3", "-c", POLLER)
    assert result.returncode == 0, result.stderr.decode()
