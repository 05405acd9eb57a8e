# SPDX-License-Identifier: Apache-2.0
"""The doctor on declared machines: one for each cause, and what it says where facts are missing."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Here
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace._apps.doctor.diagnosis import CHECKS, Diagnosis, diagnose
from headrace._apps.dsa import status
from headrace._apps.dsa.configuration import Wish, changes, configure
from headrace._cli._doctor_report import print_diagnosis
from headrace._cli._dsa_report import print_devices
from headrace._cli._report import Report
from headrace._facts import (
    Facts,
    MemoryNode,
    from_document,
    load_record,
    to_document,
)
from headrace._gather import gather
from headrace._samples import machine_path
from headrace.errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    VersionMismatchError,
)
from headrace.machine import replay, topo

# Machine, the check that names the root cause, exit code, words of the first line.
MACHINES = Path(machine_path("healthy")).parent
BROKEN = [
    ("older-processor", "device", 3, "Gold 6230N CPU @ 2.30GHz has none"),
    ("other-architecture", "device", 3, "aarch64"),
    ("guest-without-device", "device", 3, "its host gives it none"),
    ("disabled-in-bios", "device", 3, "turned off in the firmware"),
    ("only-iaa", "device", 3, "No DSA is in this machine"),
    ("guest-processor-model", "cpu", 1, "model of a processor leaves it out"),
    ("old-kernel", "kernel", 1, "5.10.0-28-amd64 is too old"),
    ("kernel-before-the-driver", "kernel", 1, "came with Linux 5.6"),
    ("kernel-without-driver", "kernel config", 1, "CONFIG_INTEL_IDXD is not set"),
    ("kernel-without-sva", "kernel config", 1, "CONFIG_INTEL_IOMMU_SVM"),
    ("vtd-off", "firmware", 1, "VT-d is turned off in the BIOS"),
    ("guest-without-iommu", "firmware", 1, "the virtual machine has no IOMMU"),
    ("iommu-off", "iommu", 1, "intel_iommu=off"),
    ("iommu-not-on", "iommu", 1, "CONFIG_INTEL_IOMMU_DEFAULT_ON=n"),
    ("scalable-mode-off", "iommu", 1, "scalable mode of the IOMMU is not on"),
    ("iommu-without-scalable-mode", "iommu", 1, "the IOMMU has no scalable mode"),
    ("module-not-loaded", "module", 1, "nothing loaded it"),
    ("module-blacklisted", "module", 1, "/etc/modprobe.d/blacklist-dsa.conf"),
    ("module-not-installed", "module", 1, "not installed for kernel 6.8.0-45-generic"),
    ("held-by-vfio", "driver", 1, "0000:6a:01.0 (vfio-pci)"),
    ("not-bound", "driver", 1, "no driver holds 0000:6a:01.0"),
    ("container-without-sysfs", "driver", 1, "this container does not see"),
    ("five-level-paging", "pasid", 1, "five levels of page tables"),
    ("pasid-off", "pasid", 1, "ATS, PRS or PASID"),
    ("library-missing", "library", 1, "libaccel-config.so.1"),
    ("halted", "errors", 1, "dsa0 is halted"),
    ("not-configured", "configured", 1, "no WQ has entries"),
    ("only-kernel-queues", "configured", 1, "no WQ is of type user"),
    ("queue-without-size", "configured", 1, "size 0"),
    ("queue-without-group", "groups", 1, "wq0.0 is in no group"),
    ("group-without-engine", "groups", 1, "group0.0 of wq0.0 has no engine"),
    ("threshold-zero", "settings", 1, "threshold 0"),
    ("queue-without-name", "settings", 1, "wq0.0 has no name"),
    ("queue-without-driver-name", "settings", 1, "driver_name ''"),
    ("device-disabled", "enabled", 1, "configured, but not enabled"),
    ("device-refuses", "enabled", 1, "more than the device has entries"),
    ("queue-disabled", "enabled", 1, "wq0.0, wq0.1 are not enabled"),
    (
        "second-device-disabled",
        "enabled",
        1,
        "Only part of the DSA can be used (enabled): dsa2 is not",
    ),
    ("queue-locked", "enabled", 1, "wq0.0 is locked"),
    ("container-without-files", "permissions", 1, "has not been given its file"),
    ("no-files", "permissions", 1, "udev or devtmpfs"),
    ("no-permission", "permissions", 1, "user ada may not read and write it"),
    ("dedicated-in-use", "submission", 1, "takes one client and has one"),
    ("cannot-bind", "submission", 1, "open() gives EINVAL"),
]

# Machine, a check with something to know, words of its finding or cause.
USABLE = [
    ("healthy", "surroundings", "no virtual machine or container detected"),
    ("portal-refused", "submission", "CVE-2024-21823"),
    ("portal-refused-in-namespace", "submission", "in the first user namespace"),
    ("noted-error", "errors", "dsa0: the size of a transfer was 0 or more than"),
    ("small-transfers", "limits", "transfers up to 2 MiB, batches up to 32 descriptors"),
    ("only-dedicated", "modes", "Intel DML, QPL and DTO refuse them"),
    ("no-huge-pages", "huge pages", "none reserved"),
    ("library-without-program", "library", "devices cannot be configured from here"),
    ("guest-with-device", "surroundings", "a virtual machine (QEMU Standard PC"),
    ("unused-device", "configured", "2 WQs of type user; dsa2 has none"),
    ("far-device", "numa", "Intel DML takes only the caller's node"),
    ("device-without-node", "numa", "numa_node of dsa0 is -1"),
    ("xeon-max-flat", "hbm", "flat mode: 8 nodes of HBM of 16 GiB each"),
    ("xeon-max-cache", "hbm", "cache mode: a memory-side cache of 16 GiB each"),
    ("fewer-devices-than-nodes", "clustering", "(SNC4), 2 devices for 8 nodes"),
    ("addresses-of-46-bits", "address width", "'Limit CPU PA to 46 bits' is on"),
    ("emulated", "cpu", "the device is emulated"),
]


WORDS = st.characters(categories=["L", "N", "P", "S"])


def document(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Path(machine_path(name)).read_text())
    return read


def diagnosis(record: dict[str, Any]) -> Diagnosis:
    return diagnose(from_document(record, "read it")[0])


@pytest.mark.parametrize("name, check, code, words", BROKEN)
def test_a_broken_machine_is_told_its_root_cause(
    here: Here, name: str, check: str, code: int, words: str
) -> None:
    result = here("doctor", "--replay", name)
    assert result.code == code
    first = result.stdout.splitlines()[0]
    assert words in first
    found = diagnosis(document(name))
    assert found.root is not None
    assert found.root.check == check
    assert found.root.cause
    assert found.root.remedy
    # The remedy is said once, at the top.
    assert result.stdout.count(found.root.remedy) == 1


@pytest.mark.parametrize("name, check, words", USABLE)
def test_a_usable_machine_is_called_usable(here: Here, name: str, check: str, words: str) -> None:
    result = here("doctor", "--replay", name)
    assert result.code == 0
    assert result.stdout.startswith("The DSA can be used ")
    finding = diagnosis(document(name)).finding(check)
    assert words in f"{finding.finding}; {finding.cause}"


def test_every_declared_machine_has_its_expectation() -> None:
    names = {path.stem for path in MACHINES.glob("*.json")} | {"xeon-max-flat", "xeon-max-cache"}
    assert names == {row[0] for row in BROKEN} | {row[0] for row in USABLE}


def test_every_check_but_those_that_only_tell_can_be_the_root_cause() -> None:
    telling = {"modes", "limits", "page faults", "numa", "huge pages", "surroundings"}
    telling |= {"hbm", "clustering", "address width"}
    assert {check.name for check in CHECKS} - telling == {row[1] for row in BROKEN}


def test_the_healthy_machine_has_no_failed_and_no_unknown_check() -> None:
    states = {finding.state for finding in diagnosis(document("healthy")).findings}
    assert states == {"ok"}


def test_under_the_emulator_all_is_green() -> None:
    found = diagnosis(document("emulated"))
    assert all(finding.state == "ok" for finding in found.findings)
    for check in ("device", "cpu", "kernel", "kernel config", "firmware", "iommu", "driver"):
        assert found.finding(check).finding == "not needed: the device is emulated"


def test_in_a_pipe_every_check_is_one_line(here: Here) -> None:
    path = MACHINES / "pasid-off.json"
    lines = here("doctor", "--replay", str(path)).stdout.splitlines()
    assert lines[1].startswith("Remedy: ")
    names = [line[:15].rstrip() for line in lines[4:-2]]
    assert names == [check.name for check in CHECKS]


def test_a_terminal_gets_lines_that_fit() -> None:
    stream = io.StringIO()
    print_diagnosis(Report(stream, 80), diagnosis(document("vtd-off")), None)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) > len(CHECKS)


def test_checks_that_follow_from_the_root_cause_say_so_and_no_more() -> None:
    found = diagnosis(document("scalable-mode-off"))
    for check in ("pasid", "enabled", "permissions", "submission"):
        finding = found.finding(check)
        assert finding.finding == "follows from 'iommu'"
        assert not finding.remedy


def test_what_is_on_is_judged_where_other_parts_are_off() -> None:
    found = diagnosis(document("second-device-disabled"))
    assert found.finding("permissions").finding.startswith("/dev/dsa/wq0.0, /dev/dsa/wq0.1 may be")
    assert found.finding("submission").finding == "through the portal of 2 of 4 WQs"
    record = document("healthy")
    first, second = record["facts"]["devices"][0]["queues"]
    second |= {"state": "disabled", "file": {"path": second["file"]["path"], "exists": False}}
    found = diagnosis(record)
    assert found.headline.startswith("Only part of the DSA can be used (enabled): wq0.1 is not")
    assert found.finding("permissions").finding == "/dev/dsa/wq0.0 may be read and written"
    assert found.finding("submission").finding == "through the portal of 1 of 2 WQs"
    first["file"] |= {"writable": False, "opened": "EACCES"}
    found = diagnosis(record)
    assert found.headline.startswith("The DSA cannot be used (enabled)")
    assert "user ada may not" in found.finding("permissions").cause
    assert found.finding("submission").finding == "follows from 'permissions'"
    first["state"] = "disabled"
    assert diagnosis(record).finding("permissions").finding == "follows from 'enabled'"


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every fact, and to every group of facts."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if isinstance(inner, dict | list):
                yield from places(inner, (*path, index))


def incomplete(record: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Facts]]:
    """The facts with one of them, or one group of them, unknown.

    Not without a name: what has none is not recorded; nor with one thing fewer, which is no
    unknown fact but another machine.
    """
    for path in places(record["facts"]):
        if isinstance(path[-1], int) or path[-1] in {"name", "path", "address", "page_bytes"}:
            continue
        inner: Any = record["facts"]
        for step in path[:-1]:
            inner = inner[step]
        kept = inner[path[-1]]
        inner[path[-1]] = None
        yield path, from_document(record, "read it")[0]
        inner[path[-1]] = kept


@pytest.mark.parametrize("name", [row[0] for row in BROKEN])
def test_no_missing_fact_makes_a_broken_machine_usable(name: str) -> None:
    record = document(name)
    complete = diagnosis(record)
    for path, facts in incomplete(record):
        found = diagnose(facts)
        assert found.exit_code != 0, path
        assert found.headline.endswith("."), path
        for before, after in zip(complete.findings, found.findings, strict=True):
            # Seen to be wrong, or not seen; not seen to be right.
            assert before.state != "failed" or after.state != "ok", (path, after)


@pytest.mark.parametrize("name", [row[0] for row in USABLE])
def test_no_missing_fact_is_called_a_failure_of_a_usable_machine(name: str) -> None:
    for path, facts in incomplete(document(name)):
        if name == "emulated" and path in {("platform",), ("platform", "emulated")}:
            continue  # Then it is a machine without hardware.
        found = diagnose(facts)
        assert all(finding.state != "failed" for finding in found.findings), path
        assert (found.exit_code == 0) == (found.root is None), path


def test_usable_is_only_said_where_a_queue_was_seen_to_take_work() -> None:
    record = document("healthy")
    for queue in record["facts"]["devices"][0]["queues"]:
        queue["file"]["mapped"] = None
    found = diagnosis(record)
    assert found.exit_code == 1
    assert found.headline.startswith("Unknown whether the DSA can be used (submission)")


def test_nothing_known_at_all_is_not_usable_and_no_crash() -> None:
    found = diagnose(Facts())
    assert found.exit_code == 1
    assert "Unknown whether" in found.headline


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_mixture_of_missing_and_odd_facts_is_diagnosed(data: st.DataObject) -> None:
    record = document(data.draw(st.sampled_from([row[0] for row in BROKEN + USABLE])))
    all_places = list(places(record["facts"]))
    for path in data.draw(st.lists(st.sampled_from(all_places), max_size=8, unique=True)):
        inner: Any = record["facts"]
        try:
            for step in path[:-1]:
                inner = inner[step]
            old = inner[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # Something above it is gone already.
        if isinstance(path[-1], int):
            continue
        odd: Any = None
        if path[-1] in {"name", "path", "address"}:
            inner[path[-1]] = data.draw(st.text(WORDS, max_size=12))
            continue
        if path[-1] == "page_bytes":
            continue
        if isinstance(old, bool):
            odd = data.draw(st.sampled_from([None, True, False]))
        elif isinstance(old, int):
            odd = data.draw(st.none() | st.integers(-(1 << 62), 1 << 62))
        elif isinstance(old, str):
            odd = data.draw(st.none() | st.text(WORDS, max_size=8))
        inner[path[-1]] = odd
    facts = from_document(record, "read it")[0]
    found = diagnose(facts)
    assert found.exit_code in {0, 1, 3}
    print_devices(Report(io.StringIO()), facts)
    assert changes(configure(Wish(), Facts()), facts)
    assert [finding.check for finding in found.findings] == [check.name for check in CHECKS]


def test_what_the_devices_say_is_put_in_words() -> None:
    assert "threshold 0" in status.explain_command_status("0x80060000")
    assert "no engine" in status.explain_command_status("0x15")
    assert status.explain_command_status("0x80990000").endswith("0x80990000")
    assert not status.explain_command_status("0x0")
    assert not status.explain_command_status(None)
    assert not status.explain_command_status("nonsense")
    error = f"{0x1 | 0x8 | 0x13 << 8 | 2 << 16:#018x} 0x0 0x0 0x0"
    assert "max_transfer_size (WQ 2)" in status.explain_errors(error)
    assert not status.explain_errors("0x0 0x0 0x0 0x0")
    assert not status.explain_errors(None)


@pytest.mark.parametrize("command", ["doctor", "topo"])
def test_one_record_is_for_the_doctor_and_for_the_topology(
    here: Here, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "this.json"
    one = here("doctor")
    assert here(command, "--record", str(path)).code in {0, 1, 3}
    assert replay(path).nodes == topo().nodes
    other = here("doctor", "--replay", str(path))
    assert one.code == other.code
    assert one.stdout.splitlines()[0] == other.stdout.splitlines()[0]
    assert load_record(str(path))[0] == from_document(json.loads(path.read_text()), "read it")[0]
    assert not [each for each in tmp_path.iterdir() if each != path]


def test_here_the_answer_fits_the_machine(here: Here) -> None:
    facts = gather()
    result = here("doctor")
    if not facts.devices and facts.pci_devices == ():
        assert result.code == 3
        assert result.stdout.startswith("No DSA is in this machine: ")
    assert result.stdout.isascii()
    assert "\x1b" not in result.stdout


def test_the_json_has_the_facts_the_findings_and_the_verdict(here: Here) -> None:
    path = MACHINES / "pasid-off.json"
    result = here("doctor", "--json", "--replay", str(path))
    assert result.code == 1
    read = json.loads(result.stdout)
    assert read["schema"] == {"name": "headrace-doctor", "version": 1}
    assert read["machine"]["schema"]["name"] == "headrace-machine-record"
    assert read["summary"]["root_check"] == "pasid"
    assert read["summary"]["usable"] is False
    assert len(read["results"]["findings"]) == len(CHECKS)
    assert all(not isinstance(value, dict | list) for value in read["summary"].values())


def test_every_fact_survives_its_record(tmp_path: Path) -> None:
    for path in MACHINES.glob("*.json"):
        facts, origin = load_record(str(path))
        assert origin.startswith("Declared, not recorded: ")
        again = tmp_path / "again.json"
        again.write_text(json.dumps(to_document(facts, origin)))
        assert load_record(str(again)) == (facts, origin)
        assert to_document(facts, origin)["facts"]["kernel"] is not None


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("\x00\x01", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it has no schema"),
        ("7", "it has no schema"),
        ('{"schema": 1}', "it has no schema"),
        ('{"schema": {"name": "headrace-topo", "version": 1}}', "not 'headrace-machine-record'"),
        ('{"schema": {"name": "headrace-dsa-record", "version": 2}}', "field origin is absent"),
        (
            '{"schema": {"name": "headrace-machine-record", "version": 1}, "origin": "a"}',
            "field facts is absent",
        ),
    ],
)
def test_what_is_no_record_is_told_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(CorruptDataError, match=words) as caught:
        load_record(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "place, value, words",
    [
        (("platform", "cpu_flags"), "enqcmd", 'facts.platform.cpu_flags is "enqcmd" and should be'),
        (("platform", "emulated"), 1, "should be true or false"),
        (("devices",), {}, "field facts.devices is an object and should be a list"),
        (("devices", 0, "node"), True, "facts.devices\\[0\\].node is true and should be a whole"),
        (("devices", 0, "node"), 1 << 70, "should be a whole number"),
        (("devices", 0, "name"), None, "field facts.devices\\[0\\].name is absent"),
        (("devices", 0, "queues", 0, "size"), 1.5, "should be a whole number"),
        (("devices", 0, "queues"), [3], "should be an object"),
        (("kernel", "config"), {"INTEL_IDXD": 1}, "facts.kernel.config.INTEL_IDXD is 1"),
        (("kernel",), [], "should be an object"),
        (("kernel", "release"), "6.8\x1b[31m", "should be a text"),
    ],
)
def test_a_damaged_field_is_named(place: tuple[str | int, ...], value: object, words: str) -> None:
    record = document("healthy")
    inner: Any = record["facts"]
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    with pytest.raises(CorruptDataError, match=words):
        from_document(record, "read it")


@pytest.mark.parametrize("version", [0, 2, None, "1", True])
def test_a_record_of_another_version_is_refused(version: object) -> None:
    record = document("healthy")
    record["schema"]["version"] = version
    with pytest.raises(VersionMismatchError, match="and this build reads up to 1"):
        from_document(record, "read it")


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_of_the_doctor_alone_is_read_as_one_of_today(version: int) -> None:
    record = document("healthy")
    record["schema"] = {"name": "headrace-dsa-record", "version": version}
    if version == 1:
        record["facts"]["library"] = record["facts"].pop("accel_config")
    assert from_document(record, "read it") == from_document(document("healthy"), "read it")


def test_fields_of_a_later_build_are_left_out() -> None:
    record = document("healthy")
    record["facts"]["moon"] = {"phase": 1}
    record["facts"]["devices"][0]["mood"] = "good"
    assert diagnosis(record).exit_code == 0


def test_a_truncated_record_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = (MACHINES / "healthy.json").read_text()
    path = tmp_path / "record.json"
    for length in range(0, len(whole) - 2, 97):
        path.write_text(whole[:length])
        with pytest.raises(CorruptDataError):
            load_record(str(path))


def test_a_record_that_cannot_be_read_or_written_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        load_record(str(tmp_path / "none"))
    with pytest.raises(InvalidArgumentError, match="it is a directory"):
        load_record(str(tmp_path))


def test_the_command_says_it_in_its_first_line_and_by_its_exit_code(here: Here) -> None:
    result = here("doctor", "--replay", str(MACHINES / "iommu-off.json"))
    assert result.code == 1
    assert result.stdout.startswith("The DSA cannot be used (iommu): the IOMMU is turned off; ")
    assert not result.stderr


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--record", "a", "--replay", "b"], 2, "give one of them"),
        (["--record", ""], 2, "--record: '' is not a path"),
        (["--frobnicate"], 2, "No such option"),
        (["--replay", "none.json"], 1, "cannot read the record none.json: there is no such file"),
        (["--replay", __file__], 1, "it is not JSON"),
        (["--replay", "/dev/zero"], 2, "it is not a regular file"),
    ],
)
def test_wrong_use_and_wrong_records_are_one_sentence(
    here: Here, arguments: list[str], code: int, words: str
) -> None:
    result = here("doctor", *arguments)
    assert result.code == code
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


@pytest.fixture
def small_system(tmp_path: Path) -> Path:
    """A folder that looks like a system with one device, odd in many ways."""
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Test\nflags\t\t: fpu enqcmd movdir64b\n"
        "address sizes\t: 46 bits physical, 57 bits virtual\n\n",
        "proc/cmdline": "quiet intel_iommu=on,sm_on secret=1 module_blacklist=a,idxd",
        "proc/sys/kernel/osrelease": "6.8.0-test",
        "proc/self/status": "Name:\tx\nCapEff:\t0000000000020000\n",
        "boot/config-6.8.0-test": "CONFIG_INTEL_IDXD=m\n# CONFIG_INTEL_IDXD_SVM is not set\n",
        "etc/modprobe.d/odd.conf": "# blacklist idxd\nblacklist idxd\n",
        "lib/modules/6.8.0-test/modules.dep": "kernel/drivers/dma/idxd/idxd.ko.zst: a.ko\n",
        "sys/firmware/acpi/tables/DMAR": "",
        "sys/class/iommu/dmar0/intel-iommu/cap": "19ed008c40780c66",
        "sys/class/iommu/dmar0/intel-iommu/ecap": "3ef9e86f050df",
        "sys/bus/pci/devices/0000:6a:01.0/vendor": "0x8086",
        "sys/bus/pci/devices/0000:6a:01.0/device": "0x0b25",
        "sys/bus/pci/devices/0000:6a:01.0/numa_node": "0",
        "sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086",
        "sys/bus/dsa/devices/dsa0/state": "enabled",
        "sys/bus/dsa/devices/dsa0/numa_node": "elsewhere",
        "sys/bus/dsa/devices/dsa0/pasid_enabled": "1",
        "sys/bus/dsa/devices/dsa0/engine0.0/group_id": "0",
        "sys/bus/dsa/devices/dsa0/engine0.x/group_id": "0",
        "sys/bus/dsa/devices/dsa0/wq0.0/state": "enabled",
        "sys/bus/dsa/devices/dsa0/wq0.0/type": "user",
        "sys/bus/dsa/devices/dsa0/wq0.0/mode": "shared",
        "sys/bus/dsa/devices/dsa0/wq0.0/size": "16",
        "sys/bus/dsa/devices/dsa0/wq0.0/name": "red\x1b[31m",
        "sys/bus/dsa/devices/dsa0/wq0.1/state": "enabled",
        "sys/bus/dsa/devices/dsa0/wq0.1/type": "user",
        "sys/bus/dsa/devices/dsa0/wq0.1/mode": "dedicated",
        "sys/bus/dsa/devices/dsa0/wq0.1/clients": "1",
        "sys/bus/dsa/devices/iax1/state": "enabled",
        "sys/devices/system/node/node0/cpu0/online": "1",
        "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       64 kB\n",
        "sys/devices/system/node/node0/memory_side_cache/index1/size": "4096",
        "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: many kB\n",
        "sys/devices/system/cpu/cpu0/topology/physical_package_id": "3",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "4",
        "sys/module/idxd/refcnt": "0",
        "dev/dsa/wq0.0": "",
        "dev/dsa/wq0.1": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "sys/bus/pci/devices/0000:6a:01.0/driver").symlink_to("../drivers/idxd")
    return tmp_path


def test_a_system_is_read_and_what_is_odd_in_it_is_unknown(small_system: Path) -> None:
    facts = gather(str(small_system))
    assert facts.platform.cpu_flags == ("enqcmd", "movdir64b")
    assert facts.platform.emulated is False
    assert facts.platform.physical_address_bits == 46
    assert facts.memory_nodes == (
        MemoryNode("node0", 1, 3, 64 << 10, 4096),
        MemoryNode("node1", 0, None, None, 0),
    )
    kernel = facts.kernel
    assert kernel.parameters == ("intel_iommu=on,sm_on", "module_blacklist=a,idxd")
    assert kernel.config is not None
    assert (kernel.config["INTEL_IDXD"], kernel.config["INTEL_IDXD_SVM"]) == ("m", "n")
    assert kernel.module_blacklisted_by == (
        "/etc/modprobe.d/odd.conf",
        "the kernel's command line",
    )
    assert kernel.module_available is True
    assert kernel.iommu_capabilities == (("19ed008c40780c66", "3ef9e86f050df"),)
    assert facts.pci_devices is not None
    assert [(pci.address, pci.driver) for pci in facts.pci_devices] == [("0000:6a:01.0", "idxd")]
    assert facts.devices is not None
    (device,) = facts.devices
    assert device.node is None
    assert [engine.name for engine in device.engines or ()] == ["engine0.0"]
    queue, taken = device.queues or ()
    assert (queue.size, queue.threshold, queue.label) == (16, None, "red?[31m")
    assert queue.file is not None
    assert queue.file.writable is True
    # An empty file has no portal.
    assert (queue.file.opened, queue.file.mapped) == ("", "ENODEV")
    # It is another's: opening it would take it, if only for a moment.
    assert taken.file is not None
    assert (taken.file.opened, taken.file.mapped) == (None, None)
    assert facts.process.raw_io is True
    diagnose(facts)


def test_a_system_without_anything_gives_no_facts_and_no_error(tmp_path: Path) -> None:
    facts = gather(str(tmp_path))
    assert facts.pci_devices is None
    assert facts.devices is None
    assert facts.kernel.release is None
    assert facts.kernel.module_loaded is None
    assert diagnose(facts).exit_code == 1


def tables_of_causes() -> list[str]:
    """The tables of the guide, one for each check: every broken machine, and what tells something.

    Three columns: with more they are wider than a page.
    """
    rows: dict[str, list[str]] = {}
    fine = {"healthy", "emulated", "xeon-max-flat"}
    telling = [(row[0], row[1]) for row in USABLE if row[0] not in fine]
    for name, check in [(row[0], row[1]) for row in BROKEN] + telling:
        found = diagnosis(document(name)).finding(check)
        cells = (f"{found.finding} (`{name}`)", found.cause, found.remedy)
        row = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        rows.setdefault(check, []).append(row)
    head = ["", "| finding | cause | remedy |", "| --- | --- | --- |"]
    return [line for check, lines in rows.items() for line in (f"### {check}", *head, *lines, "")]


def test_the_guide_has_every_cause_and_remedy() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "doctor.md").read_text()
    tables = page.partition("<!-- tables: ")[2].partition("-->\n")[2].partition("<!-- end")[0]
    assert tables.strip().splitlines() == tables_of_causes()[:-1]
