"""The configurations of the paper as data, and the sweep that runs them."""
