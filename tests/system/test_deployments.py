"""What serves networks, as the guides deploy them: the right answers under load, also beside workers that come and go.

The commands are those of the guides; ``make serving-check`` installs the servers that the tests do not need.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import yaml

import opbuild
from examples.deploy.load import FORMS, Load
from support import documented, triton_utils
from support.http_servers import Server, serving
from support.small_network import small_model
from support.until import until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "deploy"
SERVERS = ROOT / "build" / "serving"
"""Where ``make serving-check`` installs servers, each into an environment of its own."""

WORKERS = 2


def commands(guide: str) -> list[str]:
    """Return the commands that a guide shows and does not run, each a line."""
    blocks = documented.blocks((ROOT / "docs" / "guides" / f"{guide}.md").read_text())
    texts = [block.text for block in blocks if block.language == "text"]
    return [line for text in texts for line in text.splitlines() if re.match(r"([A-Z_]+=\S+ )*[a-z]+ ", line)]


OF_WORKERS = commands("workers")


@dataclass(frozen=True)
class Served:
    """A model that was warmed, in a folder: rows, and the right answers."""

    folder: Path
    x: Any
    y: Any

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a server that compiles nothing."""
        return {"MODEL": str(self.folder / "model.onnx"), "MS_COMPILER_CACHE_PATH": str(self.folder / "cache")}

    def load(self, server: Server, requests: int, *, path: str = "/", form: str = "npy") -> Load:
        """Send requests to a server from several threads; return what became of them."""
        load = Load(server.address + path, FORMS[form], self.x, self.y)
        load.run(requests, 8)
        return load


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The small network, warmed for a batch of one."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "model.onnx").write_bytes(small_model().SerializeToString())
    (folder / "model.onnx").chmod(0o444)
    opbuild.warm([folder / "model.onnx"], shapes={"x": (1, 256)}, cache_path=folder / "cache")
    x = np.random.default_rng(1).standard_normal((32, 256)).astype(np.float32)
    return Served(folder, x, opbuild.compile(folder / "model.onnx", cache_path=folder / "cache")(x))


def started(line: str, served: Served, **variables: str) -> Any:
    """Start the server of a guide's command on a free port."""
    words = shlex.split(line)
    given = dict(word.split("=", 1) for word in words if "=" in word.split("-")[0])
    program, *options = [word for word in words if word not in {f"{name}={value}" for name, value in given.items()}]
    where = {"gunicorn": ["--bind", "127.0.0.1:{port}"], "uvicorn": ["--port", "{port}"]}[program]
    command = [sys.executable, "-m", program, *where, *options]
    return serving(command, EXAMPLES, **{**given, **served.variables, **variables})


def workers(server: Server, count: int = WORKERS, but: int = 0) -> dict[int, str]:
    """Return the health of a server's workers, by their process numbers, when so many but one have answered."""
    found: dict[int, str] = {}

    def answered() -> bool:
        said = server.get() or ""
        if said and int(said.partition(":")[0]) != but:
            found[int(said.partition(":")[0])] = said
        return len(found) == count

    assert until(answered), found
    return found


DROPPED = ("BrokenPipeError", "ConnectionResetError", "RemoteDisconnected")
"""Errors of connections that a worker of uvicorn accepted and did not read before it ended."""


@pytest.mark.slow
@pytest.mark.parametrize("line", OF_WORKERS)
def test_workers_answer_under_load(line: str, served: Served) -> None:
    """Each command of the guide: all answers are right, also after a worker was killed; while all are replaced, too."""
    with started(line, served) as server:
        before = workers(server)
        assert served.load(server, 2000).outcomes == {"right": 2000}
        lost = next(iter(before))
        os.kill(lost, signal.SIGKILL)
        assert served.load(server, 500).outcomes == {"right": 500}
        assert set(workers(server, but=lost)) != set(before)
        again = threading.Timer(0.2, server.process.send_signal, [signal.SIGHUP])
        again.start()
        outcomes = served.load(server, 1000).outcomes
        dropped = sum(outcomes[each] for each in outcomes if each.startswith(DROPPED)) if "uvicorn" in line else 0
        assert (outcomes["right"], len(outcomes) > 1) == (1000 - dropped, dropped > 0), outcomes
        assert dropped <= 20
        again.join()
        assert until(lambda: not set(workers(server)) & set(before))


