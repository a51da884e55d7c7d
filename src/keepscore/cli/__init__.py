"""The command line: `keepscore simulate | train | infer | ...`; one module per command.

Exit codes: 0 done; 1 done, and the answer is no (a broken law, a damaged file found, a surrogate
that is not good enough); 2 bad arguments or input; 3 a file or folder cannot be read or written; 4
fitted, and usable with calibration only; 75 interrupted, the same command
goes on where it was; 130 stopped by Ctrl-C.
"""

from keepscore.cli.app import app, main

__all__ = ["app", "main"]
