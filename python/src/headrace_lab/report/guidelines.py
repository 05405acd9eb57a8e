# SPDX-License-Identifier: Apache-2.0
"""The guidelines of papers, and whether they hold on this machine.

Verdicts use measured figures only. Figures of emulated devices are shown, but not judged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from headrace_lab.families.measure import UNITS, Outcome, Shown, value_text

HOLDS, BROKEN, UNKNOWN, EMULATED = "holds", "does not hold", "cannot be told", "not judged"
_SAME = 0.1
"""Rates that differ by less are the same."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a guideline holds here.

    Attributes:
        state: One of `HOLDS`, `BROKEN`, `UNKNOWN` and `EMULATED`.
        reason: The figures behind it, or why there are none.
    """

    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Guideline:
    """A guideline and its verdict.

    Attributes:
        name: Short name, for tables.
        source: Its publication.
        text: The advice.
        figure: The figure of the report behind the verdict.
        verdict: Whether it holds here.
    """

    name: str
    source: str
    text: str
    figure: str
    verdict: Verdict

    def document(self) -> dict[str, object]:
        """Convert to JSON fields."""
        return {
            "name": self.name,
            "source": self.source,
            "text": self.text,
            "figure": self.figure,
            "verdict": self.verdict.state,
            "reason": self.verdict.reason,
        }


@dataclass(frozen=True, slots=True)
class Value:
    """A measured figure."""

    label: str
    median: float
    metric: str
    emulated: bool

    @classmethod
    def of(cls, shown: Shown) -> Self:
        """Convert a figure."""
        place = shown.place
        return cls(f"{shown.line}, {place.x}", shown.figure.median, place.metric, shown.emulated)

    @property
    def text(self) -> str:
        """Format for display."""
        return f"{self.label}: {value_text(self.median, self.metric)} {UNITS[self.metric]}"


class Measured:
    """Figures of all families, found by line and place."""

    def __init__(self, outcomes: Mapping[str, Outcome], *, no_queue: str, has_tiers: bool) -> None:
        """Keep the measured figures.

        Args:
            outcomes: Outcomes by family.
            no_queue: Why there is no device; empty if there is one.
            has_tiers: Whether the machine has memory faster than that of its processors' nodes.
        """
        self.outcomes = outcomes
        self.no_queue = no_queue
        self.has_tiers = has_tiers

    def find(self, family: str, line: str, x: str = "", metric: str = "gb_per_s") -> Value | None:
        """Return the first figure at `x` whose line contains the words."""
        outcome = self.outcomes.get(family)
        for each in outcome.shown if outcome else ():
            place = each.place
            if line in place.line and x in ("", place.x) and place.metric == metric:
                return Value.of(each)
        return None

    def last(self, family: str, line: str) -> Value | None:
        """Return the last figure of a line on the axis."""
        outcome = self.outcomes.get(family)
        xs = [
            each.place.x for each in (outcome.shown if outcome else ()) if line in each.place.line
        ]
        return self.find(family, line, xs[-1]) if xs else None

    def why_not(self, family: str) -> str:
        """Say why a family lacks figures."""
        if self.no_queue and family not in _WITHOUT_DEVICES:
            return "there is no work queue"
        outcome = self.outcomes.get(family)
        if outcome is None or not outcome.left_out:
            return "it was not measured"
        # The remedy after the semicolon repeats what the guideline needs.
        return outcome.left_out[0].why.partition(";")[0]


_WITHOUT_DEVICES = ("interleaving", "dax", "rings", "injection", "copies")
Judge = Callable[[Measured], Verdict]


def _ratio(
    family: str,
    first: tuple[str, str],
    second: tuple[str, str],
    least: float,
    most: float = float("inf"),
    metric: str = "gb_per_s",
) -> Judge:
    """Make a judge: holds if the first figure over the second is within the bounds."""

    def judge(measured: Measured) -> Verdict:
        one = measured.find(family, *first, metric)
        other = measured.find(family, *second, metric)
        if one is None or other is None:
            return Verdict(UNKNOWN, measured.why_not(family))
        return _judged(one, other, least, most)

    return judge


def _judged(one: Value, other: Value, least: float, most: float = float("inf")) -> Verdict:
    ratio = one.median / other.median if other.median else float("inf")
    reason = f"{one.text}; {other.text}; ratio {ratio:.2f}"
    if one.emulated or other.emulated:
        return Verdict(EMULATED, f"the device is emulated; {reason}")
    return Verdict(HOLDS if least <= ratio <= most else BROKEN, reason)


def _most_over_one(family: str, line: str, least: float, first: str = "1") -> Judge:
    """Make a judge by the last figure of a line over its first."""

    def judge(measured: Measured) -> Verdict:
        one, last = measured.find(family, line, first), measured.last(family, line)
        if one is None or last is None or last.label == one.label:
            return Verdict(UNKNOWN, measured.why_not(family))
        return _judged(last, one, least)

    return judge


def _ceiling(measured: Measured) -> Verdict:
    found = measured.find("submission", "in flight", "1 MiB")
    if found is None:
        return Verdict(UNKNOWN, measured.why_not("submission"))
    if found.emulated:
        return Verdict(EMULATED, f"the device is emulated; {found.text}")
    limit = 32.2 * (1 + _SAME)
    return Verdict(HOLDS if found.median <= limit else BROKEN, f"{found.text}; 30 GiB/s is 32.2")


def _tiers(measured: Measured) -> Verdict:
    if not measured.has_tiers:
        return Verdict(UNKNOWN, "no memory here is faster than that beside the processors")
    outcome = measured.outcomes.get("movement")
    for each in outcome.shown if outcome else ():
        if "smart" in each.place.line and "processors" not in each.place.line:
            processors = measured.find("movement", " processor", each.place.x)
            if processors is not None:
                return _judged(Value.of(each), processors, 1.0)
    return Verdict(UNKNOWN, measured.why_not("movement"))


def _remote(measured: Measured) -> Verdict:
    """Judge by copies to the source's node and to the last other node of its kind."""
    outcome = measured.outcomes.get("movement")
    shown = [
        each for each in (outcome.shown if outcome else ()) if each.place.line == "brute force"
    ]
    # The first panel is of the node with processors.
    found = [
        (each.place.x.partition("(")[2], Value.of(each))
        for each in shown
        if each.place.panel == shown[0].place.panel
    ]
    alike = [value for kind, value in found if kind == found[0][0]]
    if len(alike) > 1:
        return _judged(alike[-1], alike[0], 1 - 2 * _SAME)
    return Verdict(UNKNOWN, measured.why_not("movement"))


