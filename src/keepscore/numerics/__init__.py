"""Exact numerics, free of domain words: Markov chains on graphs, block forms of covariances."""
