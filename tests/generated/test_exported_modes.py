"""Modules with modes, exported from torch by both exporters: their files compute what torch does."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import onnx
import pytest

torch = pytest.importorskip("torch", reason="exporting needs torch")

from torch.nn import functional as F  # noqa: E402

from opbuild.backend.evaluate import evaluate  # noqa: E402
from opbuild.frontend.onnx_model import load_model  # noqa: E402
from support.comparison import onnxruntime_outputs  # noqa: E402
from support.fuzzing import CAMPAIGN, check_seeds  # noqa: E402
from support.graph_runner import run_graph  # noqa: E402
from support.tiers import spans  # noqa: E402

MODULES = spans(12, 4)
"""Modules that are exported."""

EXPORTERS = (False, True) if find_spec("onnxscript") else (False,)
"""Whether each exporter is the newer one, which needs the package onnxscript."""

Drawn = tuple[Callable[..., Any], tuple[Any, ...]]


class Module(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        """Call it."""
        return self.function(*given)


def _image(draw: random.Random, rank: int = 2, least: int = 2) -> Any:
    made = torch.Generator().manual_seed(draw.getrandbits(30))
    return torch.randn((1, 2, *(draw.randint(least, 8) for _ in range(rank))), generator=made) * 3


def _resized(draw: random.Random) -> Drawn:
    mode = draw.choice(("nearest", "bilinear", "bicubic"))
    options: dict[str, Any] = {"mode": mode}
    if draw.random() < 0.5:
        options["size"] = [draw.randint(1, 12), draw.randint(1, 12)]
    else:
        options["scale_factor"] = draw.choice((2.0, 1.7, 1.5, 0.6, 2.3, 0.75, 3.0, 1.25, (1.5, 0.7)))
        if draw.random() < 0.3:
            options["recompute_scale_factor"] = True
    if mode != "nearest":
        options["align_corners"] = draw.random() < 0.5
    return lambda x: F.interpolate(x, **options), (_image(draw),)


def _sampled(draw: random.Random) -> Drawn:
    mode, padding = draw.choice(("nearest", "bilinear", "bicubic")), draw.choice(("zeros", "border", "reflection"))
    aligned, x = draw.random() < 0.5, _image(draw)
    grid = _image(draw)[:1, :, :3, :4].repeat(1, 1, 2, 2)[:, :, :3, :4].permute(0, 2, 3, 1) / 3
    if draw.random() < 0.3:  # places half way between two pixels
        extents = torch.tensor(x.shape[:1:-1])
        places = torch.round(grid * extents * 2) / 2
        grid = places * 2 / (extents - 1) - 1 if aligned else (2 * places + 1) / extents - 1
    return lambda x, g: F.grid_sample(x, g, mode, padding, aligned), (x, grid.contiguous())


def _padded(draw: random.Random) -> Drawn:
    mode = draw.choice(("constant", "reflect", "replicate"))
    pads = [draw.randint(0 if mode == "reflect" else -1, 1) for _ in range(4)]
    return lambda x: F.pad(x, pads, mode), (_image(draw, 2, 3),)


def _pooled(draw: random.Random) -> Drawn:
    kernel, stride, ceil = draw.randint(1, 3), draw.randint(1, 3), draw.random() < 0.5
    padding, counted = draw.randint(0, kernel // 2), draw.random() < 0.5
    kind, dilation = draw.randrange(4), draw.choice((1, 2))
    if kind == 0:
        return lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil, counted), (_image(draw, 2, 4),)
    if kind == 1:
        return lambda x: F.max_pool2d(x, kernel, stride, padding, dilation, ceil), (_image(draw, 2, 6),)
    if kind == 2:
        return lambda x: F.max_pool2d(x, kernel, stride, padding, 1, ceil, return_indices=True), (_image(draw, 2, 4),)
    return lambda x: F.lp_pool2d(x, 2, kernel, stride, ceil), (_image(draw, 2, 4),)


def _rounded(draw: random.Random) -> Drawn:
    x = torch.round(_image(draw) * 4) / 2
    functions: list[Callable[..., Any]] = [
        torch.round, torch.trunc, lambda x: torch.div(x, 0.75, rounding_mode="floor"),
        lambda x: torch.div(x, -1.5, rounding_mode="trunc"), lambda x: torch.remainder(x, 1.5), lambda x: x % -2.0,
        lambda x: torch.fmod(x, 1.5), lambda x: x.to(torch.int32) // 3, lambda x: x.to(torch.int64) % -3,
        lambda x: x.to(torch.int32), lambda x: x.clamp(-1.5, 2.5), F.relu6, F.hardtanh,
    ]  # fmt: skip
    return draw.choice(functions), (x,)


def _chosen(draw: random.Random) -> Drawn:
    x, axis = _image(draw), draw.choice((0, 1, 2, 3, -1))
    keep, largest = draw.random() < 0.5, draw.random() < 0.5
    index = torch.tensor([0, -1, 1])
    functions: list[Callable[..., Any]] = [
        lambda x: torch.topk(x, 1, axis, largest), lambda x: torch.sort(x, axis, largest)[0],
        lambda x: x.argmax(axis, keep), lambda x: x.max(axis, keep), lambda x: x.cumsum(axis),
        lambda x: torch.index_select(x, 3, index.abs()), lambda x: x[:, :, index], lambda x: x.flip(axis),
        lambda x: x.std(axis, correction=int(keep)), lambda x: torch.linalg.vector_norm(x, 3, axis, keep),
        lambda x: x.softmax(axis), lambda x: x.log_softmax(axis), lambda x: torch.roll(x, 1, axis),
    ]  # fmt: skip
    return draw.choice(functions), (x,)


KINDS = (_resized, _resized, _sampled, _sampled, _padded, _pooled, _rounded, _chosen)


def exported(module: Any, given: tuple[Any, ...], dynamo: bool) -> onnx.ModelProto | None:
    """Return a module's file; None if the exporter cannot write it."""
    file = io.BytesIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        try:
            if dynamo:
                torch.onnx.export(module, given, dynamo=True, verbose=False).save(file)
            else:
                torch.onnx.export(module, given, file, dynamo=False, opset_version=20)
        except Exception:  # an exporter raises anything
            return None
    return onnx.load_from_string(file.getvalue())


