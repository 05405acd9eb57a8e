# SPDX-License-Identifier: Apache-2.0
"""Tunes copies for this machine, class by class, and makes the profile."""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import headrace
from headrace import _core
from headrace._apps.memory import available_bytes, pool_bytes_of, too_little
from headrace._apps.tune import search
from headrace._apps.tune.door import SHORT_BYTES_MAX, Door
from headrace._apps.tune.dsa import DsaFinding
from headrace._apps.tune.kernels import Kernels, documents_of
from headrace._files import STDOUT, Output, file_error
from headrace.errors import Error, OutOfMemoryError

BYTES_MIN = 64
DOOR_ROUNDS = 7
INLINE_BYTES_MAX = 256
BYTES_MAX = 1 << 30
TUNED_BYTES_MIN = 64
TUNED_BYTES_MAX = 64 << 20
SECONDS = 60.0
"""Default time of the search."""
PROBE_ROUNDS = 5
CONFIRM_PASSES, CONFIRM_ROUNDS, CONFIRM_ROUNDS_MIN = 4, 36, 8
CONFIRM_SECONDS = 35.0
CONFIRM_OTHERS_LONG = 2

_SCREENING_SHARE = 0.5
"""Share of the time of a class for screening; the rest is for the few best."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a search of `seconds` at most; its classes end at `bytes_min` to `bytes_max`."""

    seconds: float = SECONDS
    bytes_min: int = TUNED_BYTES_MIN
    bytes_max: int = TUNED_BYTES_MAX
    thread_count: int = 1
    seed: int = 1

    @property
    def classes(self) -> list[int]:
        """Ends of the classes, ascending: powers of two."""
        first = max(1, (self.bytes_min - 1).bit_length())
        return [1 << bits for bits in range(first, (self.bytes_max - 1).bit_length() + 1)]


@dataclass(slots=True)
class Tuning:
    """The results so far.

    Attributes:
        stopped: Whether it was stopped before all classes were finished.
        kernels: Choices for fills and comparisons; None if not measured.
        dsa: Result of sharing copies with DSA; None without a DSA, or if not measured.
        cold_probe: Least and most ticks of a load from memory, which detect cold bytes; None if
            they cannot be detected.
        wide_cost: How many times as long a single copy through 64-byte registers takes; None if
            there are none.
        others_share: Share of the processors that other processes used; None if not known.
    """

    choices: list[search.Choice] = field(default_factory=list)
    seconds: float = 0.0
    stopped: bool = False
    dsa: DsaFinding | None = None
    kernels: Kernels | None = None
    cold_probe: tuple[int, int] | None = None
    wide_cost: float | None = None
    others_share: float | None = None


OTHERS_SHARE_MAX = 0.05
"""Share of the processors that other processes may use without a warning."""


class OtherWork:
    """Observes what other processes use of the processors."""

    def __init__(self) -> None:
        self._begin = _processor_seconds()

    def share(self) -> float | None:
        """Share of the processors' time since then; None if it is not known."""
        now = _processor_seconds()
        if self._begin is None or now is None or now[2] <= self._begin[2]:
            return None
        busy, ours, every = (after - before for after, before in zip(now, self._begin, strict=True))
        return max(0.0, (busy - ours) / every)


