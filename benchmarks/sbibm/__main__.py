"""`python -m benchmarks.sbibm`: see sweep.py."""

from benchmarks.sbibm.sweep import main

main()