def test_the_guide_starts_workers_in_every_way_that_it_names() -> None:
    """With processes, with threads, with what was loaded before the fork, and with an event loop."""
    said = "\n".join(OF_WORKERS)
    assert all(each in said for each in ("gunicorn --workers 2 wsgi", "--threads", "--preload", "uvicorn --workers 2"))


@pytest.mark.slow
def test_workers_that_start_together_build_each_operator_once(served: Served, tmp_path: Path) -> None:
    """From an empty store: one compiles what another waits for."""
    first = {"MS_COMPILER_CACHE_PATH": str(tmp_path), "OPBUILD_FIRST": "build"}
    with started("gunicorn --workers 3 wsgi:application", served, **first) as server:
        said = workers(server, 3).values()
        built, reused = (
            sum(int(re.findall(rf"{word}=(\d+)", each)[0]) for each in said) for word in ("built", "reused")
        )
        assert built + reused == 3 * 2
        assert built == len(list(tmp_path.rglob("kernel_meta/*.o"))) == 2
        assert served.load(server, 100).outcomes == {"right": 100}


@pytest.mark.slow
def test_workers_share_the_memory_of_weights(served: Served) -> None:
    """They map the same file of the store."""
    with started("gunicorn --workers 2 wsgi:application", served) as server:
        maps = [Path(f"/proc/{pid}/maps").read_text() for pid in workers(server)]
    files = [{line.split()[-1] for line in each.splitlines() if "/weights/" in line} for each in maps]
    assert files[0] == files[1] != set()


@pytest.mark.slow
@pytest.mark.parametrize("line", [OF_WORKERS[0], OF_WORKERS[-1]])
def test_a_request_that_is_wrong_is_the_callers_error(line: str, served: Served) -> None:
    """Another shape, another type, no array: status 400; the next request is answered."""
    with started(line, served) as server:
        wrong = (np.zeros((1, 3), np.float32), np.zeros((1, 256)))
        for rows in wrong:
            load = Load(f"{server.address}/", FORMS["npy"], rows, rows)
            load.run(1, 1)
            assert load.outcomes == {"HTTPException: status 400": 1}
        load = Load(f"{server.address}/", FORMS["json"], wrong[0], wrong[0])
        load.run(1, 1)
        assert load.outcomes == {"HTTPException: status 400": 1}
        assert served.load(server, 10).outcomes == {"right": 10}


# -- Triton's Python back end ------------------------------------------------------------------------------------------


