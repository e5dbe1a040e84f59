"""The steps of the data path, and their stores and settings; ``api`` puts them in order."""
