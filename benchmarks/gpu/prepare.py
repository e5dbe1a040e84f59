"""Prepare what ``gpu_field.py`` needs on a machine with a GPU that reaches no package index: ``build/gpu-field``.

    python benchmarks/gpu/prepare.py [--networks BERT ...] [--dtypes fp16 ...] [--small]

It has the networks as ONNX files whose weights are beside them (which ``gpu_field.py`` makes anew: they are large, and
follow from their names), a pack of their kernels, and the packages that opbuild needs to start, for several Pythons.
Nothing of it needs a GPU. The pack's kernels are compiled once: later runs take them from ``build/gpu-field/store``.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import torch
from networks import DTYPES, Chain, Network, fed, file_name, made, selected, shapes_of, write_weights

FOLDER = Path(__file__).resolve().parents[2] / "build" / "gpu-field"
BATCHES = (1, 8)
PACKAGES = ("blake3", "ml_dtypes")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def write_model(network: Network, name: str, dtype: str, folder: Path) -> Path:
    """Export a network, for any batch, and return its file; its weights lie in one file beside it."""
    buffer = io.BytesIO()
    module, x = made(network, DTYPES[dtype]), fed(network, 2, DTYPES[dtype])
    axes = {0: "batch"}
    if isinstance(module, Chain):  # it is computed to be traced: all rows of a large product take a CPU an hour
        x, axes[1] = x[:, :16], "rows"
    torch.onnx.export(
        module, (x,), buffer, input_names=[input_of(name)], output_names=["y"], dynamic_axes={input_of(name): axes},
        opset_version=18, do_constant_folding=False, dynamo=False,
    )  # fmt: skip
    model = onnx.load_from_string(buffer.getvalue())
    data = f"{file_name(name, dtype)}.weights"
    at, names = 0, list(shapes_of(network))
    initializers = {each.name: each for each in model.graph.initializer}
    for each in names:
        tensor = initializers[each]
        size = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", data), ("offset", at), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        at += size
    path = folder / f"{file_name(name, dtype)}.onnx"
    onnx.save(model, path)
    write_weights(network, dtype, folder / data)
    return path


def input_of(name: str) -> str:
    """Return the name of a network's input: each has its own, so that shapes of all can be given together."""
    return name.replace(" ", "_")


def shapes(networks: dict[str, Network]) -> Iterator[str]:
    """Yield the options that name the shapes of a pack."""
    for batch in BATCHES:
        given = {input_of(name): network.feed(batch).shape for name, network in networks.items()}
        yield from ("--shape", ";".join(f"{name}:{','.join(map(str, shape))}" for name, shape in given.items()))


def fetch_packages(folder: Path) -> None:
    """Have the packages that opbuild needs to start, unpacked, for each Python."""
    for version in PYTHONS:
        target = folder / version
        if target.exists():
            continue
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run(
            [*pip, "--python-version", version, "--platform", "manylinux2014_x86_64", "--dest", target, *PACKAGES],
            check=True,
        )
        for wheel in target.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(target)
            wheel.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all of it; return the pack's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=[], help="these only")
    parser.add_argument("--dtypes", nargs="*", choices=list(DTYPES), default=list(DTYPES), help="these only")
    parser.add_argument("--small", action="store_true", help="small networks, as tests have them")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    folder: Path = given.folder
    networks = selected(given.networks, small=given.small)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, network in networks.items():
        for dtype in given.dtypes:
            files.append(write_model(network, name, dtype, folder))
            print(files[-1].name, flush=True)
    pack = [sys.executable, "-m", "opbuild", "pack", *files, "-o", folder / "field.pack", "--target", "cuda", "--all"]
    store = ["--cache_path", folder / "store"]
    done = subprocess.run([*pack, *store, *shapes(networks)], check=False)
    for path in folder.glob("*.weights"):
        path.unlink()
    fetch_packages(folder / "packages")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
