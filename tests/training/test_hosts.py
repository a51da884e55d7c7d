"""One surrogate trained by two processes, as on two hosts: the numbers are those of one process."""

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from keepscore.training import hosts

SCRIPT = """
import os, sys
import jax
rank, processes, port, folder, epochs, seed = sys.argv[1:]
if processes != "1":
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", int(processes), int(rank))
import numpy as np
import keepscore as ks
data = ks.simulate(ks.models.GaussianField(shape=(4, 4)), 1024, jobs=1, seed=int(seed))
config = ks.TrainConfig(min_epochs=int(epochs), batch_size=32)
found = ks.train(data, network="mlp-1k", config=config, path=folder, progress=False)
rng = np.random.default_rng(0)
theta = data.space.draw(50, rng)
np.save(f"{folder}-{rank}.npy", found.log_ratio(theta, rng.normal(size=(50, 4, 4))))
"""


LONGEST = 600  # seconds, on a busy machine


def start(rank, processes, port, folder, epochs=6, seed=0):
    words = [rank, processes, port, folder, epochs, seed]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, words)],
        env={**os.environ, "XLA_FLAGS": ""},
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def both(folder, **settings):
    port = free_port()
    seeds = settings.pop("seeds", (0, 0))
    running = [start(r, 2, port, folder, seed=seeds[r], **settings) for r in (0, 1)]
    try:
        said = [one.communicate(timeout=LONGEST)[1] for one in running]
    finally:
        for one in running:
            one.kill()
    return [one.returncode for one in running], said


def answers(folder, rank):
    return np.load(f"{folder}-{rank}.npy")


def test_one_process_agrees_with_itself():
    assert not hosts.several()
    assert hosts.is_first()
    assert hosts.agree(7, False) == (7, False)
    assert hosts.agree(7, True) == (7, True)
    hosts.require_same({"data": "anything"})
    hosts.meet("nowhere")


@pytest.mark.slow
def test_two_processes_train_the_network_of_one(tmp_path):
    codes, said = both(tmp_path / "two")
    assert codes == [0, 0], said
    alone = start(0, 1, 0, tmp_path / "one")
    assert alone.wait(timeout=LONGEST) == 0, alone.stderr.read()
    one = answers(tmp_path / "one", 0)
    assert np.ptp(one) > 1e-3
    for rank in (0, 1):
        np.testing.assert_allclose(answers(tmp_path / "two", rank), one, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_processes_with_different_data_say_so_and_end(tmp_path):
    codes, said = both(tmp_path / "two", seeds=(0, 1))
    assert all(codes)
    assert all("differ in data" in text for text in said), said
    assert not (tmp_path / "two" / "surrogate.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_one_is_killed_and_the_run_goes_on_where_it_was(tmp_path):
    """Rank 1 dies without a word; rank 0 is ended too, as a batch system would do. The second run
    begins after the first one's checkpoint, and ends in the network of a run without a break."""
    epochs = 60
    codes, said = both(tmp_path / "whole", epochs=epochs)
    assert codes == [0, 0], said
    port = free_port()
    running = [start(r, 2, port, tmp_path / "broken", epochs=epochs) for r in (0, 1)]
    history = tmp_path / "broken" / "history.jsonl"
    until = time.monotonic() + 120
    while time.monotonic() < until and running[0].poll() is None:
        if history.exists() and history.read_text().count('"epoch"') > 6:
            break
        time.sleep(0.05)
    running[1].send_signal(signal.SIGKILL)
    time.sleep(1.0)
    running[0].kill()
    for one in running:
        assert one.wait(timeout=60) != 0, "it had ended before it was killed"
    assert not (tmp_path / "broken" / "surrogate.json").exists()
    codes, said = both(tmp_path / "broken", epochs=epochs)
    assert codes == [0, 0], said
    whole = answers(tmp_path / "whole", 0)
    np.testing.assert_allclose(answers(tmp_path / "broken", 1), whole, rtol=1e-6, atol=1e-7)
