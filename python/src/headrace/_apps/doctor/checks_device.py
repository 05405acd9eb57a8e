# SPDX-License-Identifier: Apache-2.0
"""Checks of devices, groups, WQs and device files as the driver shows them, and access to them.

Pure functions of the facts.
"""

from collections.abc import Iterator

from headrace._apps.doctor.checks_platform import five_levels_refused
from headrace._apps.doctor.finding import Finding, are, failed, have, listed, note, ok, unknown
from headrace._apps.dsa.status import explain_command_status, explain_errors
from headrace._facts import CharacterDevice, Device, Facts, Queue
from headrace._words import byte_count_text, counted

_CONFIGURE = "run what 'headrace dsa configure --preset shared --output dsa.json' prints"


def queues_of(facts: Facts) -> Iterator[tuple[Device, Queue]]:
    """Every WQ that has entries, is enabled, or is a user WQ of unknown size; with its device."""
    for device in facts.devices or ():
        for queue in device.queues or ():
            possible = queue.size is None and queue.type == "user"
            if queue.size or queue.state == "enabled" or possible:
                yield device, queue


def user_queues(facts: Facts) -> list[tuple[Device, Queue]]:
    """Those of `queues_of` of type user or unknown."""
    return [(device, queue) for device, queue in queues_of(facts) if queue.type in {"user", None}]


def queues_on(facts: Facts) -> list[tuple[Device, Queue]]:
    """Those of `user_queues` that are enabled on an enabled device."""
    return [
        (device, queue)
        for device, queue in user_queues(facts)
        if device.state == queue.state == "enabled"
    ]


def _unseen(facts: Facts) -> bool:
    """Whether no user WQ is visible, or some may be hidden."""
    devices = facts.devices
    return not devices or any(d.queues is None for d in devices) or not user_queues(facts)


_UNSEEN = unknown("the driver's devices and their WQs cannot be seen")


def _file(queue: Queue) -> CharacterDevice:
    return queue.file or CharacterDevice(f"/dev/dsa/{queue.name}")


def is_in_use(queue: Queue) -> bool:
    """Whether a dedicated WQ already has its one client."""
    return queue.mode == "dedicated" and (bool(queue.clients) or _file(queue).opened == "EBUSY")


def way_in(device: Device, queue: Queue) -> str | None:
    """How this process submits to a WQ: "portal", "write", None if it cannot or is unknown."""
    file = _file(queue)
    if device.state != "enabled" or queue.state != "enabled" or queue.type != "user":
        return None
    if file.opened != "":
        return None
    return {"": "portal", "EPERM": "write"}.get(file.mapped if file.mapped is not None else "?")


def check_pasid(facts: Facts) -> Finding:
    """Do the devices use the processes' addresses (PASID, SVA)?"""
    devices = facts.devices
    if not devices:
        return _UNSEEN
    without = [device.name for device in devices if device.pasid_enabled == 0]
    if not without:
        unseen = [device.name for device in devices if device.pasid_enabled is None]
        if unseen:
            return unknown(f"{listed(unseen)}: the attribute pasid_enabled cannot be read")
        return ok(f"on for {listed([device.name for device in devices])}")
    finding = f"PASID is off for {listed(without)}"
    if five_levels_refused(facts):
        return failed(
            finding,
            "the kernel uses five levels of page tables and this IOMMU walks four",
            "add no5lvl to the kernel's command line and boot again",
        )
    return failed(
        finding,
        "the IOMMU is in scalable mode and yet the driver could not share addresses: ATS, PRS or "
        "PASID of the device is off, or the driver was loaded before the IOMMU was ready",
        "enable PCIe ATS and PASID (ENQCMD) in the BIOS, reload idxd, look at 'dmesg | grep -e "
        "idxd -e DMAR'",
    )


def check_library(facts: Facts) -> Finding:
    """Is libaccel-config installed, with which programs find the WQs?"""
    package = facts.accel_config
    if package.found is None:
        return unknown("whether libaccel-config.so.1 can be loaded is not known")
    if not package.found:
        return failed(
            "the loader does not find libaccel-config.so.1",
            "programs find WQs by it; without it they see none and often say only 'error'",
            "install it (Debian, Ubuntu: libaccel-config1; RHEL: accel-config-libs)",
        )
    version = package.version or "of unknown version"
    if package.program == "":
        return note(
            f"libaccel-config {version}, without the program accel-config",
            "devices cannot be configured from here",
            "install the package accel-config",
        )
    if version[:1] in {"1", "2", "3"}:
        return ok(
            f"libaccel-config {version}",
            "before 4.0 it does not know config-user-default, op_config and prs_disable",
        )
    return ok(f"libaccel-config {version}")


