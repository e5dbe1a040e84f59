"""A remote store as users meet it: variables, commands, reports, and what nobody pays who has none."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.cli.main import main
from opbuild.errors import OptionError
from opbuild.kernel.reason import Reason
from opbuild.pipeline.remote import _uploads, service_at
from opbuild.store.remote.service import Service
from support.full_disk import python_on_a_small_disk
from support.open_rows import model as rows_model
from support.remote_servers import PATIENTLY, free_port, http_server
from support.small_network import SHAPE, small_model

pytestmark = pytest.mark.usefixtures("kept_objects", "patient")

X = np.linspace(-1, 1, 64 * 256, dtype=np.float32).reshape(SHAPE)
"""What the network is called with."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and a folder to which a build with the remote store in mode ``write`` wrote it."""
    folder = tmp_path_factory.mktemp("built")
    model = folder / "model.onnx"
    network = small_model()
    network.graph.input[0].type.tensor_type.shape.dim[0].dim_value = SHAPE[0]
    onnx.save(network, model)
    url = f"file://{folder}/shared"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPBUILD_REMOTE_MODE", "write")
        patch.setenv("OPBUILD_REMOTE", url)
        net = opbuild.compile(model, cache_path=folder / "own")
    assert net.report.built > 0
    net.wait_until_stored()
    _uploads(service_at(url)).wait()
    return model, folder / "shared"


def test_a_fresh_machine_starts_a_known_network(built: tuple[Path, Path], tmp_path: Path) -> None:
    """By the argument: nothing is compiled, packed or linked, and the next start asks nothing."""
    model, shared = built
    net = opbuild.compile(model, cache_path=tmp_path, remote=f"file://{shared}", forbid_compile=True)
    assert net.report.image
    assert net.report.built == 0
    assert "link" not in net.report.steps
    requests = service_at(f"file://{shared}").traffic.requests
    again = opbuild.compile(model, cache_path=tmp_path, remote=f"file://{shared}", forbid_compile=True)
    assert again.report.image
    assert service_at(f"file://{shared}").traffic.requests == requests
    assert np.array_equal(net(X), again(X))


