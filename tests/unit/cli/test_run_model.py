"""Values of options, and what ``opbuild run`` does with files and arrays."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from opbuild.cli.main import main
from opbuild.cli.run_model import check_inputs, complete_inputs, ports_of, read_inputs, write_outputs
from opbuild.errors import InputError, OptionError, ShapeError
from opbuild.graph.types import TensorType
from opbuild.runtime.endpoint import Endpoint


def _network(**types: TensorType) -> SimpleNamespace:
    return SimpleNamespace(inputs=tuple(Endpoint(name, type_) for name, type_ in types.items()), bound_inputs=())


def test_inputs_that_are_not_given_are_random_and_repeatable() -> None:
    """The same seed gives the same numbers; integers are 0 or 1, so that they are valid indices of any table."""
    network = _network(
        x=TensorType("float32", (2, 3)),
        ids=TensorType("int64", (50,)),
        mask=TensorType("bool", (4,)),
        none=TensorType("float16", ()),
    )
    first, again, other = (complete_inputs(ports_of(network), {}, seed) for seed in (1, 1, 2))
    for name, type_ in ((port.name, port.type) for port in network.inputs):
        assert (str(first[name].dtype), first[name].shape) == (type_.dtype, type_.shape)
        np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first["x"], other["x"])
    assert set(first["ids"]) == {0, 1}


def test_a_given_input_is_used_by_name_or_as_the_only_one() -> None:
    """``--input x=f.npy``, or ``--input f.npy`` for a network with one input."""
    network = _network(x=TensorType("float32", (2,)))
    for given in ({"x": np.ones(2)}, {"": np.ones(2)}):
        np.testing.assert_array_equal(complete_inputs(ports_of(network), given, 0)["x"], np.ones(2))


def test_an_input_that_the_network_lacks_names_those_it_has() -> None:
    """A misspelled name is an error that lists the right ones; a file without a name is ambiguous for two inputs."""
    network = _network(x=TensorType("float32", (2,)), y=TensorType("float32", (2,)))
    for name in ("z", ""):
        with pytest.raises(InputError) as caught:
            check_inputs(network.inputs, {name: np.ones(2, np.float32)}, {})
        assert caught.value.hint.endswith("its inputs are x, y")


def test_the_shape_of_random_data_can_be_given() -> None:
    """An offline model with several variants leaves extents open; ``--shape`` picks one, and must give all."""
    network = _network(x=TensorType("float32", (-1, 3)))
    assert complete_inputs(ports_of(network), {}, 0, {"x": (4, 3)})["x"].shape == (4, 3)
    with pytest.raises(OptionError, match="open shape"):
        complete_inputs(ports_of(network), {}, 0, {"x": (-1, 3)})
    with pytest.raises(ShapeError, match="'z', which is no input"):
        check_inputs(network.inputs, {}, {"z": (4, 3)})


def test_random_data_needs_a_shape() -> None:
    """An open extent without data is an error that names the option that gives it."""
    with pytest.raises(OptionError, match=r"'x' has the open shape \[\?,3\]") as caught:
        complete_inputs(ports_of(_network(x=TensorType("float32", (-1, 3)))), {}, 0)
    assert "--shape" in caught.value.hint


def test_input_files_are_read(tmp_path: Path) -> None:
    """A name may hold an equals sign; the last one divides."""
    np.save(tmp_path / "a.npy", np.arange(3))
    arrays = read_inputs((f"k=v={tmp_path}/a.npy",))
    np.testing.assert_array_equal(arrays["k=v"], np.arange(3))


def test_an_input_file_that_is_no_plain_array_is_refused(tmp_path: Path) -> None:
    """Missing, empty, not .npy, several arrays, or pickled objects, which could run code (F58): an error."""
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "text.npy").write_text("hello")
    np.savez(tmp_path / "several.npz", a=np.ones(1), b=np.ones(1))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("missing.npy", "empty.npy", "text.npy", "several.npz", "objects.npy"):
        with pytest.raises(OptionError, match=name):
            read_inputs((f"x={tmp_path / name}",))


def test_an_input_given_twice_is_refused(tmp_path: Path) -> None:
    """Two files for one input cannot both be meant."""
    np.save(tmp_path / "a.npy", np.arange(3))
    with pytest.raises(OptionError, match="twice"):
        read_inputs((f"x={tmp_path}/a.npy", f"x={tmp_path}/a.npy"))
    with pytest.raises(OptionError, match="without a name"):
        read_inputs((f"{tmp_path}/a.npy", f"x={tmp_path}/a.npy"))


def test_outputs_stay_in_their_folder_whatever_their_names(tmp_path: Path) -> None:
    """Names are data: a path in one cannot leave the folder, and two that look alike as files are both kept."""
    outputs = {"../../evil": np.zeros(1), "a/b": np.ones(1), "a:b": np.full(1, 2.0), "x" * 400: np.full(1, 3.0)}
    write_outputs(outputs, tmp_path / "new" / "out")
    files = {path.name: float(np.load(path)[0]) for path in (tmp_path / "new" / "out").iterdir()}
    assert sorted(files.values()) == [0.0, 1.0, 2.0, 3.0]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_an_output_folder_that_cannot_be_made_is_an_option_error(tmp_path: Path) -> None:
    """A file in the way is reported as the option's fault."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="--output_dir"):
        write_outputs({"y": np.zeros(1)}, tmp_path / "file" / "out")


def test_arguments_after_a_script_belong_to_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that opbuild has too, unknown ones and ``--`` reach the script untouched; its exit code comes back."""
    seen = {}
    stand_in = SimpleNamespace(
        run_script=lambda path, arguments, serve: seen.update(path=path, arguments=arguments, serve=serve) or 7
    )
    monkeypatch.setitem(__import__("sys").modules, "opbuild.cli.run_script", stand_in)
    script = tmp_path / "train.py"
    script.write_text("")
    assert main(["run", str(script), "--workers", "x", "--help", "--", "-n"]) == 7
    assert seen == {"path": script, "arguments": ["--workers", "x", "--help", "--", "-n"], "serve": ()}
    assert main(["run", "--serve=mindspore", "--serve", "onnxruntime", str(script), "--serve", "x"]) == 7
    assert seen == {"path": script, "arguments": ["--serve", "x"], "serve": ("mindspore", "onnxruntime")}


def test_options_before_a_script_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that would be ignored is an error that names it."""
    script = tmp_path / "train.py"
    script.write_text("")
    assert main(["run", "--shape", "x:1", str(script)]) == 2
    assert "--shape" in capsys.readouterr().err


def test_arguments_after_a_model_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model takes no arguments."""
    (tmp_path / "m.onnx").write_bytes(b"")
    assert main(["run", str(tmp_path / "m.onnx"), "extra"]) == 2
    assert "extra" in capsys.readouterr().err


def test_running_a_file_that_is_not_there_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The path is named, and what it should be."""
    assert main(["run", "missing.onnx"]) == 2
    assert "missing.onnx" in capsys.readouterr().err