def check_errors(facts: Facts) -> Finding:
    """Have the devices recorded errors?"""
    devices = facts.devices
    if not devices:
        return _UNSEEN
    halted = [device.name for device in devices if device.state == "halted"]
    if halted:
        return failed(
            f"{are(halted)} halted",
            "the device had an error from which it cannot recover",
            "stop its clients; 'rmmod idxd; modprobe idxd' resets it; look at 'dmesg | grep idxd'",
        )
    noted = [f"{d.name}: {said}" for d in devices if (said := explain_errors(d.errors))]
    if noted:
        return note(
            listed(noted),
            "the device keeps its first error until it is reset; later ones are not shown",
            "fix the program that sent it",
        )
    if any(device.errors is None or device.state is None for device in devices):
        return unknown("the attribute errors or state cannot be read")
    return ok("none")


def check_configured(facts: Facts) -> Finding:
    """Is there a WQ for programs?"""
    devices = facts.devices
    if not devices:
        return _UNSEEN
    ours = [queue for _, queue in user_queues(facts) if queue.type == "user"]
    if ours:
        count = len(ours)
        idle = [d.name for d in devices if d.queues is not None and not _has_queue(d)]
        finding = f"{counted(count, 'WQ')} of type user"
        if idle:
            return note(
                f"{finding}; {have(idle)} none",
                "a device without a WQ for programs is left out",
                f"{_CONFIGURE}, to use it as well",
            )
        return ok(finding)
    unseen = [q.name for d in devices for q in d.queues or () if q.size is None or q.type is None]
    if unseen or any(device.queues is None for device in devices):
        return unknown("size or type of a WQ cannot be read")
    empty = [(d, q) for d in devices for q in d.queues or () if q.type == "user" and not q.size]
    if empty:
        name = f"{empty[0][0].name}/{empty[0][1].name}"
        return failed(
            f"{are([queue.name for _, queue in empty])} of type user and of size 0",
            "a WQ needs some of its device's entries",
            f"accel-config config-wq {name} --wq-size=16 (with the device disabled)",
        )
    if any(True for _ in queues_of(facts)):
        return failed(
            "no WQ is of type user",
            "all are the kernel's own (dmaengine) or have no type",
            _CONFIGURE,
        )
    return failed(
        "no WQ has entries",
        "a device comes without WQs: 'accel-config list' shows [ ] then, and -i shows the device",
        _CONFIGURE,
    )


def _has_queue(device: Device) -> bool:
    return any((q.size or q.state == "enabled") and q.type == "user" for q in device.queues or ())


def check_groups(facts: Facts) -> Finding:
    """Is every WQ in a group that has an engine?"""
    unseen = []
    for device, queue in user_queues(facts):
        if queue.group_id is None:
            unseen.append(queue.name)
        elif queue.group_id < 0:
            return failed(
                f"{queue.name} is in no group",
                "a WQ reaches engines only through its group",
                f"accel-config config-wq {device.name}/{queue.name} --group-id=0 (with the device "
                f"disabled), or {_CONFIGURE}",
            )
        elif device.engines is None or any(e.group_id is None for e in device.engines):
            unseen.append(queue.name)
        elif all(engine.group_id != queue.group_id for engine in device.engines):
            index = device.name.removeprefix("dsa")
            return failed(
                f"group{index}.{queue.group_id} of {queue.name} has no engine",
                "descriptors in this WQ are never executed",
                f"accel-config config-engine {device.name}/engine{index}.0 "
                f"--group-id={queue.group_id} (with the device disabled), or configure it again",
            )
    if _unseen(facts):
        return _UNSEEN
    if unseen:
        return unknown(f"group_id of {listed(unseen)} or of the engines cannot be read")
    return ok("every WQ reaches an engine")


