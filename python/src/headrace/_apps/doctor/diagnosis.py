# SPDX-License-Identifier: Apache-2.0
"""The diagnosis: all checks in dependency order, and the root cause.

The root cause is the first check that failed; checks that depend on it are skipped and name it.
Unknown never counts as success: the verdict is "usable" only if a WQ accepted the trial.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace._apps.doctor import checks_device as device
from headrace._apps.doctor import checks_memory as memory
from headrace._apps.doctor import checks_platform as platform
from headrace._apps.doctor.finding import Finding, State
from headrace._facts import Facts
from headrace._words import counted

EXIT_USABLE = 0
EXIT_WRONG = 1
EXIT_ABSENT = 3


@dataclass(frozen=True, slots=True)
class Check:
    """A check and its dependencies: if one failed, it is skipped.

    With `of_what_is_on` it tests only enabled WQs: it runs although one of `_OF_PARTS` failed.
    """

    name: str
    function: Callable[[Facts], Finding]
    needs: tuple[str, ...] = ()
    of_what_is_on: bool = False


CHECKS = (
    Check("device", platform.check_device),
    Check("cpu", platform.check_cpu, ("device",)),
    Check("kernel", platform.check_kernel, ("device",)),
    Check("kernel config", platform.check_kernel_config, ("device", "kernel")),
    Check("firmware", platform.check_firmware, ("device",)),
    Check("iommu", platform.check_iommu, ("device", "firmware", "kernel config")),
    Check("module", platform.check_module, ("device", "kernel", "kernel config")),
    Check("driver", platform.check_driver, ("module",)),
    Check("pasid", device.check_pasid, ("driver", "iommu")),
    Check("library", device.check_library),
    Check("errors", device.check_errors, ("driver",)),
    Check("configured", device.check_configured, ("driver",)),
    Check("groups", device.check_groups, ("configured",)),
    Check("settings", device.check_settings, ("configured",)),
    Check(
        "enabled",
        device.check_enabled,
        ("errors", "configured", "groups", "settings", "pasid"),
    ),
    Check("permissions", device.check_permissions, ("enabled",), of_what_is_on=True),
    Check("submission", device.check_submission, ("cpu", "permissions"), of_what_is_on=True),
    Check("modes", device.check_modes, ("configured",)),
    Check("limits", device.check_limits, ("configured",)),
    Check("page faults", device.check_page_faults, ("configured",)),
    Check("numa", device.check_numa, ("configured",)),
    Check("hbm", memory.check_hbm),
    Check("clustering", memory.check_clustering),
    Check("address width", memory.check_address_width),
    Check("huge pages", device.check_huge_pages),
    Check("surroundings", device.check_surroundings),
)

# These may fail for one device or WQ while others work.
_OF_PARTS = ("driver", "pasid", "errors", "groups", "settings", "enabled")

# Emulated devices need none of these.
_OF_HARDWARE = (
    *("device", "cpu", "kernel", "kernel config", "firmware", "iommu"),
    *("hbm", "clustering", "address width", "huge pages"),
)

# Checks that must pass before the DSA is called usable.
_DECISIVE = ("device", "cpu", "driver", "library", "enabled", "permissions", "submission")
_SEEN: tuple[State, ...] = ("ok", "note")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of all checks.

    Threading: immutable.

    Attributes:
        findings: One for each of `CHECKS`, in their order.
        root: The root cause: the first failed finding, else the first decisive one that is
            unknown; None if the DSA can be used.
        exit_code: 0 usable, 1 a check failed or is unknown, 3 no DSA.
    """

    findings: tuple[Finding, ...]
    root: Finding | None
    exit_code: int
    headline: str

    def finding(self, check: str) -> Finding:
        return next(finding for finding in self.findings if finding.check == check)


def diagnose(facts: Facts) -> Diagnosis:
    """Run all checks on the facts; a pure function."""
    done: dict[str, Finding] = {}
    for check in CHECKS:
        blocker = _blocker(check, done, facts)
        if blocker is not None:
            finding = Finding("skipped", f"follows from '{blocker}'")
        elif facts.platform.emulated and check.name in _OF_HARDWARE:
            finding = platform.NOT_NEEDED
        else:
            finding = check.function(facts)
        done[check.name] = replace(finding, check=check.name)
    findings = tuple(done.values())
    root = next((finding for finding in findings if finding.state == "failed"), None)
    if root is not None:
        if root.check == "device":
            headline = f"No DSA is in this machine: {root.cause}."
            return Diagnosis(findings, root, EXIT_ABSENT, headline)
        headline = f"{_what_fails(root, facts)} ({root.check}): {root.finding}; {root.cause}."
        return Diagnosis(findings, root, EXIT_WRONG, headline)
    root = next((done[name] for name in _DECISIVE if done[name].state not in _SEEN), None)
    if root is not None:
        headline = f"Unknown whether the DSA can be used ({root.check}): {root.finding}."
        return Diagnosis(findings, root, EXIT_WRONG, headline)
    return Diagnosis(findings, None, EXIT_USABLE, f"The DSA can be used {_how(facts)}.")


def _blocker(check: Check, done: dict[str, Finding], facts: Facts) -> str | None:
    """The first failed check that this one depends on, directly or not; None if all passed."""
    names = []
    for needed in check.needs:
        if done[needed].state == "failed":
            names.append(needed)
        elif done[needed].state == "skipped":
            names.append(done[needed].finding.split("'")[1])
    if check.of_what_is_on and device.queues_on(facts):
        names = [name for name in names if name not in _OF_PARTS]
    order = list(done)
    return min(names, key=order.index, default=None)


def _what_fails(root: Finding, facts: Facts) -> str:
    pairs = device.user_queues(facts)
    if root.check in (*_OF_PARTS, "permissions") and any(
        device.way_in(each, queue) for each, queue in pairs
    ):
        return "Only part of the DSA can be used"
    return "The DSA cannot be used"


def _how(facts: Facts) -> str:
    pairs = device.user_queues(facts)
    ways = [way for each, queue in pairs if (way := device.way_in(each, queue))]
    way = "portal" if "portal" in ways else "write"
    through = "through the portal" if way == "portal" else "by write(), for mmap() is not allowed"
    count = len(ways)
    names = {each.name for each, queue in pairs if device.way_in(each, queue)}
    return f"{through}: {counted(count, 'WQ')} of {counted(len(names), 'device')}"
