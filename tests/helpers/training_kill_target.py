"""A training run in a process of its own, to be killed: `python training_kill_target.py PATH`.

Prints one line for each checkpoint, so that the killer knows where it is.
"""

import sys
from dataclasses import replace

from training_helpers import SHORT, Tiny, toy_data

import keepscore as ks
from keepscore.losses import ASA
from keepscore.training import loop

CONFIG = replace(SHORT, min_epochs=3, max_epochs=3, checkpoint_minutes=1e-9)
LOSS = ASA(update_every=4, history=3)


def go(path, slowly=False):
    if slowly:
        write = loop.write_checkpoint

        def announced(*arguments):
            write(*arguments)
            print("checkpoint", arguments[3].epoch, arguments[3].step, flush=True)

        loop.write_checkpoint = announced
    loop.FIRST_CALL, loop.SECONDS_A_CALL = 1, 1e-9  # one step a call
    return ks.train(toy_data(300), toy_data(100, 1), Tiny, LOSS, CONFIG, path)


if __name__ == "__main__":
    go(sys.argv[1], slowly=True)
    print("finished", flush=True)
