"""The runtime: memory planning, linking, stored network images and the callable network."""
