"""A trained network, its space and its provenance."""
