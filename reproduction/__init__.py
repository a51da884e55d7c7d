"""The configurations of the paper as data, and the sweep that runs them."""

from reproduction.cases import CASES, PROFILES, Cell, SweepPlan, find_cases, find_plan
from reproduction.results import Result, load_exact, load_results, summary_frame
from reproduction.sweep import reproduce

__all__ = [
    "CASES",
    "PROFILES",
    "Cell",
    "Result",
    "SweepPlan",
    "find_cases",
    "find_plan",
    "load_exact",
    "load_results",
    "reproduce",
    "summary_frame",
]