def outcome(seed: int, dynamo: bool) -> str:
    """Return the outcome of a module: ``same`` as torch, ``not exported``, or ``as written``: the exporter's own error.

    Raises:
        AssertionError: If the file gives neither what torch does nor what ONNX Runtime makes of it.
    """
    draw = random.Random(seed)
    function, given = draw.choice(KINDS)(draw)
    module = Module(function).eval()
    try:
        results = module(*given)
    except RuntimeError:
        return "no module"
    model = exported(module, given, dynamo)
    if model is None:
        return "not exported"
    expected = [each.numpy() for each in (results if isinstance(results, tuple) else (results,))]
    graph = load_model(model).bind({}, evaluate)
    feeds = dict(zip(graph.inputs, (each.numpy() for each in given), strict=False))
    found = run_graph(graph, feeds)
    if all(map(_alike, found, expected)):
        return "same"
    assert all(map(_alike, found, onnxruntime_outputs(model, feeds))), f"seed {seed}: not what torch computes"
    return "as written"


def _alike(found: Any, expected: Any) -> bool:
    same = found.shape == expected.shape and found.dtype == expected.dtype
    return same and torch.allclose(torch.tensor(found), torch.tensor(expected), 1e-4, 1e-4, equal_nan=True)


@pytest.mark.timeout(36000 if CAMPAIGN else 600)
@pytest.mark.parametrize("seeds", MODULES)
def test_files_of_both_exporters_compute_what_torch_computes(seeds: range) -> None:
    """Interpolation, sampling, padding, pools, rounding, choosing: three of four modules by the older exporter."""

    def one(seed: int) -> str:
        dynamo = EXPORTERS[seed % 4 == 0 and len(EXPORTERS) > 1]
        return f"{outcome(seed, dynamo)}, {'dynamo' if dynamo else 'script'}"

    logging.disable(logging.WARNING)
    try:
        outcomes = check_seeds("exported modules", one, seeds, processes=0).outcomes
    finally:
        logging.disable(logging.NOTSET)
    assert all(outcomes[f"same, {'dynamo' if each else 'script'}"] for each in EXPORTERS)


@pytest.mark.parametrize("dynamo", EXPORTERS)
@pytest.mark.parametrize(
    ("function", "given"),
    [
        (
            lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=True),
            (torch.arange(35.0).reshape(1, 1, 5, 7).sin(),),
        ),
        (
            lambda x, g: F.grid_sample(x, g, "bicubic", "border", align_corners=False),
            (torch.arange(16.0).reshape(1, 1, 4, 4), torch.tensor([[[[0.9, 0.0], [-1.3, 0.4]]]])),
        ),
    ],
)
def test_what_was_off_torch_is_torchs(function: Callable[..., Any], given: tuple[Any, ...], dynamo: bool) -> None:
    """Aligned corners by a scale that makes a fraction; cubic curves at the border."""
    model = exported(Module(function).eval(), given, dynamo)
    assert model is not None
    graph = load_model(model).bind({}, evaluate)
    (found,) = run_graph(graph, dict(zip(graph.inputs, (each.numpy() for each in given), strict=True)))
    torch.testing.assert_close(torch.tensor(found), function(*given), rtol=1e-5, atol=1e-5)
