"""The little SVG the report needs: escaped tags, ticks, markers, a PNG for dense arrays.

No style attributes anywhere: the page's content policy allows only its own style sheet.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from keepscore.checks import Floats
from keepscore.reports.words import MINUS, power_of_ten

# Colours told apart by colour-blind readers (Okabe and Ito), each with its own dash and marker.
COLOURS = ("#111111", "#0072b2", "#d55e00", "#00795a", "#a3457f", "#7a5c00", "#4a4a9c")
DASHES = ("", "", "7 3", "2 3", "9 3 2 3", "4 2", "1 2")
MARKERS = ("circle", "triangle", "square", "diamond", "cross", "down", "circle")
# From low to high: light to dark, so that order survives without colour.
RAMP = ("#f6f9fb", "#d3e3ef", "#97bdd9", "#508bb8", "#215c8c", "#0a2c4d")


@dataclass(frozen=True)
class Style:
    """Colour, dash and marker of one method; the exact likelihood is always the first."""

    colour: str
    dash: str
    marker: str


def style(index: int) -> Style:
    """0 is the exact likelihood's; the others go round, and never come back to it."""
    k = 1 + (index - 1) % (len(COLOURS) - 1) if index else 0
    return Style(COLOURS[k], DASHES[k], MARKERS[k])


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """<name attributes>children</name>, everything escaped; `stroke_width` is stroke-width."""
    parts = [
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _text(value))
        for key, value in attributes.items()
        if value is not None and value != ""
    ]
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), Markup("").join(parts), inner)


def picture(width: float, height: float, label: str, *children: Any, kind: str = "") -> Markup:
    """An <svg> that scales with its column and says in words what it shows."""
    return tag(
        "svg",
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
        class_=f"plot {kind}".strip(),
        xmlns="http://www.w3.org/2000/svg",
    )


def path(points: list[tuple[float, float]], **attributes: Any) -> Markup:
    """A line through points; a gap where a point is not finite."""
    words, pen = [], "M"
    for x, y in points:
        if not (math.isfinite(x) and math.isfinite(y)):
            pen = "M"
            continue
        words.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    return tag("path", d="".join(words), fill="none", **attributes)


def marker(shape: str, x: float, y: float, r: float = 4, **attributes: Any) -> Markup:
    """A mark of radius about r; the shapes differ without colour."""
    if shape == "circle":
        return tag("circle", cx=x, cy=y, r=r, **attributes)
    corners = {
        "triangle": [(0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
        "down": [(0, 1.2), (1.1, -0.8), (-1.1, -0.8)],
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        "cross": [
            (-1.2, -0.4), (-0.4, -0.4), (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4),
            (1.2, 0.4), (0.4, 0.4), (0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4),
        ],
    }[shape]  # fmt: skip
    points = " ".join(f"{x + r * a:.1f},{y + r * b:.1f}" for a, b in corners)
    return tag("polygon", points=points, **attributes)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between low and high, about `count` of them."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= 0.999 * rough)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between low and high; with 2 and 5 where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5)):
        found = [m * 10.0**p for p in powers for m in digits if low <= m * 10.0**p <= high]
        if len(found) >= 3:
            break
    return found[:: 1 + len(found) // 7]


def tick_label(value: float) -> str:
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e5):
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{'' if mantissa == '1' else mantissa + '·'}{power_of_ten(int(exponent))}"
    return f"{value:.6g}".replace("-", MINUS)


def png(values: Floats) -> str:
    """A 2-D array as a PNG data address, lowest value light, highest dark."""
    low, high = float(values.min()), float(values.max())
    share = (values - low) / (high - low) if high > low else np.zeros_like(values)
    stops = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in RAMP], dtype=float)
    at = share * (len(RAMP) - 1)
    pixels = np.stack(
        [np.interp(at, np.arange(len(RAMP)), stops[:, channel]) for channel in range(3)], axis=-1
    )
    rows, columns = values.shape
    # Each PNG row starts with its filter's number; 0 is none.
    raw = np.concatenate(
        [np.zeros((rows, 1), np.uint8), pixels.round().astype(np.uint8).reshape(rows, -1)], axis=1
    )
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw.tobytes(), 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
