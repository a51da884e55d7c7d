"""From a model to an answer in one call: rounds of simulations, and the whole way at once."""