def _processor_seconds() -> tuple[float, float, float] | None:
    """Of all processors in use, of this process with its children, and of all processors."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:9]
        ticks = [int(each) / os.sysconf("SC_CLK_TCK") for each in fields]
    except (OSError, ValueError):
        return None
    user, nice, system, idle, waiting, *rest = ticks
    busy = user + nice + system + sum(rest)
    return busy, sum(os.times()[:4]), busy + idle + waiting


class Tuner:
    def __init__(self, settings: Settings, check_stop: Callable[[], None]) -> None:
        self._probe: tuple[int, int] | None = None
        machine = json.loads(_core.empty_copy_profile())["machine"]
        l2_bytes = machine["l2_bytes"] or 1 << 20
        l3_bytes = machine["l3_bytes"] or 32 << 20
        last_level_bytes = min(l3_bytes // 4, 8 * l2_bytes)
        pool_bytes = pool_bytes_of(settings.bytes_max, l3_bytes, available_bytes())
        self._settings = settings
        self._check_stop = check_stop
        self._sizes = (pool_bytes, last_level_bytes)
        meter = self._make_meter(settings.seed)
        self._meter: _core.CopyMeter | None = meter
        self._probe = _middle_probe([meter.find_cold_probe() for _ in range(PROBE_ROUNDS)])
        if self._probe is not None:
            meter.use_cold_probe(*self._probe)
        costs = [meter.find_wide_cost() for _ in range(PROBE_ROUNDS)]
        self._wide_cost = statistics.median(map(float, filter(None, costs))) if all(costs) else None
        self._wide_handicap = search.wide_handicap(self._wide_cost)
        # Longer copies find little in the last-level cache, so there is nothing to probe for.
        self._paired_bytes_max = l3_bytes // 4
        # At least a few places on each side.
        self._last_level_bytes_max = last_level_bytes // 32
        self._threads_bytes_max = pool_bytes // settings.thread_count // 2 - (16 << 10)

    def run(self, tuning: Tuning, progress: Callable[[float], None]) -> None:
        """Search every class, updating `tuning` continuously."""
        begin = time.monotonic()
        tuning.cold_probe = self._probe
        tuning.wide_cost = self._wide_cost
        classes = self._settings.classes
        # Long copies take longer to measure. Beyond the last-level cache gains are so clear that
        # longer ones need no more time.
        weights = [1 + min(bytes_max, 8 << 20) / (1 << 20) for bytes_max in classes]
        try:
            for index, bytes_max in enumerate(classes):
                left_s = self._settings.seconds - (time.monotonic() - begin)
                seconds = max(left_s, 0) * weights[index] / sum(weights[index:])

                def tell(part: float, begun: int = index) -> None:
                    progress((begun + part) / len(classes))

                self._run_class(tuning, bytes_max, seconds, tell)
            self._confirm(tuning)
        except search.StoppedError:
            tuning.stopped = True
        finally:
            tuning.seconds = time.monotonic() - begin

    def _run_class(
        self, tuning: Tuning, bytes_max: int, seconds: float, progress: Callable[[float], None]
    ) -> None:
        variants = grid(bytes_max)
        cells = search.final_cells(
            bytes_max,
            self._settings.thread_count,
            last_level_bytes_max=self._last_level_bytes_max,
            threads_bytes_max=self._threads_bytes_max,
        )
        paired = (
            self._probe is not None
            and search.PAIRED_BYTES_MIN <= bytes_max <= self._paired_bytes_max
        )
        begin = time.monotonic()
        bench = self._bench(bytes_max)
        if variants:
            search.screen(
                bench,
                variants,
                deadline=begin + seconds * _SCREENING_SHARE,
                seed=self._settings.seed,
                paired=paired,
            )
            progress(_SCREENING_SHARE)
        finalists = (
            search.halve(bench, cells, deadline=begin + seconds, paired=paired) if variants else []
        )
        tuning.choices.append(search.choose(bench, finalists, cells, len(variants)))
        progress(1.0)

    def _bench(self, bytes_max: int, meter: _core.CopyMeter | None = None) -> search.Bench:
        return search.Bench(meter or self._meter, bytes_max, self._check_stop, self._wide_handicap)

    def _make_meter(self, seed: int) -> _core.CopyMeter:
        try:
            meter = _core.CopyMeter.make(*self._sizes, seed)
        except OutOfMemoryError as problem:
            # A cgroup may limit memory below the machine's.
            raise too_little(2 * self._sizes[0], problem.cause) from problem
        if self._probe is not None:
            meter.use_cold_probe(*self._probe)
        return meter

    def _confirm(self, tuning: Tuning) -> None:
        """Measure the choices again: later, on other processors, in other pages.

        Some comparisons depend on the physical pages of the buffers and on other users of a
        processor's caches, which one search in one place cannot detect.
        """
        cpus = sorted(os.sched_getaffinity(0))
        passes: list[dict[int, search.Bench]] = []
        # Free the pools: there is memory for one meter only.
        self._meter = None
        try:
            again = [choice for choice in tuning.choices if choice.variant is not None]
            share_s = CONFIRM_SECONDS / CONFIRM_PASSES / max(1, len(again))
            for number in range(CONFIRM_PASSES):
                # Results on one processor may not hold on another.
                os.sched_setaffinity(0, {cpus[number % len(cpus)]})
                meter = self._make_meter(self._settings.seed + 1 + number)
                passes.append(
                    {each.bytes_max: self._measure_again(meter, each, share_s) for each in again}
                )
                del meter
        finally:
            os.sched_setaffinity(0, cpus)
        tuning.choices = [
            choice
            if choice.variant is None
            else search.confirmed(choice, [each[choice.bytes_max] for each in passes])
            for choice in tuning.choices
        ]

    def _measure_again(
        self, meter: _core.CopyMeter, choice: search.Choice, seconds: float
    ) -> search.Bench:
        bench = self._bench(choice.bytes_max, meter)
        is_long = choice.bytes_max >= search.LONG_BYTES
        others = choice.others[: CONFIRM_OTHERS_LONG if is_long else None]
        variants = [each for each in (choice.variant, *others) if each is not None]
        rounds = CONFIRM_ROUNDS // min(3, max(1, choice.bytes_max // search.LONG_BYTES))
        deadline = time.monotonic() + seconds
        for index in range(rounds):
            if index >= CONFIRM_ROUNDS_MIN and time.monotonic() > deadline:
                break
            for cell in search.ALONE:
                bench.measure(variants, cell)
        bench.meter = None
        return bench


def grid(bytes_max: int) -> list[str]:
    """The variants that a search tries for a class.

    Up to 256 bytes only those that an entry inlines: others take more instructions than the C
    library's copy.
    """
    variants = _core.copy_variants(bytes_max // 2 + 1)
    if bytes_max > INLINE_BYTES_MAX:
        return variants
    rest = f"load=t store=t prefetch=none block={bytes_max // 128} align=target forward streams=1"
    return [each for each in variants if each in {f"ymm {rest}", f"zmm {rest}"}]


def _middle_probe(found: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """The median of the probes found; None if most attempts found none."""
    known = sorted(each for each in found if each is not None)
    return known[len(known) // 2] if 2 * len(known) > len(found) else None


def functions_of(tuning: Tuning) -> list[str]:
    """The C library's functions that any class replaces in a program."""
    kinds = tuning.kernels or {}
    adopted = {
        "memcpy": any(choice.variant is not None for choice in tuning.choices),
        "memset": any(choice.kernel is not None for choice in kinds.get("fills", [])),
        "memcmp": any(choice.kernel is not None for choice in kinds.get("comparisons", [])),
    }
    return [function for function, is_adopted in adopted.items() if is_adopted]


