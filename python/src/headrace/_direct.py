# SPDX-License-Identifier: Apache-2.0
"""Fast path of ``headrace emulate`` and ``headrace run``, without importing the subcommands.

Most calls only exec another program. Everything else (help, checks of options, statistics) is left
to the subcommands.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import headrace
from headrace._signals import as_we_found_them

EXIT_CANNOT_RUN = 126
EXIT_NOT_FOUND = 127

_RUN_FLAGS = {"--probe": "HEADRACE_PROBE"}

PRELOAD, PRELOAD_COPIES = "libheadrace-preload.so", "libheadrace-preload-copies.so"
_PROFILE_BYTES_MAX = 1 << 20


def built(name: str) -> Path | None:
    """Find a built file in the package, whose path may have two directories.

    An editable installation has its sources in one and its build outputs in the other.
    """
    for directory in (*headrace.__path__, *(str(Path(each) / "headrace") for each in sys.path)):
        path = Path(directory) / name
        if path.exists():
            return path
    return None


def environment_given() -> dict[str, str]:
    """The environment without variables set by the interpreter."""
    given = dict(os.environ)
    try:
        # In the C locale the interpreter sets LC_CTYPE, which children would inherit.
        pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return given
    names = {pair.partition(b"=")[0] for pair in pairs}
    if b"LC_CTYPE" not in names and given.get("LC_CTYPE", "").startswith("C."):
        del given["LC_CTYPE"]
    return given


def cannot_run(word: str, problem: OSError) -> tuple[str, int]:
    """Return why a command cannot be started, and the exit code."""
    if isinstance(problem, FileNotFoundError):
        return f"cannot run '{word}': there is no such program; check the name", EXIT_NOT_FOUND
    why = os.strerror(problem.errno or 0)
    return f"cannot run '{word}': it cannot be executed ({why}); check the file", EXIT_CANNOT_RUN


def preload_name(environment: Mapping[str, str]) -> str:
    """The library to preload: without memset and memcmp where the profile has nothing for them.

    The program's calls of these then go to the C library without a way through ours.
    """
    if environment.get("HEADRACE_PATH") == "dsa":
        return PRELOAD
    config = environment.get("XDG_CONFIG_HOME") or environment.get("HOME", "") + "/.config"
    path = Path(environment.get("HEADRACE_PROFILE", f"{config}/headrace/copy.json"))
    try:
        with path.open("rb") as file:
            profile = file.read(_PROFILE_BYTES_MAX)
    except OSError:
        return PRELOAD_COPIES
    tuned = (b'"kernel": "', b'"kernel":"', b'"dsa_bytes_min"')
    return PRELOAD if any(each in profile for each in tuned) else PRELOAD_COPIES


def preload_variable(library: str, given: str) -> str:
    """LD_PRELOAD with our library first; later ones serve what ours does not."""
    others = given.replace(":", " ").split()
    ours = (PRELOAD, PRELOAD_COPIES)
    return ":".join((library, *(each for each in others if Path(each).name not in ours)))


def run_directly(arguments: list[str]) -> None:
    """Exec the launcher or the command, if nothing else is to be done; otherwise return."""
    if not arguments:
        return
    if arguments[0] == "emulate":
        _emulate(arguments[1:])
    elif arguments[0] == "run":
        _run(arguments[1:])


def _emulate(words: list[str]) -> None:
    program = built("_emulator/headrace-emulator")
    options = words[: words.index("--")] if "--" in words else words
    if program is None or "--" not in words or {"--help", "-h"} & set(options):
        return
    # The subcommand converts the name of a machine; the program knows latencies and rates only.
    if any(each.startswith("--pace") for each in options):
        return
    as_we_found_them()
    os.execv(program, [str(program), *words])  # noqa: S606 - It is our own program.


def _run(words: list[str]) -> None:
    environment = environment_given()
    library = built(preload_name(environment)) or built(PRELOAD)
    if library is None or any(each in str(library) for each in ": "):
        return
    while words and words[0] in _RUN_FLAGS:
        environment[_RUN_FLAGS[words[0]]] = "1"
        words = words[1:]
    if len(words) < 2 or words[0] != "--" or not words[1]:  # noqa: PLR2004 - "--" and CMD.
        return
    environment["LD_PRELOAD"] = preload_variable(str(library), environment.get("LD_PRELOAD", ""))
    as_we_found_them()
    try:
        os.execvpe(words[1], words[1:], environment)  # noqa: S606 - The user's command.
    except OSError as problem:
        sentence, code = cannot_run(words[1], problem)
        if sys.stderr is not None:
            os.write(2, f"headrace: {sentence}\n".encode(errors="surrogateescape"))
        os._exit(code)
