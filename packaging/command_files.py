# SPDX-License-Identifier: Apache-2.0
"""Write man pages and shell completions from the output of `--help`.

Only the help describes commands and options, so this runs it for every command: `headrace`, each of
its subcommands, and the emulator's program. Completions are static: completing starts no Python.

Usage: command_files.py headrace-emulator=PATH headrace=PATH DIRECTORY

Writes DIRECTORY/share/man/man1/*.1 and the completions of `headrace` for bash, zsh and fish.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENT = {"NO_COLOR": "1", "COLUMNS": "80", "TERM": "dumb"}
SUMMARIES = {
    "headrace": "asynchronous memory copies, and a cache near the readers",
    "headrace-emulator": "run a program on emulated Intel DSA devices",
}
EXIT_CODES = (
    ("0", "Success."),
    ("1", "What was asked for failed; one sentence on stderr says why."),
    ("2", "Wrong use of the command."),
    ("3", "Hardware that was asked for is absent."),
    ("128+N", "Ended by signal N."),
)


@dataclass
class Help:
    """The parsed help of one command."""

    words: list[str]
    usage: str = ""
    paragraphs: list[str] = field(default_factory=list)
    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of its man page: headrace-pmem-ring."""
        return "-".join(self.words)

    @property
    def subcommands(self) -> list[str]:
        """Subcommands in the order of the help."""
        return [name for name, _ in self.sections.get("Commands", [])]

    @property
    def options(self) -> list[tuple[str, str]]:
        """Options, each with the first sentence of its description."""
        found = {
            option: text.partition(". ")[0].rstrip(".")
            for name, text in self.sections.get("Options", [])
            for option in re.findall(r"--[a-z][a-z0-9-]*", name)
        }
        return list(found.items())


def read_help(words: list[str], text: str) -> Help:
    """Parse plain help: usage, prose, and sections of two columns."""
    found = Help(words)
    section = ""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("Usage:"):
            found.usage = " ".join(line.removeprefix("Usage:").split())
        elif re.fullmatch(r"(Arguments|Options|Commands):", line):
            section = line.rstrip(":")
            found.sections[section] = []
        elif entry := re.fullmatch(r"  (\S.*?)(?:  +(\S.*))?", line) if section else None:
            found.sections[section].append((entry[1], entry[2] or ""))
        elif section and line.startswith("    ") and found.sections[section]:
            name, said = found.sections[section][-1]
            found.sections[section][-1] = (name, f"{said} {line.strip()}".strip())
        elif entry := re.fullmatch(r"  (--\S.*?)  +(\S.*)", line):
            # The emulator's program lists its options without a heading.
            section = "Options"
            found.sections[section] = [(entry[1], entry[2])]
        elif line.strip():
            is_new = section != "" or number == 0 or not lines[number - 1].strip()
            if is_new or not found.paragraphs:
                found.paragraphs.append(line.strip())
            else:
                found.paragraphs[-1] += " " + line.strip()
    return found


