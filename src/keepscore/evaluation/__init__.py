"""How good is a surrogate? The L-test, the E-test, the scorecard, equivalence."""
