"""Regions of images, sampled in bins."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.dims import free_dims
from opbuild.families.family import FLOATS, Dims, Family, elements, only_variant
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: 4 a sample, which has four neighbours."""
    return elements(shapes[-1]) * 4.0 * int(desc.attrs["samples"]) ** 2


def describe(mode: str, half_pixel: bool, samples: int, dtype: str) -> OpDesc:
    """Return the descriptor of a ``RoiAlign``; operands x, rois, batch, scale, bins and out.

    Args:
        mode: ``avg`` or ``max``.
        half_pixel: Whether pixels are at the halves, and regions may be smaller than one.
        samples: Samples of a bin in each dimension.
        dtype: Element type.
    """
    inputs = (
        Operand("x", dtype, (Dim(stride=1, min=1), Dim(min=1), Dim(), Dim(min=1))),
        Operand("rois", dtype, (Dim(4, 1), Dim(stride=4))),
        Operand("batch", "int64", (Dim(stride=1),)),
        Operand("scale", dtype, (Dim(1, 1),)),
        Operand("bins", "int32", (Dim(stride=0), Dim(stride=0))),
    )
    out = Operand("out", dtype, free_dims(4, inner_stride=1))
    attrs = {"mode": mode, "half_pixel": half_pixel, "samples": samples}
    return FAMILY.desc(("RoiAlign",), inputs, (out,), attrs, {})


FAMILY = Family(
    "roi_align", only_variant, attributes=("mode", "half_pixel", "samples"), types=FLOATS, least_extent=1, work=work
)
