"""Loading and running built networks."""
