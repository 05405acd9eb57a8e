# SPDX-License-Identifier: Apache-2.0
"""House rules as a test: what a compiler or formatter cannot check.

Usage: tidy.py [--root DIR]. Prints one line with the remedy for each violation, and exits with 1
if there is any. python/tests/test_tidy.py has a test for each rule.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CPP = (".cpp", ".hpp", ".h")
LINES_MAX = 700
COLUMNS_MAX = 100
MEMORY_ORDER = "docs/internals/memory-order"
REFERENCE = "docs/reference/cpp"

EDGE = re.compile(r"// edge: ([a-z0-9-]+) \((release|acquire|acq_rel)\)")
LINK = re.compile(r"(?<![`!])\[([^\]]*)\]\(([^)\s]+)\)")
ORDERED = re.compile(r"\b(?:load_acquire|store_release|wait_acquire|\w+_acq_rel)\(")


@dataclass(frozen=True)
class Ban:
    """A pattern that is banned in some places, and its replacement."""

    pattern: re.Pattern[str]
    instead: str
    where: tuple[str, ...]
    except_in: tuple[str, ...] = ()


BANS = (
    Ban(
        re.compile(r"std::atomic(?!_ref)|std::memory_order|#include <atomic>"),
        "use headrace/base/atomic.hpp, whose operations name their order",
        ("src/", "emu/", "inject/", "launch/", "include/", "tests/", "bench/"),
        ("include/headrace/base/atomic.hpp", "src/platform/barrier.hpp"),
    ),
    Ban(
        re.compile(r"atomic_thread_fence|__sync_synchronize"),
        "no stand-alone fences: ThreadSanitizer does not model them",
        ("src/", "emu/", "inject/", "launch/", "include/", "tests/", "bench/"),
        ("src/platform/", "tests/model/relacy/"),
    ),
    Ban(
        re.compile(r"std::(?:shared_|recursive_|timed_)?mutex\b|std::condition_variable"),
        "use headrace/base/mutex.hpp, which Clang's thread-safety analysis understands",
        ("src/", "emu/", "inject/", "launch/", "include/"),
        ("include/headrace/base/mutex.hpp",),
    ),
    Ban(
        re.compile(r"#include <(?:sys/|unistd\.h|fcntl\.h|sched\.h|dlfcn\.h|numa|pthread\.h)"),
        "the operating system is behind src/platform",
        ("src/", "emu/", "inject/", "launch/", "include/"),
        (
            "src/platform/",
            "emu/platform/",
            "emu/meter/",
            "inject/",
            "launch/",
        ),
    ),
    Ban(
        re.compile(r"^#\s*(?:if|ifdef|elif).*__(?:x86_64|aarch64|i386|AVX)"),
        "architecture #if belongs in src/platform or src/copy/kernels",
        ("src/", "emu/", "inject/", "launch/", "include/"),
        (
            "src/platform/",
            "src/copy/kernels/",
            "src/pmem/kernels/",
            "emu/platform/",
            "inject/trap/",
            # One instruction, inlined where a message is stored.
            "include/headrace/base/prefetch_write.hpp",
        ),
    ),
    Ban(
        re.compile(r"std::c(?:out|err|log)\b|\b(?:std::)?(?:printf|puts)\("),
        "a library prints nothing: return it",
        ("src/", "include/"),
        ("src/base/check.cpp",),
    ),
    Ban(
        re.compile(r"\bsleep_for\(|\bsleep_until\(|\busleep\("),
        "sleeping is not synchronisation: wait for the event",
        ("src/", "include/", "tests/unit", "tests/stress", "tests/property"),
    ),
    Ban(re.compile(r"^\s*using namespace\b"), "name what you use", ("include/", "src/")),
    Ban(
        re.compile(r"\b(?:src|dst)_?(?:ptr|addr|node|bytes)?\b(?!/)"),
        "say source and target",
        ("include/",),
    ),
    Ban(
        re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b"),
        "do it, or file it",
        ("src/", "include/", "tests/", "bench/", "python/", "examples/", "docs/"),
    ),
    Ban(
        re.compile(r"(?<![\w.$}/])/(?:home|root|work|Users)/\w"),
        "no path of one machine",
        ("",),
        ("scripts/tidy.py", "python/tests/test_tidy.py"),
    ),
)


@dataclass(frozen=True)
class Source:
    """One text file of the tree, by its path from the root."""

    path: str
    lines: tuple[str, ...]


def sources(root: Path) -> Iterator[Source]:
    """Yield the text files that git tracks or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for path in sorted(set(listed.split("\0")) - {""}):
        if not (root / path).is_file():
            continue
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        yield Source(path, tuple(text.split("\n")))


