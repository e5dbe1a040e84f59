"""What ``backend.halide.emission`` imports, whose text is in the digest of every pipeline: see ``target.level``."""

from opbuild.target.level import Level

__all__ = ["Level"]
