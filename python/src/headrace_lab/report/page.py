# SPDX-License-Identifier: Apache-2.0
"""Writes the page: one HTML file without scripts, for wide and narrow screens, light and dark."""

import html
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace._apps.picture import matplotlib_defaults
from headrace_lab.families.measure import value_text
from headrace_lab.families.picture import Panel, draw_panels
from headrace_lab.report.cards import Card
from headrace_lab.report.guidelines import Guideline

_INK = "#010203"
"""Placeholder colour in drawings, replaced by that of the surrounding text."""
_LEGEND = (
    "Solid lines are measured here: medians with quartiles. Dashed lines are published, dotted "
    "ones simulated, both of other machines. Diamonds mark emulated devices, which say "
    "nothing about real devices."
)
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --paper: #ffffff; --soft: #f2f2f4;
  --line: #c9c9cf; --faint: #5a5a62; --link: #00599c; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf0; --paper: #17171a; --soft: #242428;
  --line: #4a4a52; --faint: #b2b2ba; --link: #7cc0ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, .wide:focus-visible { outline: 3px solid var(--link); }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
nav ul { columns: 16rem; padding-left: 1.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
figure { margin: 1.5rem 0; padding: 1rem; background: var(--soft); border-radius: .5rem; }
figure svg { display: block; width: 100%; max-width: 32rem; height: auto; margin: 0 auto; }
figcaption { font-weight: 600; } figure p, .faint { color: var(--faint); font-size: .875rem; }
.partial, .emulated, .unpinned { padding: .6rem 1rem; border-left: .3rem solid #d55e00;
  background: var(--soft); }
.verdict { font-weight: 600; white-space: nowrap; }
@media (max-width: 40rem) {
  .rows thead { position: absolute; clip-path: inset(50%); height: 1px; overflow: hidden; }
  .rows tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line); }
  .rows th, .rows td { display: block; border: 0; padding: .1rem 0; }
  .rows td::before { content: attr(data-label) ": "; color: var(--faint); }
  figure { padding: .5rem; }
}
@media print { details { display: none; } }
"""


def page_of(
    *,
    title: str,
    machine: Mapping[str, str],
    headline: str,
    findings: Iterable[tuple[str, str, str]],
    cards: Sequence[Card],
    guidelines: Sequence[Guideline],
    remarks: Sequence[tuple[str, str]],
) -> str:
    """Write the page.

    Args:
        title: Title of the page.
        machine: Facts about the machine, by name.
        headline: The doctor's headline.
        findings: The doctor's checks: name, state and finding.
        cards: The figures.
        guidelines: Guidelines with their verdicts.
        remarks: Kind ("partial", "emulated" or "unpinned") and sentence.
    """
    drawn = dict(zip((card.name for card in cards), _drawings(cards), strict=True))
    places = {card.name: card.title for card in cards}
    parts = [
        f"<h1>{_text(title)}</h1>",
        *(f'<p class="{kind}" role="note">{_text(sentence)}</p>' for kind, sentence in remarks),
        '<nav aria-label="Contents"><ul>',
        *(
            f'<li><a href="#{name}">{_text(text)}</a></li>'
            for name, text in {
                "machine": "The machine",
                "doctor": "What the doctor says",
                "guidelines": "Guidelines",
                "figures": "Figures",
            }.items()
        ),
        f"</ul><details><summary>The {len(cards)} figures</summary><ul>",
        *(f'<li><a href="#{name}">{_text(text)}</a></li>' for name, text in places.items()),
        "</ul></details></nav><main>",
        '<section id="machine"><h2>The machine</h2>',
        _table(("fact", "value"), list(machine.items()), "The machine", stacks=True),
        '</section><section id="doctor"><h2>What the doctor says</h2>',
        f"<p>{_text(headline)}</p>",
        _table(("check", "state", "found"), findings, "Checks of the doctor", stacks=True),
        "</section>",
        _guidelines(guidelines, places),
        '<section id="figures"><h2>Figures</h2>',
        f"<p>{_LEGEND}</p>",
        *(_figure(card, drawn[card.name]) for card in cards),
        "</section></main>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _text(text: str) -> str:
    return html.escape(text)


def _table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], label: str, *, stacks: bool = False
) -> str:
    """A table; if `stacks`, its cells are stacked on narrow screens."""
    return _html_table(
        titles, ([_text(cell) for cell in row] for row in rows), label, stacks=stacks
    )


def _html_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], label: str, *, stacks: bool
) -> str:
    head = "".join(f'<th scope="col">{_text(title)}</th>' for title in titles)
    body = []
    for first, *rest in rows:
        cells = "".join(
            f'<td data-label="{_text(title)}">{cell}</td>'
            for title, cell in zip(titles[1:], rest, strict=True)
        )
        body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{_text(label)}">'
        f"<table{' class=rows' * stacks}><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _guidelines(guidelines: Iterable[Guideline], places: Mapping[str, str]) -> str:
    by_source: dict[str, list[Guideline]] = {}
    states: Counter[str] = Counter()
    for each in guidelines:
        by_source.setdefault(each.source, []).append(each)
        states[each.verdict.state] += 1
    counts = ", ".join(f"{count} {_text(state)}" for state, count in states.items())
    parts = [f'<section id="guidelines"><h2>Guidelines</h2><p>Of {states.total()}: {counts}.</p>']
    for source, members in by_source.items():
        titles = ("guideline", "advice", "here", "because", "figure")
        rows = [
            (
                _text(each.name),
                _text(each.text),
                f'<strong class="verdict">{_text(each.verdict.state)}</strong>',
                _text(each.verdict.reason),
                f'<a href="#{each.figure}">{_text(places[each.figure])}</a>',
            )
            for each in members
        ]
        parts.append(f"<h3>{_text(source)}</h3>")
        parts.append(_html_table(titles, rows, source, stacks=True))
    return "".join(parts) + "</section>"


def _figure(card: Card, drawing: str) -> str:
    kinds = dict.fromkeys(line.kind for line in card.panel.lines)
    label = f"{card.title}, in {card.panel.metric}: {', '.join(kinds) or 'nothing'}"
    svg = drawing.replace("<svg ", f'<svg role="img" aria-label="{_text(label)}" ', 1)
    ticks = card.panel.ticks
    rows = [
        (line.label, *(_cell(line.points.get(tick)) for tick in ticks)) for line in card.panel.lines
    ]
    notes = "".join(f"<p>{_text(note)}</p>" for note in filter(None, (card.absent,)))
    sources = "".join(f"<li>{_text(source)}</li>" for source in card.sources)
    sources = f'<ul class="faint">{sources}</ul>' if sources else ""
    table = _table((card.panel.metric, *ticks), rows, f"{card.title}, as a table")
    details = (
        f"<details><summary>The figures as a table</summary>{table}{sources}</details>"
        if rows
        else ""
    )
    return (
        f'<figure id="{card.name}"><figcaption>{_text(card.title)}</figcaption>{svg}{notes}'
        f"{details}</figure>"
    )


def _cell(point: tuple[float, float, float] | None) -> str:
    if point is None:
        return ""
    middle, low, high = (value_text(value, "") for value in point)
    return middle if low == high else f"{middle} ({low} to {high})"


def _drawings(cards: Sequence[Card]) -> list[str]:
    with matplotlib_defaults():
        import matplotlib as mpl  # noqa: PLC0415 - Costs half a second.

        inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
        # Text stays text: smaller, and accessible. A fixed salt makes the file deterministic.
        defaults: Any = {
            "svg.fonttype": "none",
            "svg.hashsalt": "headrace",
            "font.size": 10,
            **dict.fromkeys(inked, _INK),
        }
        with mpl.rc_context(defaults):
            return [
                _drawing(card.panel, f"f{number}-") if card.panel.lines else ""
                for number, card in enumerate(cards)
            ]


def _drawing(panel: Panel, prefix: str) -> str:
    """Draw as an SVG element for the page: without a fixed size, and with unique ids."""
    shown = Panel("", panel.metric, panel.lines)
    picture = draw_panels([shown], "", "", width=4.0)
    written = io.StringIO()
    picture.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg [^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)\sheight="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'href="#', f'href="#{prefix}', text)
    text = text.replace("url(#", f"url(#{prefix}")
    return text.replace(_INK, "currentColor")
