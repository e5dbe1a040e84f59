"""Reading data runs none of it: no pickle, no eval, no library by a path from a file (F58)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "src" / "opbuild"

MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "dbm",
    "code",
    "codeop",
}
MODULES |= {"yaml", "tarfile", "zipfile", "xml", "imp", "runpy", "telnetlib", "xmlrpc"}
"""Modules that run what they read, or unpack files under the names that an archive has."""

CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
"""Functions that run text."""

ATTRIBUTES = {
    *("load_module", "exec_module", "exec_code", "module_from_spec", "import_module", "run_path", "run_module"),
    *("memmap", "fromfile", "load_library", "allow_pickle", "LoadLibrary", "CDLL", "dlopen", "PyDLL", "cdll"),
    *("treespec_loads", "weights_only", "find_class", "literal_eval"),
}
"""Attributes that import, run or load what a path or name says."""

OF_OS = {"system", "popen", "execv", "execve", "execvp", "posix_spawn", "startfile"}
"""Those of ``os`` only."""

REVIEWED = {
    ("__init__.py", "import_module"): "modules of this package, from a table in the file",
    ("backend/family_compiler.py", "import_module"): "modules of this package, by the family's name",
    ("backend/halide/debug.py", "import_module"): "modules of this package, by the family's name",
    ("backend/halide/driver.py", "CDLL"): "the installed compiler's library",
    ("backend/halide/driver.py", "import_module"): "modules of this package",
    ("backend/halide/emission.py", "import_module"): "modules of this package, by the family's name",
    ("backend/halide/user_source.py", "compile"): "the operator that the user's program has registered",
    ("backend/halide/user_source.py", "exec"): "the operator that the user's program has registered",
    ("backend/triton/compiler.py", "import_module"): "Triton by its own name; modules of this package, by the family's",
    (
        "backend/triton/source.py",
        "compile",
    ): "kernels of this package: numbers and names of its own tables in its own text",
    ("backend/triton/source.py", "exec"): "kernels of this package",
    ("builder/server.py", "import_module"): "the compiler's class, which the builder names on the command line",
    ("cli/main.py", "import_module"): "modules of this package, from a table in the file",
    ("cli/run_model.py", "allow_pickle"): "it is False",
    ("cli/run_script.py", "run_path"): "the script that the user names",
    ("cli/run_script.py", "runpy"): "the script that the user names",
    ("frontend/onnx_read.py", "memmap"): "external data, below the model's folder, as an array of numbers",
    ("families/catalogue.py", "import_module"): "modules of this package, from a list of its folders",
    ("frontend/onnx_messages.py", "exec_module"): "onnx's own declaration of its messages, by its path in the package",
    ("frontend/onnx_messages.py", "import_module"): "onnx, by its own name",
    ("frontend/onnx_messages.py", "module_from_spec"): "onnx's own declaration of its messages",
    ("offline/wheel.py", "zipfile"): "only written: the wheel of a model pack",
    ("cli/executors.py", "import_module"): "distributed, by its own name",
    ("frontend/torch/capture.py", "getattr of torch"): "names from a table of this package",
    ("runtime/endpoint.py", "getattr of torch"): "one of two names",
    ("torch/decompositions.py", "getattr of torch"): "names from this package",
    ("torch/flat.py", "getattr of torch"): "names that torch's dispatcher has said to be an operator's",
    ("torch/__init__.py", "import_module"): "modules of this package, from a list there",
    ("platform/registry.py", "import_module"): "modules of this package, from tables of the registries' files",
    ("platform/arrange.py", "CDLL"): "this package's own loops, by their path inside the package",
    ("platform/locks.py", "CDLL"): "the process itself, for functions of the C library",
    ("platform/digest.py", "import_module"): "Python's own SHA-256, by its names",
    ("platform/aliases.py", "import_module"): "modules of the face that stands in for a package, by their names",
    ("mindspore/names.py", "import_module"): "modules of this package, from a list in each package",
    ("onnx_backend.py", "compile"): "opbuild's own, of a model",
    ("target/cuda.py", "import_module"): "modules of this package; one of them by the family's name",
    ("target/devices.py", "import_module"): "what the program itself has said serves a class of devices",
    ("session.py", "import_module"): "a module of this package, by its name",
    ("platform/imports.py", "compile"): "sources of this package, to see what they import; nothing of it is run",
    ("platform/records.py", "exec"): "a constructor, made of the names of its class's fields",
    ("runtime/devices/cpu/library.py", "CDLL"): "libm, and this package's own pool by its path",
    ("runtime/devices/cuda/driver.py", "CDLL"): "NVIDIA's driver, by the name that it is installed under",
    ("runtime/devices/cpu/library.py", "dlopen"): "an anonymous file with the bytes that were checked",
}
"""What stays, each with its reason."""


def suspicious(source: str) -> Iterator[str]:
    """Yield the names of what may run data in a program."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            yield from ([str(node.module)] if str(node.module).partition(".")[0] in MODULES else [])
            yield from {alias.name for alias in node.names} & ATTRIBUTES
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                yield node.func.id
            if _is_getattr_of_torch(node):
                yield "getattr of torch"
            yield from (
                str(word.arg) for word in node.keywords if word.arg in ("allow_pickle", "shell", "weights_only")
            )
        elif isinstance(node, ast.Attribute):
            of_os = isinstance(node.value, ast.Name) and node.value.id == "os"
            yield from {node.attr} & (ATTRIBUTES | OF_OS if of_os else ATTRIBUTES)


def _is_getattr_of_torch(node: ast.Call) -> bool:
    """Return whether something of torch is looked up by a name that does not stand there, as a file's might be."""
    is_getattr = isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1
    return is_getattr and not isinstance(node.args[1], ast.Constant) and "torch" in ast.unparse(node.args[0])


def test_nothing_runs_data_but_what_was_reviewed() -> None:
    """Every use in the package is on the list, and everything on the list is used."""
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        for name in suspicious(path.read_text(encoding="utf-8"))
    }
    assert found == set(REVIEWED)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import xml.etree.ElementTree",
        "from marshal import loads",
        "eval('1')",
        "exec(code)",
        "__import__(name)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "from importlib import import_module",
        "import importlib\nimportlib.import_module(name)",
        "import ctypes\nctypes.CDLL(path)",
        "from ctypes import CDLL",
        "import os\nos.system(text)",
        "import subprocess\nsubprocess.run(text, shell=True)",
        "import zipfile",
        "import torch\ngetattr(getattr(torch.ops, space), name)",
        "from torch.utils import _pytree\n_pytree.treespec_loads(text)",
        "import torch\ntorch.load(path, weights_only=False)",
    ],
)
def test_each_way_to_run_data_is_noticed(source: str) -> None:
    """The test above can fail."""
    assert list(suspicious(source))


def test_methods_of_those_names_are_no_functions() -> None:
    """``re.compile`` and one's own ``load`` run nothing."""
    assert list(suspicious("import re\nre.compile('a')\nopbuild.compile(m)\nself.load(x)\nfrom . import compile")) == []
