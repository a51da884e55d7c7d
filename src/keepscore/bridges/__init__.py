"""Ways out: likelihoods of this package in the terms of other libraries."""
