# SPDX-License-Identifier: Apache-2.0
"""Check the page of 'headrace report' in Chromium: wide and narrow, light and dark.

Fails on a console message, a network request, content wider than the screen, a figure that lacks
a series of its table or cuts off text, insufficient contrast, or content that the keyboard cannot
reach.

    .venv/bin/python scripts/check_report.py report.html [--pictures DIR]
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

SCREENS = {"desk": (1280, 900), "telephone": (360, 740)}
SCHEMES = ("light", "dark")
CONTRAST_MIN = 4.5
LOOK = """() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(value => {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const paper = getComputedStyle(document.body).backgroundColor;
  const cut = svg => svg === null ? 0 : [...svg.querySelectorAll('text')].filter(text => {
    const one = text.getBoundingClientRect(), all = svg.getBoundingClientRect();
    return one.bottom > all.bottom + 1 || one.right > all.right + 1 || one.left < all.left - 1;
  }).length;
  const figures = [...document.querySelectorAll('figure')].map(figure => ({
    name: figure.id,
    label: figure.querySelector('svg')?.getAttribute('aria-label') ?? '',
    cut: cut(figure.querySelector('svg')),
    rows: figure.querySelectorAll('details tbody tr').length,
    series: new Set([...figure.querySelectorAll('svg g[id*="legend"] text')]
      .map(text => text.textContent)).size,
    contrast: figure.querySelector('svg') === null ? 21 : contrast(
      getComputedStyle(figure.querySelector('svg text')).fill,
      getComputedStyle(figure).backgroundColor),
  }));
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  return {
    figures,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    contrast: contrast(getComputedStyle(document.body).color, paper),
    twice: ids.length - new Set(ids).size,
    broken: [...document.querySelectorAll('a')].map(link => link.getAttribute('href'))
      .filter(target => !target.startsWith('#') || !document.getElementById(target.slice(1))),
  };
}"""


def problems_of(look: dict[str, Any]) -> list[str]:
    """Return a sentence for each error on a screen."""
    found = [f"'{target}' leads nowhere" for target in look["broken"]]
    if look["wide"] > 0:
        found.append(f"the page is {look['wide']} pixels wider than the screen")
    if look["twice"]:
        found.append(f"{look['twice']} names are there twice")
    if look["contrast"] < CONTRAST_MIN:
        found.append(f"the contrast of letters is {look['contrast']:.1f}")
    for figure in look["figures"]:
        name = figure["name"]
        if figure["rows"] and not figure["label"]:
            found.append(f"{name} has no label")
        if figure["series"] != figure["rows"]:
            found.append(f"{name} shows {figure['series']} of {figure['rows']} series")
        if figure["cut"]:
            found.append(f"{name} cuts off {figure['cut']} texts")
        if figure["contrast"] < CONTRAST_MIN:
            found.append(f"{name}: the contrast of its letters is {figure['contrast']:.1f}")
    return found


def main() -> int:
    """Check the page on every screen and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    if arguments.pictures is not None:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    count = 0
    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for screen, (width, height) in SCREENS.items():
            for scheme in SCHEMES:
                said: list[str] = []
                page = browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if scheme == "dark" else "light",
                )
                page.on("console", lambda message, said=said: said.append(message.text))
                page.on("pageerror", lambda error, said=said: said.append(str(error)))
                page.on(
                    "request",
                    lambda request, said=said: (
                        said.append(f"it asks for {request.url}")
                        if request.url.startswith("http")
                        else None
                    ),
                )
                page.goto(arguments.page.resolve().as_uri(), wait_until="load")
                look = page.evaluate(LOOK)
                count = len(look["figures"])
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.tagName") != "A":
                    said.append("the keyboard does not reach the contents")
                said += problems_of(look)
                found += [f"{screen}, {scheme}: {each}" for each in said]
                if arguments.pictures is not None:
                    path = arguments.pictures / f"{screen}-{scheme}.png"
                    page.screenshot(path=path, full_page=True)
                page.close()
        browser.close()
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.stdout.write(f"report: {count} figures on 4 screens, {len(found)} problems\n")
    return 1 if found or not count else 0


if __name__ == "__main__":
    raise SystemExit(main())