def ask(program: list[str], words: list[str]) -> list[Help]:
    """Read the help of a command and of all its subcommands."""
    done = subprocess.run(
        [*program, *words[1:], "--help"],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    own = read_help(words, done.stdout)
    return [own] + [each for name in own.subcommands for each in ask(program, [*words, name])]


def escaped(text: str) -> str:
    """Escape for troff: hyphens become minus signs, and no line begins with a control character."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith(".") else text


def man_page(of: Help, version: str) -> str:
    """Make the man page of one command."""
    summary = SUMMARIES.get(of.name) or (of.paragraphs[0] if of.paragraphs else of.name)
    summary = summary.partition(". ")[0].rstrip(".")
    title = of.name.upper().replace("-", "\\-")
    lines = [f'.TH "{title}" 1 "" "Headrace {version}" "User Commands"']
    lines += [".SH NAME", f"{escaped(of.name)} \\- {escaped(summary)}"]
    lines += [".SH SYNOPSIS", f".B {escaped(of.usage)}", ".SH DESCRIPTION"]
    for number, paragraph in enumerate(of.paragraphs):
        example = paragraph.removeprefix("Example: ")
        if example != paragraph:
            lines += [".SH EXAMPLE", ".nf", f".B {escaped(example)}", ".fi"]
        else:
            lines += ([".PP"] if number else []) + [escaped(paragraph)]
    for section in ("Arguments", "Options", "Commands"):
        entries = of.sections.get(section)
        if entries:
            lines.append(f".SH {section.upper()}")
            for name, text in entries:
                lines += [".TP", f".B {escaped(name)}", escaped(text)]
    if of.words == ["headrace-emulator"]:
        lines += [".SH EXIT STATUS", "That of the program, or 128 and the number of its signal."]
    else:
        lines.append(".SH EXIT STATUS")
        for code, text in EXIT_CODES:
            lines += [".TP", f".B {code}", escaped(text)]
    above = "-".join(of.words[:-1])
    others = ([above] if above else []) + [f"{of.name}-{name}" for name in of.subcommands]
    if others:
        lines += [".SH SEE ALSO", ", ".join(f"{escaped(name)}(1)" for name in others)]
    return "\n".join(lines) + "\n"


def bash_completion(tree: list[Help]) -> str:
    """Complete subcommands, options, and files otherwise."""
    cases = "\n".join(
        f'    "{" ".join(of.words)}") words="{" ".join([*of.subcommands, *dict(of.options)])}" ;;'
        for of in tree
    )
    return f"""# SPDX-License-Identifier: Apache-2.0
# Completion of headrace for bash, made from its help.
_headrace() {{
  local path="headrace" words="" word index
  for ((index = 1; index < COMP_CWORD; index++)); do
    word="${{COMP_WORDS[index]}}"
    # Behind '--' is a program and what belongs to it.
    if [ "$word" = -- ]; then
      COMPREPLY=($(compgen -c -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
      return
    fi
    _headrace_words "$path"
    case " $words " in *" $word "*) [ "${{word#-}}" = "$word" ] && path="$path $word" ;; esac
  done
  _headrace_words "$path"
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
_headrace_words() {{
  case "$1" in
{cases}
    *) words="" ;;
  esac
}}
complete -o default -F _headrace headrace
"""


def zsh_completion() -> str:
    """Use bash's completion, which zsh can run."""
    return """#compdef headrace
# SPDX-License-Identifier: Apache-2.0
# Completion of headrace for zsh, by that for bash.
autoload -U +X bashcompinit && bashcompinit
source /usr/share/bash-completion/completions/headrace
"""


def fish_completion(tree: list[Help]) -> str:
    """Make one line for each subcommand and option."""
    lines = ["# SPDX-License-Identifier: Apache-2.0", "# Completion of headrace for fish."]
    for of in tree:
        below = of.words[1:]
        seen = [f"__fish_seen_subcommand_from {word}" for word in below]
        absent = [f"not __fish_seen_subcommand_from {' '.join(of.subcommands)}"]
        condition = "; and ".join(seen + absent * bool(of.subcommands)) or "true"
        for name, text in of.sections.get("Commands", []):
            lines.append(f"complete -c headrace -f -n '{condition}' -a {name} -d {quoted(text)}")
        for option, text in of.options:
            long = option.removeprefix("--")
            lines.append(f"complete -c headrace -n '{condition}' -l {long} -d {quoted(text)}")
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Quote as one word of fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def write(path: Path, text: str) -> None:
    """Write a file, creating its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Read the help of each program named, and write its files."""
    *programs, directory = sys.argv[1:]
    share = Path(directory) / "share"
    for program in programs:
        name, _, place = program.partition("=")
        tree = ask([place], [name])
        version = "0.1"
        if name == "headrace":
            said = subprocess.run([place, "--version"], capture_output=True, text=True, check=True)
            version = said.stdout.split()[-1]
            completions = share / "bash-completion" / "completions" / "headrace"
            write(completions, bash_completion(tree))
            write(share / "zsh" / "vendor-completions" / "_headrace", zsh_completion())
            fish = share / "fish" / "vendor_completions.d" / "headrace.fish"
            write(fish, fish_completion(tree))
        for of in tree:
            write(share / "man" / "man1" / f"{of.name}.1", man_page(of, version))


if __name__ == "__main__":
    main()