def test_op_cache_ini_names_it_and_the_variable_wins(
    built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is argument, variable, file; mode ``off`` counts for all."""
    model, shared = built
    for number in range(3):
        folder = tmp_path / str(number) / "rank_0"
        folder.mkdir(parents=True)
        (folder / "op_cache.ini").write_text(f"[op_compiler_cache]\nremote=file://{shared}\n")
    assert opbuild.compile(model, cache_path=tmp_path / "0").report.image
    monkeypatch.setenv("OPBUILD_REMOTE_MODE", "off")
    assert not opbuild.compile(model, cache_path=tmp_path / "1").report.image
    monkeypatch.setenv("OPBUILD_REMOTE_MODE", "read")
    monkeypatch.setenv("OPBUILD_REMOTE", f"file://{tmp_path}/empty")
    assert not opbuild.compile(model, cache_path=tmp_path / "2").report.image


def test_operators_are_shared_where_the_network_is_new(built: tuple[Path, Path], tmp_path: Path) -> None:
    """A network whose image is not there takes its operators; the report says where from."""
    model, shared = built
    edited = onnx.load(model)
    edited.graph.name = "another network"
    edited.producer_name = "another"
    net = opbuild.compile(edited, cache_path=tmp_path, remote=f"file://{shared}", forbid_compile=True)
    assert not net.report.image
    assert "absent from the remote store" in net.report.image_reason
    assert {each.reason for each in net.report.operators} == {"taken from the remote store"}


def test_a_web_server_is_read(built: tuple[Path, Path], tmp_path: Path) -> None:
    """The same folder, over HTTP; where it is to be written to, a warning says that it is not."""
    model, shared = built
    with http_server(shared) as url:
        assert opbuild.compile(model, cache_path=tmp_path, remote=url, forbid_compile=True).report.image


def test_explain_and_the_report_say_absent_and_refused(
    built: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Different words, and one warning in the process."""
    model, _ = built
    place = ["--cache_path", str(tmp_path), "--json"]
    assert main(["explain", str(model), "--remote", f"file://{tmp_path}/empty", *place]) == 0
    assert all("absent from the remote store" in each["why"] for each in json.loads(capsys.readouterr().out))
    url = f"redis://127.0.0.1:{free_port()}"
    assert main(["explain", str(model), "--remote", url, *place]) == 0
    said = capsys.readouterr()
    assert all("the remote store: refused, nobody listens" in each["why"] for each in json.loads(said.out))
    with caplog.at_level(logging.WARNING):
        net = opbuild.compile(model, cache_path=tmp_path, remote=url)
    assert "refused" in net.report.image_reason
    assert said.err.count(url) + caplog.text.count(url) == 1


def test_check_asks_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading, and writing where that is the mode; a store that refuses is an error, none to ask a wrong option."""
    monkeypatch.setenv("OPBUILD_REMOTE_MODE", "write")
    assert main(["cache", "check", "--remote", f"file://{tmp_path}/shared", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [(each["step"], each["answer"]) for each in steps] == [("read", "ok"), ("write", "ok"), ("remove", "ok")]
    assert main(["cache", "check", "--remote", f"redis://127.0.0.1:{free_port()}"]) == 5
    assert "refused: nobody listens there" in capsys.readouterr().err
    assert main(["cache", "check"]) == 2


def test_what_models_need_is_pushed_and_pulled(
    built: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By model and as a whole; pushed again it is there; what was not built is an error that says so."""
    model, _ = built
    own, url = str(model.parent / "own"), f"file://{tmp_path}/stick"
    assert main(["push", str(model), url, "--cache_path", str(tmp_path / "none")]) == 5
    assert main(["push", str(model), url, "--cache_path", own, "--json"]) == 0
    assert main(["push", str(model), url, "--cache_path", own, "--json"]) == 0
    first, second = (json.loads(part) for part in capsys.readouterr().out.replace("}\n{", "}\n\0{").split("\0"))
    assert (first["networks"], second["operators"], second["present"]) == (1, 0, first["operators"])
    for number, models in enumerate(([str(model)], [])):
        place = ["--cache_path", str(tmp_path / str(number))]
        assert main(["pull", url, *models, *place, "--json"]) == 0
        done = json.loads(capsys.readouterr().out)
        assert (done["operators"], done["networks"], done["left_out"]) == (first["operators"], 1, {})
        net = opbuild.compile(model, cache_path=tmp_path / str(number), forbid_compile=True)
        assert net.report.image


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4k", "64k", "300k"])
def test_what_is_pulled_to_a_full_disk_is_an_error_that_loses_nothing(
    built: tuple[Path, Path], tmp_path: Path, size: str
) -> None:
    """Whether operators, the network or its weights did not fit: nothing is said to be there that is not."""
    model, shared = built
    url, small = f"file://{shared}", tmp_path / "small"
    pull = ["-m", "opbuild", "pull", url, str(model), "--cache_path"]
    done = python_on_a_small_disk([*pull, str(small)], small, size, OPBUILD_PACK="0")
    assert (done.returncode, done.stdout) == (5, "")
    assert "the cache cannot be written" in done.stderr
    assert "make room" in done.stderr
    assert main([*pull[2:], str(tmp_path / "large")]) == 0
    assert opbuild.compile(model, cache_path=tmp_path / "large", forbid_compile=True).report.image


def test_a_network_of_several_sizes_is_pushed_and_pulled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A size that was bound by numbers has no network of its own: that of all sizes goes, and serves there."""
    own, url, file = tmp_path / "own", f"file://{tmp_path}/stick", tmp_path / "rows.onnx"
    onnx.save(rows_model(), file)
    assert main(["warm", str(file), "--shape", "x:20,24", "--cache_path", str(own)]) == 0
    push = ["push", str(file), url, "--shape", "x:7,24", "--cache_path", str(own), "--json"]
    opbuild.compile(file, input_shapes={"x": (7, 24)}, cache_path=own)
    capsys.readouterr()
    assert main(push) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["networks"], done["left_out"]) == (1, {})
    pod = tmp_path / "pod"
    assert main(["pull", url, str(file), "--shape", "x:9,24", "--cache_path", str(pod)]) == 0
    network = opbuild.compile(file, input_shapes={"x": (9, 24)}, cache_path=pod, forbid_compile=True)
    assert network.report.image


def test_who_pulls_what_nobody_pushed_is_told(
    built: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error, where a machine without a network would find out too late; what is alike is said once."""
    model, _ = built
    assert main(["pull", f"file://{tmp_path}/empty", str(model), "--cache_path", str(tmp_path / "own")]) == 5
    output = capsys.readouterr()
    assert f"has nothing that {model} needs" in " ".join(output.err.split())
    assert output.out.count("left out") == 2
    assert " more: absent" in output.out


def test_operators_that_are_here_need_not_be_pulled(
    built: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor those of the pack, under whatever key; nothing of the model is lacking then but its network."""
    model, _ = built
    own, url = str(model.parent / "own"), f"file://{tmp_path}/empty"
    assert main(["pull", url, str(model), "--cache_path", own, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["operators"], done["networks"]) == (0, 0)
    assert done["present"] > 0
    assert len(done["left_out"]) == 1


def test_what_cannot_go_says_how_it_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model with open shapes names them; a cache whose operators are all the pack's says where these are."""
    onnx.save(small_model(), tmp_path / "open.onnx")
    model, place = str(tmp_path / "open.onnx"), ["--cache_path", str(tmp_path / "own")]
    for command in (["push", model, f"file://{tmp_path}/x"], ["pull", f"file://{tmp_path}/x", model],
                    ["cache", "export", str(tmp_path / "bundle"), "--model", model]):  # fmt: skip
        assert main([*command, *place]) != 0
        said = " ".join(capsys.readouterr().err.split())
        assert "inputs of 'open.onnx' have open shapes: x:-1,256" in said
        assert 'give one size as --shape "x:1,128": its operators serve other sizes too' in said
    assert main(["cache", "export", str(tmp_path / "bundle"), *place]) != 0
    assert "--model MODEL.onnx exports it too" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "url", ["redis://user:secret@host", "https://secret@host/x", "s3://key:secret@bucket", "webdav://u:secret@h",
            "s3://bucket?secret_access_key=secret", "ftp://u:secret@h", "redis://host/secret?x=secret#secret"]
)  # fmt: skip
def test_a_password_in_a_url_is_an_error_that_does_not_show_it(url: str, tmp_path: Path) -> None:
    """It would stand in logs and lists of processes."""
    with pytest.raises(OptionError) as refused:
        opbuild.compile(b"", cache_path=tmp_path, remote=url)
    assert "secret" not in str(refused.value).replace("secret_access_key", "").replace("/secret", "")


def test_nobody_pays_for_a_remote_store_that_is_not_there(built: tuple[Path, Path]) -> None:
    """Without one nothing of it is imported, neither opendal nor opbuild's own part."""
    model, _ = built
    code = (
        "import sys, opbuild\n"
        f"assert opbuild.compile({str(model)!r}, cache_path={str(model.parent / 'own')!r}).report.image\n"
        "assert not [name for name in sys.modules if name.startswith(('opendal', 'opbuild.store.remote'))]\n"
        "assert 'opbuild.pipeline.remote' not in sys.modules"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPBUILD_")}
    environment["OPBUILD_SHIPPED_BANK"] = "0"  # as where it was built
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_program_that_ends_at_once_has_written_what_it_built(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Uploads are finished at exit, without a word and without a crash."""
    model, _ = built
    code = f"{PATIENTLY}import opbuild\nopbuild.compile({str(model)!r}, cache_path={str(tmp_path / 'own')!r})"
    environment = {**os.environ, "OPBUILD_REMOTE": f"file://{tmp_path}/shared", "OPBUILD_REMOTE_MODE": "write"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    remote = f"file://{tmp_path}/shared"
    assert opbuild.compile(model, cache_path=tmp_path / "new", remote=remote, forbid_compile=True).report.image


def _flip(folder: Path) -> None:
    """Flip a bit of every object of a store in a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)


@pytest.mark.parametrize("command", ["push", "warm", "check"])
def test_commands_say_what_was_damaged_and_leave_nothing_so(
    built: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Exit code 0: all is sound then, and a new machine compiles nothing where the network is there."""
    model, shared = built
    copy, own = tmp_path / "shared", str(model.parent / "own")
    shutil.copytree(shared, copy)
    _flip(copy)
    url = f"file://{copy}"
    commands = {
        "push": ["push", str(model), url, "--cache_path", own],
        "warm": ["warm", str(model), "--remote", url, "--cache_path", own, "--strict"],
        "check": ["cache", "check", "--repair", "--remote", url],
    }
    assert main(commands[command]) == 0
    output = capsys.readouterr()
    assert "damaged" in output.out + output.err
    assert main(["cache", "check", "--repair", "--remote", url]) == 0
    assert " 0 damaged" in capsys.readouterr().out
    if command != "check":
        net = opbuild.compile(model, cache_path=tmp_path / "new", remote=url, forbid_compile=True)
        assert net.report.image


def test_damage_that_cannot_be_mended_fails_the_commands(
    built: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes nothing: warming is strict about it, pushing fails, and a check says that damage stays."""
    model, shared = built
    copy, own = tmp_path / "shared", str(model.parent / "own")
    shutil.copytree(shared, copy)
    _flip(copy)
    full = Reason("refused", "it is full")
    monkeypatch.setattr(Service, "put", lambda *given, **named: full)
    monkeypatch.setattr(Service, "delete", lambda *given: full)
    url = f"file://{copy}"
    assert main(["warm", str(model), "--remote", url, "--cache_path", own, "--strict"]) == 5
    assert main(["push", str(model), url, "--cache_path", own]) == 5
    capsys.readouterr()
    assert main(["cache", "check", "--repair", "--remote", url]) == 1
    assert "not removed" in capsys.readouterr().out


def test_check_repairs_ones_own_store_where_there_is_no_other(
    built: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``cache verify --repair`` does; and a damaged entry of one's own is replaced by what is pulled."""
    _, shared = built
    place = ["--cache_path", str(tmp_path / "own")]
    assert main(["pull", f"file://{shared}", *place]) == 0
    _flip(tmp_path / "own" / "rank_0" / "kernel_meta")
    assert main(["pull", f"file://{shared}", *place]) == 0
    capsys.readouterr()
    assert main(["cache", "check", "--repair", *place]) == 0
    assert " 0 damaged" in capsys.readouterr().out
    _flip(tmp_path / "own" / "rank_0" / "kernel_meta")
    assert main(["cache", "check", "--repair", *place]) == 0
    assert "damaged and removed" in capsys.readouterr().out
