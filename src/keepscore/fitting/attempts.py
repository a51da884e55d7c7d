"""What to try next: more simulations, then a larger network; and what that will take.

With c seconds per simulation (its score included), b per update, U(N, d) updates and k to compile,
a round takes

    T(N) = N c + U(N, d) b + k

by a pilot at first and by the last round from then on. Where even the fewest simulations do not
fit with as many updates as advised, the first round makes fewer updates. As long as four times the
simulations bring the loss down by a factor of 1.5 or more, there are more of them; once they do
not, the network is the limit, and the next size of its family has its turn. When that does not help
either, nothing is left to try.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from keepscore.networks import catalogue
from keepscore.networks.base import Network
from keepscore.training import TrainConfig

GROWTH = 4.0
LEAST_GROWTH = 1.5
HELPED = 1.5
FIRST, FIRST_LEAST, MOST_ROWS = 10_000, 1_000, 10_000_000
FEWEST_EPOCHS = 5


@dataclass(frozen=True)
class Attempt:
    """One round: simulations, network and loss ("ASA" or "BCE"); epochs where the time does not
    allow as many as advised."""

    n: int
    network: str
    loss: str
    epochs: int | None = None

    def __str__(self) -> str:
        cut = "" if self.epochs is None else f", cut to {self.epochs} epochs"
        return f"{self.n:,} simulations, {self.network}, {self.loss}{cut}"


@dataclass(frozen=True)
class Tried:
    """What an attempt cost and brought: seconds of simulating and training, and the loss to be
    brought down."""

    attempt: Attempt
    simulating: float
    training: float
    loss: float


@dataclass(frozen=True)
class Rates:
    """Seconds per simulation, per update, and to compile."""

    simulation: float
    update: float
    start: float = 0.0

    def seconds(self, n: int, d: int, config: TrainConfig) -> float:
        """T(N)."""
        return n * self.simulation + updates(n, d, config) * self.update + self.start


def updates(n: int, d: int, config: TrainConfig) -> float:
    """U(N, d) of a set of n rows, a part of which is held out."""
    rows = max(1, int(n * (1 - config.validation_fraction)))
    return config.epochs_at_least(rows, d) * rows / config.batch_size


def rows_within(seconds: float, rates: Rates, d: int, config: TrainConfig) -> int:
    """The largest N with T(N) in the time, by bisection, to two digits."""
    low, high = 0, MOST_ROWS
    while low < high:
        middle = (low + high + 1) // 2
        inside = rates.seconds(middle, d, config) <= seconds
        low, high = (middle, high) if inside else (low, middle - 1)
    digits = max(0, len(str(low)) - 2)
    return low // 10**digits * 10**digits


def first_attempt(
    seconds: float, rates: Rates, d: int, config: TrainConfig, network: str, loss: str
) -> Attempt | None:
    """The first round within so many seconds: cut short where nothing else fits, None where not
    even that does."""
    n = rows_within(seconds, rates, d, config)
    if n >= FIRST_LEAST:
        return Attempt(min(n, FIRST), network, loss)
    left = seconds - FIRST_LEAST * rates.simulation - rates.start
    epoch = FIRST_LEAST * (1 - config.validation_fraction) / config.batch_size * rates.update
    epochs = int(left / epoch)
    return Attempt(FIRST_LEAST, network, loss, epochs) if epochs >= FEWEST_EPOCHS else None


def first_of(
    choices: Sequence[tuple[str, Rates]],
    times: Sequence[float],
    d: int,
    config: TrainConfig,
    loss: str,
) -> Attempt | None:
    """The first round: by the first of these networks, each with its rates, that is trained in full
    within one of these times, the first time first; else the last network, cut short."""
    found = None
    for network, rates in choices:
        for seconds in times:
            found = first_attempt(seconds, rates, d, config, network, loss)
            if found is not None and found.epochs is None:
                return found
    return found


def next_attempt(
    tried: Sequence[Tried], seconds: float, d: int, config: TrainConfig, larger: str | None
) -> tuple[Attempt | None, str]:
    """What to try within so many seconds, and why; None with the reason when nothing is left.

    larger: the next size of the last network's family, if there is one.
    """
    last = tried[-1]
    now = last.attempt
    spent = last.simulating + last.training
    if len(tried) > 1:
        before = min(t.loss for t in tried[:-1])
        helped = last.loss * HELPED <= before
        grew = now.n > tried[-2].attempt.n
        if not helped and grew and larger is not None:
            if last.training * 2 > seconds:
                return None, "a larger network does not fit into the time left"
            return Attempt(now.n, larger, now.loss), "more simulations helped little"
        if not helped and not grew:
            return None, "neither more simulations nor a larger network helped"
    if now.epochs is not None:
        return None, "the time did not suffice for a training of full length"
    rates = Rates(last.simulating / now.n, last.training / updates(now.n, d, config))
    n = min(rows_within(seconds, rates, d, config), int(GROWTH * now.n), MOST_ROWS)
    if n < LEAST_GROWTH * now.n:
        return None, f"the time left does not serve more simulations (a round took {spent:.0f} s)"
    return Attempt(n, now.network, now.loss), f"{n / now.n:.2g} times the simulations"


def name_of(network: Network, x_shape: tuple[int, ...], d: int) -> str | None:
    """ "family-size" of a network that has a name."""
    found = catalogue.describe(network, x_shape, d)
    family = catalogue.FAMILIES.get(str(found["family"]))
    if family is None:
        return None
    for size, widths in family.sizes.items():
        if all(_same(found["widths"].get(k), v) for k, v in widths.items() if k != "nodes"):
            return f"{found['family']}-{size}"
    return None


def larger_than(name: str | None) -> str | None:
    """The next size of the same family; None at the largest, and for networks without a name."""
    if name is None or "-" not in name:
        return None
    family, _, size = name.rpartition("-")
    if family not in catalogue.FAMILIES:
        return None
    sizes = sorted(catalogue.names(family), key=_weights)
    after = sizes.index(size) + 1 if size in sizes else len(sizes)
    return f"{family}-{sizes[after]}" if after < len(sizes) else None


def _weights(size: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)([kM]?)", size).groups()  # type: ignore[union-attr]
    return float(number) * {"": 1, "k": 1e3, "M": 1e6}[unit]


def _same(a: object, b: object) -> bool:
    return (list(a) if isinstance(a, tuple) else a) == (list(b) if isinstance(b, tuple) else b)