def _dax(measured: Measured) -> Verdict:
    outcome = measured.outcomes.get("dax")
    pinned = [each for each in (outcome.shown if outcome else ()) if ", pinned" in each.place.line]
    of_kind = {"without DAX" in each.place.line: Value.of(each) for each in reversed(pinned)}
    if len(of_kind) > 1:
        return _judged(of_kind[False], of_kind[True], 1 + _SAME)
    return Verdict(UNKNOWN, "one of them is measured" if of_kind else measured.why_not("dax"))


def _injection(measured: Measured) -> Verdict:
    found = _gains(measured)
    if not found:
        return Verdict(UNKNOWN, measured.why_not("injection"))
    best = max(found, key=lambda each: each.median)
    return Verdict(HOLDS if best.median >= _SAME / 2 else BROKEN, f"the most is {best.text}")


def _injected_too_much(measured: Measured) -> Verdict:
    found = _gains(measured)
    if not found:
        return Verdict(UNKNOWN, measured.why_not("injection"))
    best, last = max(found, key=lambda each: each.median), found[-1]
    falls = last.median <= best.median / 2
    return Verdict(HOLDS if falls else BROKEN, f"the most is {best.text}; {last.text}")


def _gains(measured: Measured) -> list[Value]:
    """By message size, with the smallest working set."""
    outcome = measured.outcomes.get("injection")
    shown = outcome.shown if outcome else ()
    return [Value.of(each) for each in shown if each.place.line == shown[0].place.line]


def _tuned(measured: Measured) -> Verdict:
    outcome = measured.outcomes.get("copies")
    found = [Value.of(each) for each in (outcome.shown if outcome else ())]
    if not found:
        return Verdict(UNKNOWN, measured.why_not("copies"))
    best = max(found, key=lambda each: each.median)
    return Verdict(HOLDS if best.median >= 1 + _SAME else BROKEN, f"the most is {best.text}")


def _per_length(measured: Measured) -> Verdict:
    outcome = measured.outcomes.get("copies")
    variants = {each.place.line for each in (outcome.shown if outcome else ())}
    if not variants:
        return Verdict(UNKNOWN, measured.why_not("copies"))
    reason = f"the profile has {len(variants)} variants that beat memmove at some length"
    return Verdict(HOLDS if len(variants) > 1 else BROKEN, reason)


_THESIS = "Fürst: prefetching into HBM by DSA"
_KUPER = "Kuper et al.: guidelines for DSA"
_LIGHTDSA = "LightDSA: measurements of DSA"
_BALCER = "Balcer: guidelines for persistent memory"
_LEON = "León: cache injection"
_ASTEROPE = "Kappes and Anastasiadis: Asterope"

_QUEUE = "a work queue of a DSA"
_PERSISTENT = "persistent memory that is mounted with DAX"

