"""A process to be killed: simulates into a folder. Arguments: folder seed jobs seconds n m.

Prints its own peak memory in KiB when it lives to the end.
"""

from __future__ import annotations

import resource
import sys

from data_models import SlowToy

from keepscore.data import simulate

if __name__ == "__main__":
    folder, seed, jobs, seconds, n, m = sys.argv[1:]
    simulate(SlowToy(float(seconds), int(m)), int(n), seed=int(seed), path=folder, jobs=int(jobs))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
