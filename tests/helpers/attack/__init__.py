"""Attacks on keepscore: damaged and hostile files, and bad arguments, by the thousand.

    python -m attack [--cases 300] [--only surrogate,arguments] [--seed 0]      (in tests/helpers)

Each case ends in one of:

    accepted   the file or argument was taken (it may still mean the same)
    typed      a KeepscoreError that says what is wrong
    silent     a damaged file was taken and means something else
    raw        another exception: a traceback that tells a user nothing
    hang       no answer in time
    memory     more memory asked for than there is reason to
    crash      the process died

The last five must not happen. Cases are functions of (campaign, seed, number), so one can be run
again alone.
"""
