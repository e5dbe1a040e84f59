# ruff: noqa: F811 - a fixture is imported
"""Checkpoints: files that MindSpore wrote, files written here, from one format to the other, and what is refused.

``tests/data/make_checkpoints.py`` made the files with MindSpore 2.10.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.errors import OpbuildError
from opbuild.frontend.wire import BYTES, VARINT, delimited, varint
from opbuild.mindspore import Parameter, Tensor, checkpoint_file, nn
from support.mindspore_host import graphs  # noqa: F401 - a fixture

DATA = Path(__file__).resolve().parents[2] / "data"
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
         "float64"]  # fmt: skip


def small() -> nn.SequentialCell:
    """Return a network with parameters of several kinds."""
    return nn.SequentialCell(nn.Dense(3, 2), nn.BatchNorm1d(2), nn.Dense(2, 2, has_bias=False))


def value(tag: str, label: str, dims: tuple[int, ...], content: bytes) -> bytes:
    """Return one value of a checkpoint."""
    extents = b"".join(varint(1 << 3 | VARINT) + varint(extent) for extent in dims)
    tensor = extents + delimited(2, label.encode()) + delimited(3, content)
    return delimited(1, delimited(1, tag.encode()) + delimited(2, tensor))


@pytest.mark.parametrize(
    ("name", "options"),
    [("kinds.ckpt", {}), ("checksum.ckpt", {"crc_check": True}), ("kinds.safetensors", {"format": "safetensors"})],
)
def test_a_file_that_mindspore_wrote_loads(name, options):
    """Every element type, a number without axes, and what ``append_dict`` added."""
    loaded = ms.load_checkpoint(str(DATA / name), **options)
    for dtype in TYPES:
        parameter = loaded[f"kind.{dtype}_" if dtype == "bool" else f"kind.{dtype}"]
        assert np.array_equal(parameter.asnumpy(), (np.arange(6).reshape(2, 3) % 4).astype(dtype))
        assert parameter.asnumpy().dtype == dtype
    assert loaded["scalar"].shape == ()
    if name == "kinds.ckpt":
        assert (loaded["epoch"].item(), loaded["rate"].item(), loaded["done"].item()) == (3, 0.5, True)
        assert loaded["who"] == "Müller"


def test_a_file_written_here_is_the_one_that_mindspore_writes(tmp_path):
    """The same bytes: MindSpore loads it."""
    loaded = ms.load_checkpoint(str(DATA / "kinds.ckpt"))
    ms.save_checkpoint(loaded, str(tmp_path / "again"))
    assert (tmp_path / "again.ckpt").read_bytes() == (DATA / "kinds.ckpt").read_bytes()
    checked = ms.load_checkpoint(str(DATA / "checksum.ckpt"))
    ms.save_checkpoint(checked, str(tmp_path / "checked.ckpt"), crc_check=True)
    assert (tmp_path / "checked.ckpt").read_bytes() == (DATA / "checksum.ckpt").read_bytes()


def test_a_network_takes_the_parameters_of_another(graphs, tmp_path):
    """Saved, loaded and put into a network of the same layers: the same results, and nothing is left over."""
    net, other = small(), small()
    x = Tensor(np.ones((1, 3), np.float32))
    assert not np.allclose(net(x).asnumpy(), other(x).asnumpy())
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    loaded = ms.load_checkpoint(str(tmp_path / "net.ckpt"))
    assert list(loaded) == [parameter.name for parameter in net.get_parameters()]
    assert ms.load_param_into_net(other, loaded) == ([], [])
    assert np.array_equal(net(x).asnumpy(), other(x).asnumpy())


def test_load_checkpoint_can_load_into_a_network(tmp_path):
    """``net=`` is load_param_into_net at once."""
    net, other = small(), small()
    ms.save_checkpoint(net.trainable_params(), str(tmp_path / "net.ckpt"))
    ms.load_checkpoint(str(tmp_path / "net.ckpt"), other)
    assert np.array_equal(net[0].weight.asnumpy(), other[0].weight.asnumpy())


def test_names_are_chosen_by_prefixes_or_a_function(tmp_path):
    """As in MindSpore: specify_prefix, filter_prefix, choice_func, and both when saving."""
    path = str(tmp_path / "net.ckpt")
    ms.save_checkpoint(small(), path, choice_func=lambda name: not name.startswith("2."))
    assert list(ms.load_checkpoint(path, specify_prefix="0.")) == ["0.weight", "0.bias"]
    assert list(ms.load_checkpoint(path, filter_prefix=["1.", "0.w"])) == ["0.bias"]
    assert list(ms.load_checkpoint(path, choice_func=lambda name: name.endswith("gamma"))) == ["1.gamma"]
    with pytest.raises(ValueError, match="nothing is loaded"):
        ms.load_checkpoint(path, specify_prefix="3.")


def test_what_is_missing_is_returned_and_said(capsys):
    """The network's names without data first, then the dictionary's that nothing takes."""
    data = {"0.weight": Parameter(np.zeros((2, 3), np.float32)), "lost": Parameter(np.zeros(1, np.float32))}
    missing, unused = ms.load_param_into_net(small(), data)
    assert missing == ["0.bias", "1.moving_mean", "1.moving_variance", "1.gamma", "1.beta", "2.weight"]
    assert unused == ["lost"]
    assert "6 of the network's parameters are not loaded" in capsys.readouterr().err


def test_a_prefix_more_in_the_file_is_left_out_unless_strict(capsys):
    """A weight saved as ``network.0.weight`` by a training cell is ``0.weight`` of the network itself."""
    net = small()
    data = {f"network.{p.name}": Parameter(np.ones(p.shape, np.float32)) for p in net.get_parameters()}
    assert len(ms.load_param_into_net(net, data, strict_load=True)[0]) == 7
    assert ms.load_param_into_net(net, data)[0] == []
    assert net[0].weight.asnumpy().tolist() == [[1, 1, 1], [1, 1, 1]]
    assert "network." in capsys.readouterr().err


def test_floats_become_the_networks_floats_unless_strict(capsys):
    """float16 in the file and float32 in the network; an integer is refused."""
    net = nn.Dense(2, 1, has_bias=False)
    half = {"weight": Parameter(np.float16([[1, 2]]))}
    ms.load_param_into_net(net, half)
    assert net.weight.asnumpy().dtype == np.float32
    for data, strict in ((half, True), ({"weight": Parameter(np.int32([[1, 2]]))}, False)):
        with pytest.raises(RuntimeError, match="weight is float32 in the network"):
            ms.load_param_into_net(net, data, strict_load=strict)


def test_another_shape_is_refused():
    """A RuntimeError, as in MindSpore, that names both shapes."""
    with pytest.raises(RuntimeError, match=r"\(1, 2\) in the network and \(2, 2\)") as caught:
        ms.load_param_into_net(nn.Dense(2, 1), {"weight": Parameter(np.zeros((2, 2), np.float32))})
    assert isinstance(caught.value, OpbuildError)


def test_a_tensor_in_several_pieces_is_one(tmp_path, monkeypatch):
    """MindSpore splits above 512 MB; so does opbuild, and joins what follows itself under one name."""
    monkeypatch.setattr(checkpoint_file, "CHUNK", 10)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = tmp_path / "pieces.ckpt"
    ms.save_checkpoint({"a": Parameter(array), "b": Parameter(array + 1)}, str(path))
    assert path.read_bytes().count(b"Float32") == 10
    loaded = ms.load_checkpoint(str(path))
    assert np.array_equal(loaded["a"].asnumpy(), array)
    assert np.array_equal(loaded["b"].asnumpy(), array + 1)


def test_bfloat16_keeps_its_bytes(tmp_path):
    """Two a number, the upper half of a float32's."""
    path = tmp_path / "brain.ckpt"
    path.write_bytes(value("b", "BFloat16", (2,), np.uint16([0x3F80, 0xC000]).tobytes()))
    loaded = ms.load_checkpoint(str(path))["b"]
    assert (loaded.dtype, loaded.asnumpy().tolist()) == (ms.bfloat16, [1.0, -2.0])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"no checkpoint at all, but a text", "no checkpoint"),
        (value("w", "Float32", (3,), b"12345678"), "has 8 bytes"),
        (value("w", "Float32", (2**40, 2**40), b"1234"), "has 4 bytes"),
        (value("w", "Complex64", (1,), b"12345678"), "Complex64"),
        (value("w", "Float32", (1,) * 40, b"1234"), "has the shape"),
        (value("w", "Float32", (1,), b"1234")[:-1], "cut off"),
        (value("w", "str", (0,), b"abc"), "no text"),
        (delimited(1, delimited(1, b"w") + delimited(3, b"")), "MapParameter"),
        (delimited(1, delimited(2, b"")), "without a name"),
        (varint(1 << 3 | BYTES) + varint(2**60), "cut off"),
    ],
)
def test_a_file_that_is_none_is_a_clear_error(tmp_path, content, said):
    """It names the file; it is a ValueError too, as in MindSpore."""
    path = tmp_path / "bad.ckpt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said) as caught:
        ms.load_checkpoint(str(path))
    assert isinstance(caught.value, OpbuildError)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_an_encrypted_file_is_named_as_such():
    """And no key is taken: there is no decryption here."""
    with pytest.raises(ValueError, match="encrypted"):
        ms.load_checkpoint(str(DATA / "encrypted.ckpt"))
    for call in (ms.load_checkpoint, lambda name, **key: ms.save_checkpoint([], name, enc_key=key["dec_key"])):
        with pytest.raises(ValueError, match="enc_key"):
            call("x.ckpt", dec_key=b"0123456789abcdef")


