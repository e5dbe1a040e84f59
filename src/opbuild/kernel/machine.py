"""What ``backend.halide.emission`` imports, whose text is in the digest of every pipeline: see ``target.machine``."""

from opbuild.target.machine import Machine

__all__ = ["Machine"]