def check_settings(facts: Facts) -> Finding:
    """Are the WQs set up so that the driver will enable them?"""
    unseen = []
    for device, queue in user_queues(facts):
        if queue.state == "enabled":
            continue  # The driver has accepted its settings.
        name = f"{device.name}/{queue.name}"
        if queue.mode == "shared" and queue.threshold == 0:
            return failed(
                f"{queue.name} is shared and has threshold 0",
                "the threshold is how many entries ENQCMD may fill; the driver refuses 0",
                f"accel-config config-wq {name} --threshold={queue.size or 1}",
            )
        if queue.label == "":
            return failed(
                f"{queue.name} has no name",
                "the driver enables no WQ without one",
                f"accel-config config-wq {name} --name=application",
            )
        if queue.driver_name is not None and queue.driver_name != "user":
            return failed(
                f"{queue.name} has driver_name '{queue.driver_name}'",
                "a WQ for programs is driven by 'user'; newer kernels take no other",
                f"accel-config config-wq {name} --driver-name=user",
            )
        if None in {queue.mode, queue.label, queue.size, queue.driver_name} or (
            queue.mode == "shared" and queue.threshold is None
        ):
            unseen.append(queue.name)
    if _unseen(facts):
        return _UNSEEN
    if unseen:
        return unknown(
            f"mode, name, driver_name, size or threshold of {listed(unseen)} cannot be read"
        )
    return ok("mode, name, driver_name, size and threshold are as the driver wants them")


def check_enabled(facts: Facts) -> Finding:
    """Are devices and WQs enabled?"""
    wanted = user_queues(facts)
    off = list(dict.fromkeys(d.name for d, _ in wanted if d.state not in {"enabled", None}))
    if off:
        return _not_enabled(
            facts, off, off[0], f"accel-config enable-device {off[0]}, then enable-wq"
        )
    queues = [(d, q) for d, q in wanted if q.state not in {"enabled", None}]
    if queues:
        device, queue = queues[0]
        if queue.state == "locked":
            return failed(
                f"{queue.name} is locked",
                "the kernel has passed the WQ on, such as to a virtual machine",
                "use another WQ",
            )
        names = [queue.name for _, queue in queues]
        remedy = f"accel-config enable-wq {device.name}/{queue.name}"
        return _not_enabled(facts, names, device.name, remedy)
    if _unseen(facts):
        return _UNSEEN
    if any(None in {d.state, q.state, q.type} for d, q in wanted):
        return unknown("the state of a device or WQ cannot be read")
    return ok(f"{listed([queue.name for _, queue in wanted])}")


def _not_enabled(facts: Facts, names: list[str], device_name: str, remedy: str) -> Finding:
    """A device or WQ is not enabled, perhaps because the device refused it."""
    finding = f"{are(names)} not enabled"
    device = next(each for each in facts.devices or () if each.name == device_name)
    refusal = explain_command_status(device.cmd_status)
    if refusal:
        cause = f"{device_name} refused the last command: {refusal}"
        return failed(finding, cause, f"configure it again: {_CONFIGURE}")
    return failed(finding, "configured, but not enabled", remedy)


def check_permissions(facts: Facts) -> Finding:
    """May this process open the WQs?"""
    files = [_file(queue) for _, queue in queues_on(facts) or user_queues(facts)]
    missing = [file.path for file in files if file.exists is False]
    if missing:
        if facts.platform.container:
            return failed(
                f"{are(missing)} not there",
                "the WQ is on and this container has not been given its file",
                f"start the container with it (docker: --device {missing[0]})",
            )
        return failed(
            f"{are(missing)} not there",
            "the WQ is on and nothing has made its file: udev or devtmpfs does not run",
            "check that /dev is a devtmpfs and that /sys/class has it; 'udevadm trigger' as root",
        )
    closed = [file for file in files if file.writable is False or file.opened == "EACCES"]
    usable = [file for file in files if file.writable]
    if closed:
        first = closed[0]
        rights = f"mode {first.mode or '?'}, {first.owner or '?'}:{first.group or '?'}"
        finding = f"{listed([file.path for file in closed])}: {rights}"
        cause = f"user {facts.process.user or '(unknown)'} may not read and write it"
        if usable:
            return note(finding, f"{cause}; {len(usable)} others are open to it")
        return failed(
            finding,
            cause,
            f"as root: setfacl -m u:{facts.process.user or 'USER'}:rw {first.path}; for good: a "
            'udev rule SUBSYSTEM=="dsa", GROUP="dsa", MODE="0660"',
        )
    if _unseen(facts):
        return _UNSEEN
    if any(file.exists is None or file.writable is None for file in files):
        return unknown("the files of /dev/dsa cannot be seen")
    return ok(f"{listed([file.path for file in files])} may be read and written")