def judge_in_program(tuning: Tuning, program: Door) -> None:
    """Return the classes that a program does not gain by to the C library."""
    tuning.choices = [
        _without(choice, program.objection("memcpy", choice.bytes_max)) for choice in tuning.choices
    ]
    if tuning.kernels is None:
        return
    for kind, function in (("fills", "memset"), ("comparisons", "memcmp")):
        # A kernel for long calls puts a compare and a jump in front of short ones, too.
        short = [bytes_max for bytes_max in program.lengths if bytes_max <= SHORT_BYTES_MAX]
        costs = next(filter(None, (program.loss(function, each) for each in short)), "")
        if costs:
            costs = f"a short {function}: {costs}"
        tuning.kernels[kind] = [
            replace(choice, kernel=None, reason=objection)
            if choice.kernel is not None
            and (objection := costs or program.objection(function, choice.bytes_max))
            else choice
            for choice in tuning.kernels[kind]
        ]


def _without(choice: search.Choice, objection: str) -> search.Choice:
    """The choice without the variant that programs use: of a pair, the one for cached bytes."""
    if not objection or choice.variant is None:
        return choice
    warm, bar, cold = choice.variant.partition(search.PAIR)
    if warm == search.LIBC:
        return choice
    variant = f"{search.LIBC}{bar}{cold}" if bar else None
    return replace(choice, variant=variant, reason=objection)


def profile_of(tuning: Tuning) -> str:
    """The profile as JSON: input of `headrace::copy::parse_profile`, and measurements."""
    profile: dict[str, Any] = json.loads(_core.empty_copy_profile())
    profile["classes"] = [
        {"bytes_max": choice.bytes_max, **variants_of(choice), "measured": _measured(choice)}
        for choice in tuning.choices
    ]
    profile.update(documents_of(tuning.kernels))
    if tuning.cold_probe is not None:
        low, high = tuning.cold_probe
        profile["cold_probe"] = {"ticks_min": low, "ticks_max": high}
    if tuning.dsa is not None and tuning.dsa.bytes_min is not None:
        profile["dsa_bytes_min"] = tuning.dsa.bytes_min
    if tuning.wide_cost is not None:
        profile["wide_cost"] = round(tuning.wide_cost, 2)
    profile["made"] = {
        "program": f"headrace {headrace.__version__}",
        "seconds": round(tuning.seconds, 1),
        "complete": not tuning.stopped,
        "others_share": tuning.others_share,
    }
    return json.dumps(profile, indent=2, allow_nan=False) + "\n"


def variants_of(choice: search.Choice) -> dict[str, str | None]:
    if choice.variant is None or search.PAIR not in choice.variant:
        return {"variant": choice.variant}
    warm, cold = choice.variant.split(search.PAIR)
    return {"variant": None if warm == search.LIBC else warm, "cold_variant": cold}


_MEASURED = (
    *("best", "reason", "ratio", "confidence", "confidence_best", "bytes_per_s_cold"),
    *("bytes_per_s_hot", "variant_count", "tried_count", "batch_count"),
)


def _measured(choice: search.Choice) -> dict[str, object]:
    return {name: getattr(choice, name) for name in _MEASURED} | {
        "ratios": {
            name: {"mean": middle, "quartile_low": low, "quartile_high": high}
            for name, (middle, low, high) in choice.ratios.items()
        }
    }


def open_profile(path: Path) -> Output:
    """Open a profile for writing, before measuring; creates its directory."""
    tried = f"save the profile '{path}'"
    if str(path) != STDOUT:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise file_error(problem, tried) from None
    return Output(path, tried)


def save_profile(output: Output, text: str) -> None:
    """Write a profile, after the library has validated it."""
    try:
        _core.use_copy_profile(text)
    except Error as error:
        raise Error(f"save the profile '{output.path}'", str(error), "please report it") from error
    finally:
        _core.use_no_copy_profile()
    output.write(text)
