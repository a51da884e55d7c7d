"""A real browser for the tests: headless Chromium, driven by Playwright.

Skipped only where no browser can be had; with CI=true a missing browser is a failure. A browser
elsewhere than on the path is named by KEEPSCORE_BROWSER.
"""

from __future__ import annotations

import os
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
PHONE = {"width": 360, "height": 740}
PAPER = {"width": 680, "height": 960}  # A4 less its margins, at 96 dots an inch


def unavailable(reason: str) -> None:
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{reason} In CI the report must be seen by a real browser.")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("Playwright is not installed: pip install playwright (it is in the dev extra).")
    named = os.environ.get("KEEPSCORE_BROWSER")
    path = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        unavailable("No Chromium found: run `make browser`, or set KEEPSCORE_BROWSER to its path.")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        # Chromium's sandbox refuses to start as root, as in most containers.
        arguments = [*ARGUMENTS, "--no-sandbox"] if root else ARGUMENTS
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        yield started
        started.close()


class Opened:
    """A page with everything it complained of and asked for."""

    def __init__(self, browser, address: str, viewport=None, **options) -> None:
        self.page = browser.new_page(viewport=viewport or {"width": 1280, "height": 900}, **options)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda d: (self.complaints.append(d.message), d.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()

    def picture(self) -> dict[str, str]:
        """What the surface shows: the map's pixels, the set's outline, whose it is."""
        return self.page.evaluate(
            """() => ({
                 map: document.querySelector("#surface image")?.getAttribute("href") ?? "",
                 set: document.querySelector("#surface .set").getAttribute("d"),
                 method: document.querySelector("#surface svg").dataset.method,
                 read: document.querySelector("#readout").innerText,
               })"""
        )


# Everything visible that sticks out of the page, is clipped by its box, or is text outside its svg.
CUT = """() => {
  const found = [], width = document.documentElement.clientWidth;
  const told = (node, why) => found.push(why + ": " + node.tagName + "#" + node.id + "." +
    (node.getAttribute("class") || "") + " " + (node.textContent || "").trim().slice(0, 40));
  for (const node of document.body.querySelectorAll("*")) {
    if (node.closest(".skip, script, thead, clipPath")) continue;
    if (!node.checkVisibility({ visibilityProperty: true })) continue;
    const box = node.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    if (box.right > width + 1 || box.left < -1) told(node, "outside the page");
    const inSvg = node instanceof SVGElement;
    if (!inSvg && getComputedStyle(node).overflowX !== "visible" && node.tagName !== "SELECT" &&
        node.scrollWidth > node.clientWidth + 1) told(node, "clipped");
    if (node.tagName === "text") {
      const frame = node.ownerSVGElement.getBoundingClientRect();
      if (box.right > frame.right + 1 || box.left < frame.left - 1 ||
          box.bottom > frame.bottom + 1 || box.top < frame.top - 1)
        told(node, "text outside its picture");
    }
  }
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) found.push("the page scrolls sideways");
  return found;
}"""
