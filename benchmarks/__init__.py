"""Benchmarks: `python -m benchmarks [part ...] [--quick]`; see README.md."""