def test_a_wrong_checksum_is_an_error_if_it_is_asked_for(tmp_path):
    """Without crc_check it is not looked at."""
    content = bytearray((DATA / "checksum.ckpt").read_bytes())
    content[-1] ^= 1
    path = tmp_path / "sum.ckpt"
    path.write_bytes(content)
    assert "scalar" in ms.load_checkpoint(str(path))
    with pytest.raises(ValueError, match="checksum"):
        ms.load_checkpoint(str(path), crc_check=True)


def test_files_that_are_not_there_or_can_not_be_written(tmp_path):
    """One line each, with the path."""
    with pytest.raises(ValueError, match="there is no checkpoint"):
        ms.load_checkpoint(str(tmp_path / "none.ckpt"))
    with pytest.raises(ValueError, match=r"must end with \.ckpt"):
        ms.load_checkpoint(str(tmp_path / "none.npz"))
    (tmp_path / "folder.ckpt").mkdir()
    with pytest.raises(ValueError, match="is no file"):
        ms.load_checkpoint(str(tmp_path / "folder.ckpt"))
    with pytest.raises(ValueError, match="is a folder"):
        ms.save_checkpoint(small(), str(tmp_path / "folder.ckpt"))
    with pytest.raises(ValueError, match="cannot be written"):
        ms.save_checkpoint(small(), str(tmp_path / "nowhere" / "net.ckpt"))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.ckpt"]