# Name, source, advice, figure, what is needed to judge it, judge.
_GUIDELINES: tuple[tuple[str, str, str, str, str, Judge], ...] = (
    (
        "from 1 MiB on any submission",
        _THESIS,
        "From 1 MiB on it does not matter whether copies are batched.",
        "submission",
        _QUEUE,
        _ratio("submission", ("batches", "1 MiB"), ("waited for", "1 MiB"), 1 - _SAME, 1 + _SAME),
    ),
    (
        "batch small copies",
        _THESIS,
        "Below 1 MiB submit several copies as a batch.",
        "submission",
        _QUEUE,
        _ratio("submission", ("batches", "4 KiB"), ("waited for", "4 KiB"), 1 + _SAME),
    ),
    (
        "one device has a ceiling",
        _THESIS,
        "One device moves no more than about 30 GiB/s: for more, use several.",
        "submission",
        _QUEUE,
        _ceiling,
    ),
    (
        "threads may share a queue",
        _THESIS,
        "Several threads on one shared queue lose nothing.",
        "threads",
        "two processors and a shared work queue of a DSA",
        _most_over_one("threads", "shared queue, 1 MiB", 1 - _SAME),
    ),
    (
        "split large copies over devices",
        _THESIS,
        "A copy that is split over several devices is faster.",
        "devices",
        "two DSAs, each with a work queue",
        _most_over_one("devices", "1 MiB", 1 + _SAME),
    ),
    (
        "choose devices by place",
        _THESIS,
        "Devices of source and target alone are nearly as fast as all of them.",
        "movement",
        "two DSAs, each with a work queue",
        _ratio("movement", ("smart", ""), ("brute force", ""), 0.75),
    ),
    (
        "processors are the fallback",
        _THESIS,
        "One processor copies large blocks slower than one device.",
        "submission",
        _QUEUE,
        _ratio("submission", ("in flight", "1 MiB"), ("one processor", "1 MiB"), 1 + _SAME),
    ),
    (
        "touch memory before",
        _THESIS,
        "Write target memory before a device does: its page faults cost more.",
        "faults",
        _QUEUE,
        _ratio("faults", ("device", "none"), ("device", "touch_and_resubmit"), 1 + _SAME),
    ),
    (
        "do not block on faults",
        _LIGHTDSA,
        "An engine that waits for pages holds up everything: touch and resubmit instead.",
        "faults",
        "a work queue of a DSA with block_on_fault ('headrace dsa configure --block-on-fault on')",
        _ratio("faults", ("device", "touch_and_resubmit"), ("device", "block"), 1 + _SAME),
    ),
    (
        "G1 balance batch and size",
        _KUPER,
        "Few large copies beat many small ones: batch small ones, and not large ones.",
        "batches",
        _QUEUE,
        _ratio("queues", ("256 B", "32"), ("256 B", "1"), 1 + _SAME),
    ),
    (
        "G2 go asynchronous",
        _KUPER,
        "Keep several copies in flight.",
        "submission",
        _QUEUE,
        _ratio("submission", ("in flight", "4 KiB"), ("waited for", "4 KiB"), 1 + _SAME),
    ),
    (
        "G3 choose the destination",
        _KUPER,
        "Write what is read soon into the cache.",
        "destination-reading",
        _QUEUE,
        _ratio(
            "destination",
            ("to memory", "64 KiB"),
            ("to the cache", "64 KiB"),
            1 + _SAME,
            metric="read_ns_per_line",
        ),
    ),
    (
        "G4 between kinds of memory",
        _KUPER,
        "Let devices move data between kinds of memory.",
        "movement",
        "a node of HBM or CXL memory beside DDR, and a work queue of a DSA",
        _tiers,
    ),
    (
        "G5 use several engines",
        _KUPER,
        "Give groups of small transfers several engines.",
        "device-engines",
        "groups of one and of several engines, each with a work queue of a DSA",
        _most_over_one("device-engines", "1 KiB", 1 + _SAME),
    ),
    (
        "G6 configure queues",
        _KUPER,
        "Give queues enough entries: rates rise with those in use.",
        "queue-entries",
        "a work queue of a DSA with 33 or more entries",
        _ratio("queues", ("4 KiB", "32"), ("4 KiB", "1"), 1 + _SAME),
    ),
    (
        "offload from some KiB on",
        _KUPER,
        "A copy that is waited for is faster by a device from some KiB on.",
        "submission-time",
        _QUEUE,
        _ratio(
            "submission",
            ("one processor", "64 KiB"),
            ("waited for", "64 KiB"),
            1.0,
            metric="time_us",
        ),
    ),
    (
        "leaky DMA",
        _KUPER,
        "Four devices that write 1 MiB at a time are slower than with 64 KiB.",
        "leaky-dma",
        "four DSAs, each with a work queue",
        _ratio("devices", ("64 KiB", "4"), ("1 MiB", "4"), 1 + _SAME),
    ),
    (
        "pages hardly matter",
        _KUPER,
        "Pages of 2 MiB are about as fast as those of 4 KiB.",
        "pages",
        "a work queue of a DSA and huge pages of 2 MiB",
        _ratio("pages", ("device, 64 KiB", "2 MiB"), ("device, 64 KiB", "4 KiB"), 0.9, 1.1),
    ),
    (
        "devices spare the cache",
        _KUPER,
        "A working set suffers less beside a device than beside a processor.",
        "pollution",
        "two processors and a work queue of a DSA",
        _ratio(
            "pollution", ("by a device", ""), ("by a processor", ""), 1.0, metric="beside_gb_per_s"
        ),
    ),
    (
        "devices save cycles",
        _KUPER,
        "A copy by a device takes less processor time.",
        "processor-time",
        _QUEUE,
        _ratio(
            "cycles",
            ("one processor", "1 MiB"),
            ("device, umwait", "1 MiB"),
            1 + _SAME,
            metric="processor_ns",
        ),
    ),
    (
        "remote memory is no slower",
        _KUPER,
        "Large copies to another node of the same kind are about as fast.",
        "movement",
        "two nodes of the same kind of memory and a work queue of a DSA",
        _remote,
    ),
    (
        "flush without waiting",
        _BALCER,
        "Use CLFLUSHOPT or CLWB, not CLFLUSH.",
        "rings",
        "libpmem2, with which 'headrace bench pmem' is built",
        _ratio("rings", ("clflushopt", "4 KiB"), ("naive", "4 KiB"), 1 + _SAME),
    ),
    (
        "write blocks of 256 bytes",
        _BALCER,
        "Write whole blocks of 256 bytes.",
        "interleaving",
        _PERSISTENT,
        _ratio("interleaving", ("", "4 KiB"), ("", "256 B"), 1 - _SAME, 1 + 5 * _SAME),
    ),
    (
        "stream past the cache",
        _BALCER,
        "Use non-temporal stores for what is not read soon.",
        "rings",
        "libpmem2, with which 'headrace bench pmem' is built",
        _ratio("rings", ("optimised", "4 KiB"), ("clwb", "4 KiB"), 1 + _SAME),
    ),
    (
        "mount with DAX",
        _BALCER,
        "Map persistent memory from a file system that is mounted with DAX.",
        "ring",
        "the same memory mounted with DAX and without: 'headrace bench dax --directory' on each",
        _dax,
    ),
    (
        "spread over DIMMs",
        _BALCER,
        "Entries as large as the interleaving use all DIMMs.",
        "interleaving",
        _PERSISTENT,
        _ratio("interleaving", ("", "4 KiB"), ("", "2 KiB"), 1 + _SAME),
    ),
    (
        "pin threads",
        _BALCER,
        "Run on the node of the memory.",
        "interleaving",
        _PERSISTENT,
        _ratio("dax", (", pinned", ""), ("not pinned", ""), 1.0),
    ),
    (
        "keep a checksum, spare a fence",
        _BALCER,
        "An entry with a checksum is durable by one fence.",
        "rings",
        "libpmem2, with which 'headrace bench pmem' is built",
        # Both on libpmem2's primitives; Balcer's makes positions durable, ours writes a checksum.
        _ratio("rings", ("libpmem_staged", "256 B"), ("libpmem_balcer", "256 B"), 1 + _SAME),
    ),
    (
        "inject messages into the cache",
        _LEON,
        "Let the NIC write messages into the cache of the core that computes on them.",
        "injection",
        "two processors",
        _injection,
    ),
    (
        "inject no more than fits",
        _LEON,
        "Injecting too much pushes the working set out: the gain falls for large messages.",
        "injection",
        "two processors",
        _injected_too_much,
    ),
    (
        "tune copies to the machine",
        _ASTEROPE,
        "A copy whose instructions and prefetches are searched for on the machine beats memmove.",
        "copies",
        "a profile of 'headrace tune'",
        _tuned,
    ),
    (
        "choose the copy by length",
        _ASTEROPE,
        "No copy is the fastest at all lengths: choose one for each.",
        "copies",
        "a profile of 'headrace tune'",
        _per_length,
    ),
)


def guidelines_of(measured: Measured) -> list[Guideline]:
    """Judge all guidelines; unknown ones name what is needed to judge them."""
    found = []
    for name, source, text, figure, need, judge in _GUIDELINES:
        verdict = judge(measured)
        if verdict.state == UNKNOWN:
            verdict = Verdict(UNKNOWN, f"Needs {need}. Here: {verdict.reason}")
        found.append(Guideline(name, source, text, figure, verdict))
    return found
