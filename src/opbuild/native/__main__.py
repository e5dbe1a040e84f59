"""``python -m opbuild.native``: print the folder of the C sources."""

from pathlib import Path

print(Path(__file__).parent)
