"""Statistics with a likelihood, exact or surrogate: estimates, tests, sets, posteriors."""
