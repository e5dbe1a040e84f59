"""The guide to containers: each message that it lists is what comes of its cause; its manifests do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from opbuild.cli.main import main
from opbuild.cli.main import opbuild as commands
from support import documented
from support.container import inside
from support.processes import WITHOUT
from support.small_network import small_model

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "deploy"
GUIDE = (ROOT / "docs" / "guides" / "containers.md").read_text()
MANIFESTS = ("kubernetes", "kubernetes_pull")
_, *MESSAGES = re.findall(r"^\| (.+?) \|", GUIDE.split("## What goes wrong")[1], re.MULTILINE)
"""The first cells of the guide's table, without its head."""

ANSWER = "answered (2, 256)"
PROGRAM = """
import os
import numpy as np, opbuild
network = opbuild.compile(os.environ["MODEL"])
print("answered", network(np.zeros((2, 256), np.float32)).shape, repr(network.report))
"""
GUNICORN = """
import sys
from gunicorn.app.wsgiapp import run
sys.argv[1:] = ["--bind", "127.0.0.1:0", "this:application", *sys.argv[1:]]
run()
"""
OWN, TEMPORARY = "mode=700,uid=10001", {"/tmp": "mode=1777"}
CACHE = {"OPBUILD_CACHE": "/cache"}


@dataclass(frozen=True)
class Cause:
    """A container in which something is wrong.

    Attributes:
        volumes: Options of its volumes.
        variables: Of its environment.
        program: The program that it runs, and its arguments.
        answers: Whether the network answers all the same.
        last: Words behind which a program is ended that would serve on.
    """

    volumes: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    program: Sequence[str] = (PROGRAM,)
    answers: bool = True
    last: str = ""


