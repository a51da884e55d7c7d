"""Numbers as a reader wants them: digits that mean something, units, a true minus sign.

An estimate with a standard error is shown to the error's second significant digit; without one, to
at most four significant digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from keepscore.evaluation.estimate import Estimate
from keepscore.reports.content import EXACT

MISSING = "–"
MINUS = "\N{MINUS SIGN}"


def number(value: float | int | None, digits: int = 4) -> str:
    """`digits` significant digits, thousands grouped; very small or large as a power of ten."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if math.isinf(value):
        return f"{MINUS}∞" if value < 0 else "∞"
    size = abs(value)
    if isinstance(value, int) or (size >= 10**digits and size < 1e7):
        return f"{value:,.0f}".replace("-", MINUS)
    if size != 0 and (size < 1e-4 or size >= 1e7):
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{_trimmed(mantissa)} × {power_of_ten(int(exponent))}"
    decimals = digits - 1 - (math.floor(math.log10(size)) if size else 0)
    return _trimmed(f"{value:.{max(decimals, 0)}f}")


def fixed(value: float | None, scale: float | None, digits: int = 2) -> str:
    """As many decimals as show `scale` (a standard error, a half-width) to `digits` digits."""
    usable = scale is not None and math.isfinite(scale) and scale > 0
    if value is None or not usable or not math.isfinite(value):
        return number(value)
    decimals = digits - 1 - math.floor(math.log10(scale or 1.0))
    if decimals > 6 or abs(value) >= 1e7:
        return number(value, digits + 2)
    return f"{value:,.{max(decimals, 0)}f}".replace("-", MINUS)


def measured(estimate: Estimate | None) -> str:
    """Value ± standard error, both to the error's second significant digit."""
    if estimate is None:
        return MISSING
    value, se = estimate.value, estimate.error
    if not se or not math.isfinite(value):
        return number(value)
    size = max(abs(value), se)
    if size < 1e-4 or size >= 1e7:  # one power of ten for both
        exponent = math.floor(math.log10(size))
        value, se = value / 10.0**exponent, se / 10.0**exponent
        return f"({fixed(value, se)} ± {fixed(se, se)}) × {power_of_ten(exponent)}"
    return f"{fixed(value, se)} ± {fixed(se, se)}"


def percent(estimate: Estimate | float | None) -> str:
    """A proportion in percent, with its standard error in percentage points where known."""
    if estimate is None:
        return MISSING
    if not isinstance(estimate, Estimate):
        return f"{100 * estimate:.3g}%"
    if not math.isfinite(estimate.value):
        return MISSING
    text = f"{100 * estimate.value:.1f}%"
    return f"{text} ± {100 * estimate.error:.1f}" if estimate.error else text


def span(
    lower: float | None, upper: float | None, digits: int = 2, scale: float | None = None
) -> str:
    """An interval, to `digits` digits of `scale` (else its half-width); unknown ends are dashes."""
    if lower is None and upper is None:
        return MISSING
    if scale is None and lower is not None and upper is not None:
        scale = (upper - lower) / 2
    return f"[{fixed(lower, scale, digits)}, {fixed(upper, scale, digits)}]"


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours, to about two digits."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 0.995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def method_label(method: str) -> str:
    """How a method is called on the page."""
    return "Exact" if method == EXACT else method


def join(names: list[str]) -> str:
    """A, B and C."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def flatten(entries: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Nested plain data as (name, text) lines: {"a": {"b": 1}} gives ("a · b", "1")."""
    lines: list[tuple[str, str]] = []
    for key, value in entries.items():
        name = f"{prefix} · {key}" if prefix else str(key)
        if isinstance(value, dict) and value:
            lines += flatten(value, name)
        elif isinstance(value, bool) or value is None:
            lines.append((name, {True: "yes", False: "no", None: MISSING}[value]))
        elif isinstance(value, float):
            lines.append((name, number(value, 6) if abs(value) < 1e7 else f"{value:g}"))
        elif isinstance(value, (list, tuple)):
            lines.append((name, ", ".join(str(v) for v in value) or MISSING))
        else:
            lines.append((name, str(value)))
    return lines


def power_of_ten(exponent: int) -> str:
    """10 with a raised exponent."""
    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(abs(exponent)))
    return f"10{'⁻' if exponent < 0 else ''}{raised}"


def _trimmed(text: str) -> str:
    """No zeros that only fill up, and a true minus sign."""
    short = text.rstrip("0").rstrip(".") if "." in text else text
    return short.replace("-", MINUS)
