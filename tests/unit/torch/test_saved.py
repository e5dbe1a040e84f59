"""Saved torch modules: a file runs no code, whatever it names, and is believed as the cache is (F58)."""

from __future__ import annotations

import collections
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opbuild.errors import FileError, InvalidModelError, OpbuildError, RunError, UnsupportedOperatorError

torch = pytest.importorskip("torch", reason="saved modules are torch's")

from torch.utils import _pytree as pytree  # noqa: E402

import opbuild.torch  # noqa: E402
from opbuild.platform.files.trust import Trust, seal, unseal  # noqa: E402
from opbuild.torch.flat import overload  # noqa: E402
from opbuild.torch.saved import _FORM, _OLD, read_saved  # noqa: E402
from opbuild.torch.trees import spec_of, tree_of  # noqa: E402
from support.torch_started import Plain, Small, rows  # noqa: E402

Pair = collections.namedtuple("Pair", ("first", "second"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A saved module of whose graph torch computes a part."""
    path = tmp_path_factory.mktemp("saved") / "net"
    opbuild.torch.save(path, Small().eval(), (rows(3),), {"bias": torch.ones(4)})
    return path.read_bytes()


@pytest.fixture
def changed(saved: bytes, tmp_path: Path) -> Callable[[Callable[[Any], None]], Path]:
    """Return a function that changes what a file holds, and seals it again."""

    def change(what: Callable[[Any], None]) -> Path:
        content = unseal(saved, _FORM)
        what(content)
        path = tmp_path / "changed"
        path.write_bytes(seal(content, _FORM))
        return path

    return change


def left_to_torch(content: Any) -> Any:
    """Return the step that torch computes."""
    return next(step for step in content["graph"][2] if step[0].startswith("aten."))


@pytest.mark.parametrize(
    "target",
    [
        *(
            "load_library.__call__.__call__",
            "aten.__init__.default",
            "aten.relu.__class__",
            "aten.relu.op",
            "os.system.x",
        ),
        *(
            "aten.from_file.default",
            "aten.from_file.out",
            "aten.save.default",
            "aten._print.default",
            "aten._backward.default",
        ),
        *(
            "aten.relu_.default",
            "aten.add.out",
            "aten.relu",
            "aten..default",
            "aten.relu.default\n",
            "",
            "sym.__import__",
        ),
        *("quantized.linear.default", "higher_order.cond.default", "profiler._record_function_enter.default"),
        *("aten.relu.defaul\0t", "aten.\u0661.x", "a" * 5000, "part.nothing", "import_module.a.b"),
    ],
)
def test_a_file_calls_operators_that_compute_results_and_nothing_else(
    changed: Callable[[Callable[[Any], None]], Path], target: str
) -> None:
    """Functions and attributes of torch, files, operators in place and of libraries are refused when it is loaded."""

    def change(content: Any) -> None:
        left_to_torch(content)[0] = target

    with pytest.raises(InvalidModelError):
        opbuild.torch.load(changed(change), Small().eval())


def test_a_library_that_a_file_names_is_not_loaded(
    changed: Callable[[Callable[[Any], None]], Path], tmp_path: Path
) -> None:
    """The name of torch's function that loads libraries, with a path, was called at the first call."""
    loaded = list[str]()
    library = tmp_path / "library.so"
    library.write_bytes(b"not one")

    def change(content: Any) -> None:
        left_to_torch(content)[:] = ["load_library.__call__.__call__", left_to_torch(content)[1], [str(library)], {}]

    sys.addaudithook(lambda event, args: loaded.append(str(args)) if event == "ctypes.dlopen" else None)
    with pytest.raises(InvalidModelError):
        opbuild.torch.load(changed(change), Small().eval())
    assert not [each for each in loaded if "library.so" in each]


CANARY = "opbuild_planted_module"


@pytest.mark.parametrize(
    "tree",
    [
        {"class": ["collections.defaultdict", json.dumps({"default_factory_module": CANARY}), [None]]},
        {"class": ["collections.namedtuple", CANARY, [None]]},
        {"class": [f"{CANARY}.Class", [], [None]]},
        {"class": ["builtins.list", None, [None]]},
        {"dict": [[{"__enum__": True, "fqn": f"{CANARY}:x", "name": "a"}, None]]},
        {"dict": [["a", None], ["a", None]]},
        [1, {"type": "builtins.dict", "context": json.dumps([{"__enum__": True, "fqn": f"{CANARY}:A"}])}],
        *({"list": None}, {"tuple": [3]}, {"list": [], "tuple": []}, {}, "list", {"set": [None]}),
    ],
)
def test_a_tree_that_names_modules_imports_none(
    changed: Callable[[Callable[[Any], None]], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tree: Any
) -> None:
    """Torch's own reader imports the factory of a ``defaultdict`` and the class of an enumeration."""
    (tmp_path / f"{CANARY}.py").write_text("import os\nos.environ['OPBUILD_CANARY'] = 'ran'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for field in ("arguments", "returned"):
        with pytest.raises(InvalidModelError):
            opbuild.torch.load(changed(lambda content, name=field: content.update({name: tree})), Small().eval())
    assert CANARY not in sys.modules
    assert "OPBUILD_CANARY" not in os.environ


def test_trees_keep_what_they_are_of() -> None:
    """Lists, tuples, dictionaries with keys in their order, and classes that the process has registered."""
    if Pair not in pytree.SUPPORTED_SERIALIZED_TYPES:
        pytree._register_namedtuple(Pair, serialized_type_name="test_saved_modules.Pair")
    for value in (1, [1, (2, [])], {"b": 1, "a": {3: None}}, collections.OrderedDict(z=1, a=[2]), Pair(1, [2, 3])):
        spec = pytree.tree_structure(value)
        tree = json.loads(json.dumps(tree_of(spec)))
        leaves = pytree.tree_leaves(value)
        assert pytree.tree_unflatten(leaves, spec_of(tree)) == value
    with pytest.raises(UnsupportedOperatorError, match="defaultdict cannot be saved"):
        tree_of(pytree.tree_structure(collections.defaultdict(list, a=1)))


def test_results_of_transformers_keep_their_class(tmp_path: Path, shared_store: Path) -> None:
    """A class that the process has imported is made; one that it has not is an error that says so."""
    outputs = pytest.importorskip("transformers.modeling_outputs", reason="its classes are what this is about")

    class Model(Plain):
        def forward(self, x: Any) -> Any:
            return outputs.BaseModelOutput(last_hidden_state=super().forward(x))

    path = tmp_path / "net"
    model = Model().eval()
    opbuild.torch.save(path, model, (rows(3),))
    assert read_saved(path).returned == {
        "class": ["transformers.modeling_outputs.BaseModelOutput", ["last_hidden_state"], [None]]
    }
    loaded = opbuild.torch.load(path, model, options={"cache_path": str(shared_store), "num_threads": 1})
    found = loaded(rows(3))
    assert isinstance(found, outputs.BaseModelOutput)
    torch.testing.assert_close(found.last_hidden_state, model(rows(3)).last_hidden_state)


def test_operators_of_a_library_are_called_where_the_caller_allows_them(tmp_path: Path) -> None:
    """What registers them runs in the process already; the file alone does not decide that they are called."""

    @torch.library.custom_op("opbuild_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return twice(x)

    path = tmp_path / "net"
    saved = opbuild.torch.save(path, Model().eval(), (rows(3),))
    torch.testing.assert_close(saved(rows(3)), rows(3) * 2)
    with pytest.raises(InvalidModelError, match=r"only operators of aten, prims count") as refused:
        opbuild.torch.load(path, Model().eval())
    assert "namespaces=['opbuild_test']" in refused.value.hint
    loaded = opbuild.torch.load(path, Model().eval(), namespaces=["opbuild_test"])
    torch.testing.assert_close(loaded(rows(3)), rows(3) * 2)


def test_overloads_are_looked_up_among_registered_operators() -> None:
    """What is named without a namespace that counts is refused before anything is looked up."""
    assert overload("aten.add.Tensor") is torch.ops.aten.add.Tensor
    assert overload("aten.relu.default") is torch.ops.aten.relu.default
    with pytest.raises(InvalidModelError, match="torch has no operator"):
        overload("nothing_of_the_kind.add.Tensor", None)
    assert "nothing_of_the_kind" not in vars(torch.ops)


def test_a_saved_module_that_others_can_write_to_is_refused(saved: bytes, tmp_path: Path) -> None:
    """The rule is that of the cache: who may write decides what runs."""
    path = tmp_path / "net"
    path.write_bytes(saved)
    path.chmod(0o666)
    with pytest.raises(InvalidModelError, match="is not used: everybody may write to it"):
        opbuild.torch.load(path, Small().eval())
    assert read_saved(path, Trust(shared=True)).given
    path.chmod(0o644)
    assert read_saved(path).given
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        with pytest.raises(InvalidModelError, match="user 12345 owns it"):
            read_saved(path)


def test_a_saved_module_is_signed_as_the_cache_is(
    saved: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a key, one that was saved without it is refused."""
    path, other = tmp_path / "net", tmp_path / "other"
    other.write_bytes(saved)
    monkeypatch.setenv("OPBUILD_SIGNING_KEY", "0123456789abcdef")
    opbuild.torch.save(path, Plain().eval(), (rows(3),))
    assert opbuild.torch.load(path, Plain().eval())
    with pytest.raises(InvalidModelError, match="is not used: it is not signed"):
        opbuild.torch.load(other, Small().eval())


def test_a_file_that_is_too_large_or_none_is_an_error_at_once(saved: bytes, tmp_path: Path) -> None:
    """A sparse file of a terabyte is not read, a folder is no file, a pipe makes nobody wait."""
    path, pipe = tmp_path / "net", tmp_path / "pipe"
    path.write_bytes(saved)
    os.truncate(path, 2**40)
    os.mkfifo(pipe)
    for each in (path, pipe, tmp_path):
        with pytest.raises(FileError, match="cannot be read"):
            read_saved(each)


def test_a_module_that_an_older_release_saved_is_to_be_saved_again(tmp_path: Path) -> None:
    """Its trees are torch's, whose reading imports what they name."""
    path = tmp_path / "net"
    path.write_bytes(seal({"form": _OLD}, _OLD))
    with pytest.raises(InvalidModelError, match="was saved by an older opbuild") as refused:
        read_saved(path)
    assert refused.value.hint == "save the module again"


@pytest.mark.parametrize(
    ("target", "args"),
    [
        *(("sym.mul", ["x" * 1000, 2**40]), ("sym.pow", [2**62, 2**62]), ("sym.mul", [2**62, 2**62])),
        *(("sym.mul", [["a"], 2**40]), ("sym.add", [1, "a"]), ("sym.getitem", [1, 2]), ("sym.floordiv", [1, 0])),
        *(("aten.ones.default", [[2**62, 2**62]]), ("aten.relu.default", []), ("aten.relu.default", ["x"])),
    ],
)
def test_a_step_that_fails_or_would_fill_the_memory_is_an_error_of_opbuild(
    changed: Callable[[Callable[[Any], None]], Path], target: str, args: list[Any]
) -> None:
    """Texts and lists are not multiplied, integers stay small, and what torch raises is told with the step."""

    def change(content: Any) -> None:
        step = left_to_torch(content)
        content["graph"][2].insert(0, [target, "planted", args, {}])
        assert step

    loaded = opbuild.torch.load(changed(change), Small().eval())
    with pytest.raises(RunError, match=f"{target} fails at 'planted'"):
        loaded(rows(3), bias=torch.ones(4))


def test_weights_are_looked_up_in_the_modules_tables_and_nowhere_else(
    changed: Callable[[Callable[[Any], None]], Path],
) -> None:
    """A property of the module, whose code would run, is no place of weights."""

    class Watched(Small):
        asked = 0

        @property
        def trap(self) -> Any:
            type(self).asked += 1
            return self.first

    def change(content: Any) -> None:
        given = next(each for each in content["given"] if each[0] == "state" and "." in each[1])
        given[1] = "trap.weight"

    with pytest.raises(OpbuildError, match="the module has no trap"):
        opbuild.torch.load(changed(change), Watched().eval())
    assert Watched.asked == 0