_OPENING = {
    "EBUSY": (
        "a dedicated WQ takes one client and has one",
        "stop that client, or use a shared WQ",
    ),
    "EPERM": (
        "the device cgroup of a container, or a security module, forbids it",
        "allow the device there (docker: --device /dev/dsa/...)",
    ),
    "ENODEV": ("the device has gone or was disabled", "enable it again"),
    "ENXIO": ("the WQ is not enabled any more", "enable it again"),
    "EINVAL": (
        "the driver could not bind this process to the device (SVA)",
        "see the checks 'iommu' and 'pasid', and 'dmesg | grep -e idxd -e DMAR'",
    ),
    "ENOSPC": ("the system has no PASID left", "end other clients of accelerators"),
    "ENOMEM": ("the kernel has no memory for it", "free some"),
}


_WRITE_ONLY = "by write() only: mmap() of the portal gives EPERM"


def check_submission(facts: Facts) -> Finding:
    """Can this process submit to a WQ, and how?"""
    queues = queues_on(facts) or user_queues(facts)
    ways = [way for device, queue in queues if (way := way_in(device, queue))]
    if "portal" in ways:
        all_count = len(user_queues(facts))
        finding = f"through the portal of {ways.count('portal')} of {counted(all_count, 'WQ')}"
        return ok(finding)
    if ways and facts.process.raw_io:
        return note(
            _WRITE_ONLY,
            "kernels since CVE-2024-21823 ask for CAP_SYS_RAWIO in the first user namespace, and "
            "this process has it in another, such as that of a rootless container; write() of "
            "descriptors works, a system call each, and without batches on DSA 1.0",
            "for programs that map the portal only, such as Intel DML, run outside of it",
        )
    if ways:
        return note(
            _WRITE_ONLY,
            "kernels since CVE-2024-21823 let only CAP_SYS_RAWIO map the portal of this device; "
            "write() of descriptors works, a system call each, and without batches on DSA 1.0",
            "give the program CAP_SYS_RAWIO (setcap cap_sys_rawio+ep PROGRAM; docker: --cap-add "
            "SYS_RAWIO), for programs that map the portal only, such as Intel DML",
        )
    busy = [queue.name for _, queue in queues if is_in_use(queue)]
    if busy and len(busy) == len(queues):
        return failed(f"{are(busy)} in use", *_OPENING["EBUSY"])
    for _, queue in queues:
        file = _file(queue)
        if file.opened and file.opened != "EBUSY":
            fallback = (f"open() of {file.path} fails", "look at 'dmesg | grep idxd'")
            return failed(f"open() gives {file.opened}", *_OPENING.get(file.opened, fallback))
        if file.mapped and file.mapped != "EPERM":
            return failed(
                f"mmap() of the portal gives {file.mapped}",
                "the kernel refuses to map the portal",
                "look at 'dmesg | grep idxd'",
            )
    return unknown("no WQ could be opened to find out")


def check_modes(facts: Facts) -> Finding:
    """Do the modes of the WQs suit the usual clients?"""
    modes = {queue.mode for _, queue in user_queues(facts)}
    if None in modes or not modes:
        return unknown("the mode of a WQ cannot be read")
    if modes == {"dedicated"}:
        return note(
            "every WQ is dedicated",
            "each serves one process at a time, and Intel DML, QPL and DTO refuse them",
            "configure a shared WQ for these: headrace dsa configure --preset shared",
        )
    if modes == {"shared"}:
        return ok(
            "every WQ is shared",
            "any number of processes may use them; SPDK and DPDK want dedicated ones",
        )
    return ok("shared and dedicated")