@pytest.fixture
def back_end(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example's ``model.py``, beside a model, as Triton imports it."""
    (tmp_path / "model.py").write_text((EXAMPLES / "triton" / "opbuild" / "1" / "model.py").read_text())
    (tmp_path / "model.onnx").write_bytes((served.folder / "model.onnx").read_bytes())
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton_utils)
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", str(served.folder / "cache"))
    spec = importlib.util.spec_from_file_location("model", tmp_path / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def request(rows: Any) -> triton_utils.InferenceRequest:
    """Return a request for some rows."""
    return triton_utils.InferenceRequest([triton_utils.Tensor("x", rows)])


def test_triton_is_told_the_networks_inputs_and_outputs(back_end: ModuleType) -> None:
    """Without the batch, which Triton adds."""
    config = triton_utils.ModelConfig({"max_batch_size": 8})
    assert back_end.TritonPythonModel.auto_complete_config(config) is config
    assert config.as_dict()["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [256]}]
    assert config.as_dict()["output"] == [{"name": "y", "data_type": "TYPE_FP32", "dims": [256]}]


def test_tritons_requests_are_one_call_and_come_back_in_order(back_end: ModuleType, served: Served) -> None:
    """Batches of different sizes; each response has the rows of its request."""
    model = back_end.TritonPythonModel()
    model.initialize({})
    parts = [served.x[:3], served.x[3:4], served.x[4:11]]
    run = mock.Mock(wraps=model.network.run)
    model.network = SimpleNamespace(inputs=model.network.inputs, run=run)
    responses = model.execute([request(part) for part in parts])
    assert run.call_count == 1
    answers = [triton_utils.get_output_tensor_by_name(each, "y").as_numpy() for each in responses]
    for answer, right in zip(answers, np.split(served.y[:11], [3, 4]), strict=True):
        np.testing.assert_allclose(answer, right, rtol=1e-5)


def test_what_one_of_tritons_requests_gets_wrong_is_its_error_alone(back_end: ModuleType, served: Served) -> None:
    """A call that fails is tried again request by request."""
    model = back_end.TritonPythonModel()
    model.initialize({})
    run = model.network.run

    def refuses(feeds: dict[str, Any]) -> Any:
        if np.isnan(feeds["x"]).any():
            raise opbuild.errors.RunError("an index is out of range")
        return run(feeds)

    model.network = SimpleNamespace(inputs=model.network.inputs, run=refuses)
    bad = np.full((1, 256), np.nan, np.float32)
    first, second, third = model.execute([request(served.x[:1]), request(bad), request(served.x[1:2])])
    assert (first.has_error(), second.has_error(), third.has_error()) == (False, True, False)
    assert "out of range" in second.error().message()
    np.testing.assert_allclose(third.output_tensors()[0].as_numpy(), served.y[1:2], rtol=1e-5)


# -- servers that make serving-check installs --------------------------------------------------------------------------


def installed(name: str) -> Path:
    """Return the environment of a server; skip the test where there is none."""
    if not (SERVERS / name / "bin" / "python").exists():
        pytest.skip(f"{name} is not installed; `make serving-check` installs it")
    return SERVERS / name


@pytest.mark.slow
def test_triton_serves_batches(served: Served, tmp_path: Path) -> None:
    """The real one: fewer calls than requests, all right."""
    environment = installed("triton")
    [site] = environment.glob("lib/python3*/site-packages")
    triton = site / "pytriton" / "tritonserver"
    backend = tmp_path / "backends" / "python"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for source in (
        *(triton / "backends" / "python").glob("*.*"),
        *(triton / "python_backend_stubs" / version).iterdir(),
    ):
        backend.mkdir(parents=True, exist_ok=True)
        (backend / source.name).write_bytes(source.read_bytes())
    (backend / "triton_python_backend_stub").chmod(0o755)
    model = tmp_path / "models" / "opbuild"
    (model / "1").mkdir(parents=True)
    for name in ("config.pbtxt", "1/model.py"):
        (model / name).write_text((EXAMPLES / "triton" / "opbuild" / name).read_text())
    (model / "1" / "model.onnx").write_bytes((served.folder / "model.onnx").read_bytes())
    command = [
        str(triton / "bin" / "tritonserver"), f"--model-repository={tmp_path}/models",
        f"--backend-directory={tmp_path}/backends",
        "--http-address=127.0.0.1", "--http-port={port}", "--allow-grpc=false", "--allow-metrics=false",
    ]  # fmt: skip
    variables = {
        **served.variables, "PYTHONPATH": str(site), "LD_LIBRARY_PATH": str(site / "nvidia_pytriton.libs"),
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "OPBUILD_FORBID_COMPILE": "1",
    }  # fmt: skip
    with serving(command, tmp_path, ready="/v2/health/ready", **variables) as server:
        load = served.load(server, 3000, path="/v2/models/opbuild/infer", form="v2")
        assert load.outcomes == {"right": 3000}
        stats = yaml.safe_load(server.get("/v2/models/opbuild/stats") or "")["model_stats"][0]
        assert stats["execution_count"] < stats["inference_stats"]["success"]["count"] == 3000


@pytest.mark.slow
def test_bentoml_serves_batches(served: Served, tmp_path: Path) -> None:
    """The real one: fewer calls than requests, all right; an input of another shape is the caller's error."""
    environment = installed("bentoml")
    command = [
        str(environment / "bin" / "bentoml"),
        "serve",
        "bento:Opbuild",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
    ]
    variables = {
        **served.variables, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "BENTOML_HOME": str(tmp_path), "BENTOML_DO_NOT_TRACK": "1", "OPBUILD_FORBID_COMPILE": "1",
    }  # fmt: skip
    with serving(command, EXAMPLES, ready="/readyz", **variables) as server:
        assert served.load(server, 2000, path="/predict", form="json").outcomes == {"right": 2000}
        wrong = Load(f"{server.address}/predict", FORMS["json"], np.zeros((1, 3)), np.zeros((1, 3)))
        wrong.run(1, 1)
        assert wrong.outcomes == {"HTTPException: status 400": 1}
        metrics = server.get("/metrics") or ""
    [batches] = re.findall(r"^bentoml_service_adaptive_batch_size_count\{.*\} ([\d.]+)", metrics, re.MULTILINE)
    assert float(batches) < 2000
