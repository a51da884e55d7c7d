"""Simulated datasets: the record, the workers that fill it, the store on disk."""