@pytest.mark.parametrize("given", ["a text", 3, [1], {"w": object()}, {1: 2}])
def test_what_can_not_be_saved_is_a_type_error(tmp_path, given):
    """And no file is left."""
    with pytest.raises(TypeError, match="save_checkpoint"):
        ms.save_checkpoint(given, str(tmp_path / "x.ckpt"))
    assert not list(tmp_path.iterdir())


def saved(path, **parameters):
    """Write a checkpoint of floats by name; the name's ending chooses the format."""
    path.parent.mkdir(exist_ok=True)
    contents = {name: Parameter(Tensor(np.float32(values)), name) for name, values in parameters.items()}
    ms.save_checkpoint(contents, str(path), format=path.suffix[1:])
    return str(path)


def test_the_files_of_each_rank_are_converted(tmp_path):
    """As in MindSpore: of a folder the folders below it that begin with 'rank', and of those the files that match."""
    for rank in (0, 1):
        saved(tmp_path / f"rank_{rank}" / "net-1.ckpt", w=[rank])
        saved(tmp_path / f"rank_{rank}" / "other.ckpt", w=[5])
    saved(tmp_path / "else" / "net-1.ckpt", w=[7])
    ms.ckpt_to_safetensors(str(tmp_path), str(tmp_path / "new"), {"w": "v"}, r"net-\d")
    written = sorted(str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*.*"))
    assert written == ["rank_0/net-1.safetensors", "rank_1/net-1.safetensors"]
    loaded = ms.load_checkpoint(str(tmp_path / "new" / written[1]), format="safetensors")
    assert loaded["v"].asnumpy().tolist() == [1]
    ms.safetensors_to_ckpt(str(tmp_path / "new"))
    assert (tmp_path / "new" / "rank_0" / "net-1.ckpt").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("no.ckpt",), "there is no 'no.ckpt'"),
        (("net.txt",), "must end with .ckpt"),
        (("empty",), "begins with 'rank'"),
        (("net.ckpt", "to.ckpt"), "the name of a folder"),
        (("net.ckpt", None, 3), "name_map"),
        (("net.ckpt", None, None, "("), "file_name_regex"),
        (("net.ckpt", None, None, "^other"), "is not found"),
        ((3,), "file_path"),
        (("net.ckpt", "net.txt/below"), "cannot be made"),
    ],
)
def test_what_can_not_be_converted_is_a_clear_error(tmp_path, monkeypatch, arguments, says):
    """Each argument is named."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "net.ckpt", w=[1])
    (tmp_path / "net.txt").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises((ValueError, TypeError), match=says) as caught:
        ms.ckpt_to_safetensors(*arguments)
    assert isinstance(caught.value, OpbuildError)


def test_what_goes_wrong_in_the_background_is_raised_where_the_result_is_asked_for(tmp_path):
    """The call itself returns at once."""
    future = ms.load_checkpoint_async(str(tmp_path / "no.ckpt"))
    with pytest.raises(ValueError, match="there is no checkpoint"):
        future.result()
    assert ms.load_checkpoint_async(saved(tmp_path / "net.safetensors", w=[2])).result()["w"].asnumpy() == [2]