CAUSES = {
    "`the cache is not used: everybody": Cause({"cache": "mode=777"} | TEMPORARY, CACHE),
    "`the cache is not used: user": Cause({"cache": "mode=755,uid=4711"} | TEMPORARY, CACHE),
    "`the cache is not used: group": Cause({"cache": "mode=2775,gid=2000"} | TEMPORARY, CACHE),
    "Read-only file system`": Cause({"cache": "ro"} | TEMPORARY, CACHE),
    "No space left on device`": Cause({"cache": f"{OWN},size=16k"} | TEMPORARY, CACHE),
    "`there is no home": Cause(TEMPORARY),
    "`halide cannot compile": Cause({"cache": OWN}, CACHE, answers=False),
    "`compiling is forbidden": Cause(
        {"cache": OWN}, CACHE | {"OPBUILD_FORBID_COMPILE": "1", "OPBUILD_FIRST": "wait"}, answers=False
    ),
    "must be read": Cause({"cache": OWN}, CACHE, (WITHOUT.format(names=("halide", "onnx")) + PROGRAM,), answers=False),
    "`No usable temporary": Cause(program=(GUNICORN, "--no-control-socket"), answers=False),
    "`Control server error": Cause(
        program=(GUNICORN, "--worker-tmp-dir", "/dev/shm"), answers=False, last="Control server error"
    ),
    "nothing": Cause({"cache": f"{OWN},noexec", "/tmp": "mode=1777,noexec", "/dev/shm": "noexec,size=64m"}, CACHE),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An image: a model, something to serve, and an empty folder."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "this.py").write_text("def application(*_):\n    return []\n")
    (tmp_path / "app" / "model.onnx").write_bytes(small_model().SerializeToString())
    return tmp_path


def said_in(folder: Path, cause: Cause) -> str:
    """Return all that a program says in a container whose image is a folder; paths are those in the image."""
    variables = {"OPBUILD_FIRST": "build", "MODEL": "/app/model.onnx", **cause.variables}
    placed = [f"{name}={folder}{value}" if value[0] == "/" else f"{name}={value}" for name, value in variables.items()]
    command = [
        "env",
        f"--chdir={folder}/app",
        *placed,
        "timeout",
        "-k",
        "5",
        "20",
        sys.executable,
        "-c",
        *cause.program,
    ]
    said = ""
    with subprocess.Popen(
        inside(folder, cause.volumes, command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            said += line
            if cause.last and cause.last in line:
                process.terminate()
    return said.replace(str(folder), "")


@pytest.mark.slow
@pytest.mark.parametrize("message", MESSAGES)
def test_the_guide_has_the_message_of_each_cause(message: str, folder: Path) -> None:
    """Each row of the table, word by word; where it is a warning the network answers."""
    [cause] = [cause for part, cause in CAUSES.items() if part in message]
    said = said_in(folder, cause)
    assert (ANSWER in said) == cause.answers, said
    if message == "nothing":
        assert [line for line in said.splitlines() if ANSWER not in line] == []
    else:
        shown = ".*".join(map(re.escape, message.strip("`").split("...")))
        assert re.search(shown, said), said


def test_the_guide_lists_every_cause() -> None:
    """A cause that is tried is in the table, and each row of it is tried."""
    assert all(sum(part in message for message in MESSAGES) == 1 for part in CAUSES)
    assert len(MESSAGES) == len(CAUSES)


def test_the_guide_shows_the_files_of_the_example() -> None:
    """The Dockerfile is the one that is built."""
    [shown] = [block.text for block in documented.blocks(GUIDE) if block.language == "dockerfile"]
    assert shown == (EXAMPLES / "serving.Dockerfile").read_text()


def pods(name: str) -> Iterator[dict[str, Any]]:
    """Yield what a manifest says of its pods."""
    for document in yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()):
        if document["kind"] == "Deployment":
            assert document["spec"]["selector"]["matchLabels"] == document["spec"]["template"]["metadata"]["labels"]
            yield document["spec"]["template"]["spec"]


def variables(container: dict[str, Any]) -> dict[str, str]:
    """Return a container's environment."""
    return {each["name"]: each["value"] for each in container["env"]}


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_run_without_rights_and_with_limits(name: str) -> None:
    """Not as root, on a disk that is only read, with as many threads as the limit has cores, and with probes."""
    [pod] = pods(name)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == 10001
    volumes = {each["name"] for each in pod.get("volumes", ())}
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        rights, limits = container["securityContext"], container["resources"]["limits"]
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        said = variables(container)
        assert int(said["WEB_CONCURRENCY"]) * int(said["OPBUILD_NUM_THREADS"]) == int(limits["cpu"])
        assert all(isinstance(value, str) for value in said.values())
        assert {each["name"] for each in container.get("volumeMounts", ())} == volumes
    [server] = pod["containers"]
    [port] = {server[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "readiness", "liveness")}
    assert [each["containerPort"] for each in server["ports"]] == [port]


def test_a_pod_that_pulls_names_options_that_there_are() -> None:
    """Of opbuild's command; and the server is that of the image."""
    [pod] = pods("kubernetes_pull")
    _, name, *words = pod["initContainers"][0]["command"]
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    assert {word for word in words if word[0] == "-"} <= {each for one in command.params for each in one.opts}
    assert str(pod["containers"][0]["command"]).replace("'", '"') in (EXAMPLES / "serving.Dockerfile").read_text()


@pytest.mark.slow
def test_a_pod_that_pulls_compiles_nothing(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The init container takes a job's kernels into an emptyDir, and the server reads them there."""
    [pod] = pods("kubernetes_pull")
    [pull] = pod["initContainers"]
    built, shared = tmp_path_factory.mktemp("built"), folder / "shared"
    model = folder / "app" / "model.onnx"
    assert main(["warm", str(model), "--shape=x:1,256", f"--cache_path={built}"]) == 0
    assert main(["push", str(model), f"file://{shared}", "--shape=x:1,256", f"--cache_path={built}"]) == 0
    said = variables(pull) | {"MODEL": "/app/model.onnx"}
    places = {"s3://kernels/opbuild": f"file://{shared}", "/models/model.onnx": str(model), "/cache": f"{folder}/cache"}
    words = [places.get(word, word) for word in pull["command"][1:]]
    program = f"import sys\nfrom opbuild.cli.main import main\nassert main({words!r}) == 0\n{PROGRAM}"
    answer = said_in(folder, Cause({"cache": "mode=777"}, said, (program,)))
    assert re.search(rf"{re.escape(ANSWER)} Report\(.*built=0, reused=2, host=0, image=True", answer), answer