def check_form(source: Source) -> Iterator[str]:
    """Check first line, last line, width and length."""
    suffix = Path(source.path).suffix
    code = suffix in {*CPP, ".py", ".cmake"} or source.path.endswith("CMakeLists.txt")
    first = source.lines[1] if source.lines[0].startswith("#!") else source.lines[0]
    if (
        code or source.path.startswith("scripts/")
    ) and "SPDX-License-Identifier: Apache-2.0" not in first:
        yield f"{source.path}:1: begin with the SPDX line"
    ends_well = source.lines[-1] == "" and (len(source.lines) == 1 or source.lines[-2] != "")
    if code and not ends_well:
        yield f"{source.path}:{len(source.lines)}: end with exactly one newline"
    if suffix in {*CPP, ".py"} and len(source.lines) > LINES_MAX:
        yield f"{source.path}: {len(source.lines)} lines, more than {LINES_MAX}: split it by noun"
    for number, line in enumerate(source.lines, 1):
        if suffix in {*CPP, ".py"} and len(line) > COLUMNS_MAX:
            yield f"{source.path}:{number}: {len(line)} columns, more than {COLUMNS_MAX}"
        if code and line != line.rstrip():
            yield f"{source.path}:{number}: trailing white space"


def check_bans(source: Source) -> Iterator[str]:
    """Report banned patterns with their replacement."""
    for ban in BANS:
        if not source.path.startswith(ban.where) or source.path.startswith(
            ban.except_in or ("\0",)
        ):
            continue
        for number, line in enumerate(source.lines, 1):
            if ban.pattern.search(line):
                yield f"{source.path}:{number}: {ban.instead}: {line.strip()[:60]}"


def check_threading(source: Source) -> Iterator[str]:
    """Check that each public class documents its threading."""
    if not source.path.startswith("include/"):
        return
    for number, line in enumerate(source.lines):
        if re.match(r"class (?:HEADRACE_\w+(?:\(.*?\)\))? )*\w+[^;]*$", line):
            above = number - 1
            while above >= 0 and re.match(r"\s*(?:///|template)", source.lines[above]):
                above -= 1
            said = any("Threading:" in text for text in source.lines[above + 1 : number])
            if not said and "scoped_lockable" not in line:
                yield f"{source.path}:{number + 1}: say 'Threading:' and one of the four words"


def check_ordered(source: Source) -> Iterator[str]:
    """Check that each ordered operation names its edge in the lines above it."""
    if not holds_edges(source):
        return
    for number, line in enumerate(source.lines):
        context = source.lines[max(0, number - 5) : number + 1]
        if ORDERED.search(line) and not any(EDGE.search(text) for text in context):
            yield f"{source.path}:{number + 1}: name the edge: // edge: NAME (release|acquire)"


def holds_edges(source: Source) -> bool:
    """Whether the file may use atomics: of the library or the emulator, or a reader of theirs."""
    ours = source.path.startswith(("src/", "emu/", "inject/", "launch/", "include/", "sim/trace."))
    return ours and not source.path.endswith("atomic.hpp")


def check_edges(tree: list[Source]) -> Iterator[str]:
    """Check that each edge has both ends and is described, and that described edges exist."""
    ends: dict[str, set[str]] = {}
    places: dict[str, str] = {}
    for source in filter(holds_edges, tree):
        for number, line in enumerate(source.lines, 1):
            for name, end in EDGE.findall(line):
                both = {"release", "acquire"}
                ends.setdefault(name, set()).update(both if end == "acq_rel" else {end})
                places.setdefault(name, f"{source.path}:{number}")
    pages = [source for source in tree if source.path.startswith(MEMORY_ORDER)]
    described = {line for page in pages for line in page.lines if line.startswith("### `")}
    for name, seen in sorted(ends.items()):
        if len(seen) == 1:
            yield f"{places[name]}: edge '{name}' has only a {seen.pop()} end"
        if f"### `{name}`" not in described:
            yield f"{places[name]}: edge '{name}' is not described in {MEMORY_ORDER}.d"
    for heading in sorted(described):
        if heading.removeprefix("### `").removesuffix("`") not in ends:
            yield f"{MEMORY_ORDER}.d: edge {heading.removeprefix('### ')} is in no source"


def check_links(source: Source, root: Path) -> Iterator[str]:
    """Check that links of the manual have a text, which forges show, and an existing target."""
    if not source.path.endswith(".md"):
        return
    for number, line in enumerate(source.lines, 1):
        for text, target in LINK.findall(line):
            if not text:
                yield f"{source.path}:{number}: give the link to '{target}' a text"
            path = target.partition("#")[0]
            if path and ":" not in path and not ((root / source.path).parent / path).exists():
                yield f"{source.path}:{number}: '{target}' leads to no file"


def check_reference(tree: list[Source]) -> Iterator[str]:
    """Check that each directory of public headers has a page in the C++ reference."""
    paths = {source.path for source in tree}
    headers = (path.split("/") for path in paths if re.match(r"include/headrace/.*\.hpp$", path))
    for name in sorted({parts[2] for parts in headers if len(parts) > 3}):  # noqa: PLR2004
        page = f"{REFERENCE}/{name}.md"
        if page not in paths:
            yield f"include/headrace/{name}: write {page} and name it in {REFERENCE}/index.md"


def problems(root: Path) -> list[str]:
    """Return all violations in the tree at `root`."""
    tree = list(sources(root))
    found: list[str] = []
    for source in tree:
        for check in (check_form, check_bans, check_threading, check_ordered):
            found += check(source)
        found += check_links(source, root)
    found += check_edges(tree)
    found += check_reference(tree)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    found = problems(parser.parse_args().root.resolve())
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.stdout.write(f"tidy: {len(found)} problems\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