def check_limits(facts: Facts) -> Finding:
    """Are the largest transfer and batch set to what programs expect?"""
    queues = [(d, q) for d, q in user_queues(facts) if q.type == "user"]
    if not queues or any(None in {q.max_transfer_size, q.max_batch_size} for _, q in queues):
        return unknown("max_transfer_size or max_batch_size of a WQ cannot be read")
    small = [
        queue.name
        for device, queue in queues
        if (device.max_transfer_size or 0) > (queue.max_transfer_size or 0)
    ]
    transfer = min(queue.max_transfer_size or 0 for _, queue in queues)
    batch = min(queue.max_batch_size or 0 for _, queue in queues)
    finding = (
        f"transfers up to {byte_count_text(transfer)}, batches up to {counted(batch, 'descriptor')}"
    )
    if small:
        return note(
            f"{finding} on {listed(small)}",
            "less than the device can; Headrace splits what is larger, Intel DML says only "
            "'internal error' then",
            "raise it with the device disabled: accel-config config-wq DEVICE/WQ "
            "--max-transfer-size=2147483648",
        )
    return ok(finding)


def check_page_faults(facts: Facts) -> Finding:
    """What happens where a page is not present?"""
    queues = [queue for _, queue in user_queues(facts)]
    if not queues or any(queue.block_on_fault is None for queue in queues):
        return unknown("block_on_fault of a WQ cannot be read")
    blocking = [queue.name for queue in queues if queue.block_on_fault]
    if not blocking:
        return ok(
            "block_on_fault is 0",
            "a descriptor that meets a page fault stops there, partly done; Headrace continues "
            "from there, and touching the pages first avoids it",
        )
    return ok(
        f"block_on_fault is 1 for {listed(blocking)}",
        "an engine waits for a page that is not present and holds up all behind it: about 14 us "
        "for each page, against 4 us by software; touching the pages first avoids it",
    )


def check_numa(facts: Facts) -> Finding:
    """Are the devices near this process?"""
    nodes = facts.process.nodes
    devices = list({d.name: d for d, _ in user_queues(facts)}.values())
    if not devices or nodes is None or any(device.node is None for device in devices):
        return unknown("the node of a device or of this process cannot be seen")
    nowhere = [device.name for device in devices if (device.node or 0) < 0]
    if nowhere:
        return note(
            f"numa_node of {listed(nowhere)} is -1",
            "the firmware does not say where the device is; Intel DML then never finds it",
            "update the BIOS; Headrace treats it as near to all nodes",
        )
    near = [device.name for device in devices if device.node in nodes]
    if not near:
        return note(
            f"this process runs on node {listed([str(node) for node in nodes])}, the devices are "
            f"on {listed(sorted({str(device.node) for device in devices}))}",
            "Headrace uses them from there; Intel DML takes only the caller's node and says "
            "'queue busy'",
            "configure a device of this node, or run the program on theirs (numactl -N)",
        )
    return ok(f"{are(near)} on a node of this process")


def check_huge_pages(facts: Facts) -> Finding:
    """Are there huge pages?"""
    pools = facts.huge_pages
    if pools is None or any(pool.total_count is None for pool in pools):
        return unknown("/sys/kernel/mm/hugepages cannot be read")
    there = [
        f"{pool.free_count if pool.free_count is not None else '?'} of {pool.total_count} of "
        f"{byte_count_text(pool.page_bytes)} free"
        for pool in pools
        if pool.total_count
    ]
    if there:
        return ok(", ".join(there))
    return note(
        "none reserved",
        "they save the device page faults and address translations, but are not required",
        "as root: sysctl vm.nr_hugepages=512, or use transparent ones (madvise)",
    )


def check_surroundings(facts: Facts) -> Finding:
    """Does this process run in a virtual machine or container?"""
    platform = facts.platform
    if platform.emulated:
        return ok("the devices are those of 'headrace emulate'")
    said = []
    if platform.hypervisor:
        said.append(f"a virtual machine ({platform.machine_vendor or 'of unknown kind'})")
    if platform.container:
        said.append(f"a container ({platform.container})")
    if said:
        return note(
            f"in {' and in '.join(said)}",
            "devices, IOMMU and files of /dev/dsa are only those that its host passes on",
        )
    if None in {platform.hypervisor, platform.container}:
        return unknown("whether this is a virtual machine or a container cannot be seen")
    return ok("no virtual machine or container detected")
