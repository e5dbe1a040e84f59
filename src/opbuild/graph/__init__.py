"""The graph types that every stage shares, and the passes over them."""
