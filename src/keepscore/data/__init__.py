"""Simulated datasets: the record, the workers that fill it, the store on disk."""

from keepscore.cluster import dask_client
from keepscore.data.dataset import Dataset, dataset
from keepscore.data.provenance import environment
from keepscore.data.reading import Status, finish, open_dataset, status
from keepscore.data.simulate import simulate, simulate_share
from keepscore.data.verification import Damage, Verification, repair, verify

__all__ = [
    "Damage",
    "Dataset",
    "Status",
    "Verification",
    "dask_client",
    "dataset",
    "environment",
    "finish",
    "open_dataset",
    "repair",
    "simulate",
    "simulate_share",
    "status",
    "verify",
]
