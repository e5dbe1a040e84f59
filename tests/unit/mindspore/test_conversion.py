"""Checkpoints from one format to the other, and loaded in the background: what calls compared with MindSpore leave."""

from __future__ import annotations

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.errors import OpbuildError
from opbuild.mindspore import Parameter, Tensor


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
        (("net.ckpt", "net.txt/below"), "can not be made"),
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


def test_kinds_of_types_are_no_element_types():
    """``float_`` names floats of any width: a tensor needs one."""
    with pytest.raises(TypeError, match=r"Tensor was given mindspore\.float\b"):
        Tensor([1.0], ms.float_)
