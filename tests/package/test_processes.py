"""Worker processes: what they hold, on how many threads, and what they say when they cannot."""

import os
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from keepscore.errors import DomainError, SimulationError
from keepscore.processes import ONE_THREAD, cores, in_worker, one_thread, packed, start_pool


def held_sum(shift):
    return float(np.sum(in_worker())) + shift, os.getpid()


def environment(names):
    return {name: os.environ.get(name) for name in names}


def threads():
    return {library["filepath"]: library["num_threads"] for library in threadpool_info()}


def test_a_pool_holds_one_object_and_its_workers_have_one_thread():
    with start_pool(packed(np.arange(5.0), "The sum"), 1) as pool:
        first, second = (pool.submit(held_sum, shift).result() for shift in (0.0, 0.5))
        there = pool.submit(environment, list(ONE_THREAD)).result()
    assert (first[0], second[0]) == (10.0, 10.5)
    assert first[1] == second[1] != os.getpid()
    assert there == ONE_THREAD


def test_what_cannot_travel_is_named():
    with pytest.raises(SimulationError, match="The likelihood cannot be sent to worker"):
        packed(threading.Lock(), "The likelihood")


def test_one_thread_ends_where_it_began():
    with one_thread():  # loads what it needs
        pass
    before = threads()
    with one_thread():
        assert set(threads().values()) == {1}
    assert threads() == before


@pytest.mark.parametrize("jobs", [0, -1, True, 1.0, "2"])
def test_the_number_of_processes_is_a_count(jobs):
    with pytest.raises(DomainError, match="jobs is a number of processes"):
        cores(jobs)


def test_all_cores_unless_told_otherwise():
    assert cores(3) == 3
    assert 1 <= cores(None) <= (os.cpu_count() or 1)
