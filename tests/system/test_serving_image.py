"""The image of the guide to containers is built line by line from opbuild's wheel, and serves; CI's job warms in it."""

from __future__ import annotations

import platform
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

import opbuild
from examples.deploy.load import FORMS, Load
from support import documented
from support.container import inside
from support.dockerfile import FailedError, Image, wheel_of
from support.http_servers import serving
from support.small_network import small_model

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "deploy"
DOCKERFILE = (EXAMPLES / "serving.Dockerfile").read_text()
FLEET = documented.blocks((ROOT / "docs" / "guides" / "fleet.md").read_text())

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the guide's image is for x86-64")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opbuild's wheel."""
    return wheel_of(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and the example's program."""
    folder = tmp_path_factory.mktemp("context")
    (folder / "model.onnx").write_bytes(small_model().SerializeToString())
    for name in ("service.py", "wsgi.py"):
        (folder / name).write_text((EXAMPLES / name).read_text())
    return folder


@pytest.fixture(scope="module")
def image(wheel: Path, context: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The guide's image."""
    image = Image(tmp_path_factory.mktemp("image"), context, wheel)
    image.build(DOCKERFILE)
    return image


@pytest.mark.slow
def test_the_image_has_neither_a_compiler_nor_onnx(image: Image) -> None:
    """What it starts from is numbers and machine code."""
    found = {path.name for path in image.last.site.iterdir()}
    assert {"opbuild", "numpy", "blake3", "gunicorn"} <= found
    assert not found & {"halide", "onnx", "google", "ml_dtypes", "rich", "click", "jinja2"}


@pytest.mark.slow
def test_the_image_serves_batches_on_a_read_only_disk_as_its_user(image: Image, context: Path) -> None:
    """Without a home, without a folder to write to but 64 MB of /dev/shm; nothing is compiled or said."""
    last = image.last
    command = [word.replace("0.0.0.0:8000", "127.0.0.1:{port}") for word in last.command]
    x = np.random.default_rng(0).standard_normal((16, 256)).astype(np.float32)
    expected = opbuild.compile(context / "model.onnx", input_shapes={"x": (-1, -1)}, wait=True)(x)
    program = ["env", "-i", *(f"{name}={value}" for name, value in last.environment.items() if name != "HOME")]
    entered = inside(
        last.root, {}, [*program, "WEB_CONCURRENCY=2", "sh", "-c", f"cd {last.folder}; exec {shlex.join(command)}"]
    )
    with serving(entered, last.root) as server:
        load = Load(f"{server.address}/", FORMS["npy"], x, expected)
        load.run(500, 4)
        assert load.outcomes == {"right": 500}
        assert "built=0, reused=2, host=0, image=True" in (server.get() or "")
        said = server.log.read_text().splitlines()
    assert [line for line in said if "[INFO]" not in line] == []


@pytest.mark.slow
def test_the_job_that_warms_fills_a_shared_store_in_the_image(wheel: Path, context: Path, tmp_path: Path) -> None:
    """As it stands, but for the address of the store and the key."""
    image = Image(tmp_path / "ci", context, wheel)
    image.build("FROM python:3.12-slim\nRUN pip install 'opbuild[remote]'")
    [text] = [block.text for block in FLEET if block.language == "yaml"]
    [job] = yaml.safe_load(text).values()
    variables = {"OPBUILD_REMOTE": f"file://{tmp_path}/shared", "OPBUILD_SIGNING_KEY": "k" * 32}
    assert variables.keys() == job["variables"].keys()
    (tmp_path / "models").mkdir()
    model = small_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    (tmp_path / "models" / "model.onnx").write_bytes(model.SerializeToString())
    for line in job["script"]:
        image.last.shell(line, tmp_path, **variables)
    assert list((tmp_path / "shared").rglob("networks/*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("opbuild warm", "opbuild warn"),
        ("--target", "--target_levels"),
        ("service.py", "services.py"),
        ("install opbuild", "install opbuild[remoat]"),
        ("--from=warm", "--from=worm"),
        ("slim AS", "slum AS"),
    ],
)
def test_a_wrong_line_is_found(right: str, wrong: str, image: Image) -> None:
    """A command, an option, a file, an extra, a stage, an image that there is not."""
    [line] = [line for line in DOCKERFILE.splitlines() if right in line]
    with pytest.raises(FailedError):
        image.build(line.replace(right, wrong))
