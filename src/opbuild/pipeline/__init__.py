"""The steps of the data path, and what they work with; ``api`` puts them in order."""
