"""The image of the guide to fleets is built line by line from opbuild's wheel, and serves; its CI job runs in it."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import onnx
import pytest
import yaml

from support import documented
from support.dockerfile import FailedError, Image, wheel_of
from support.small_network import SHAPE, small_model

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = documented.blocks((ROOT / "docs" / "guides" / "fleet.md").read_text())

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the guide's image is for x86-64")


def text_of(language: str) -> str:
    """Return the guide's only block of a language."""
    [block] = [block for block in BLOCKS if block.language == language]
    return block.text


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opbuild's wheel."""
    return wheel_of(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of the name that the guide has."""
    folder = tmp_path_factory.mktemp("context")
    (folder / "models").mkdir()
    model = small_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = SHAPE[0]
    onnx.save(model, folder / "models" / "squeezenet.onnx")
    return folder


@pytest.fixture(scope="module")
def image(wheel: Path, context: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The guide's image."""
    image = Image(tmp_path_factory.mktemp("image"), context, wheel)
    image.build(text_of("dockerfile"))
    return image


@pytest.mark.slow
def test_the_image_serves_without_compiling(image: Image) -> None:
    """Its command starts what warming left in it."""
    assert image.environment["OPBUILD_FORBID_COMPILE"] == "1"
    assert re.search(r"\b0 operators built\b", image.start())


@pytest.mark.slow
def test_the_job_that_warms_fills_a_shared_store_in_the_image(image: Image, context: Path, tmp_path: Path) -> None:
    """As it stands, but for the address of the store and the key."""
    [job] = yaml.safe_load(text_of("yaml")).values()
    variables = {"OPBUILD_REMOTE": f"file://{tmp_path}/shared", "OPBUILD_SIGNING_KEY": "k" * 32}
    assert variables.keys() == job["variables"].keys()
    own = {"OPBUILD_FORBID_COMPILE": "", "MS_COMPILER_CACHE_PATH": str(tmp_path / "ci")}
    for line in job["script"]:
        image.shell(line, context, **own, **variables)
    assert list((tmp_path / "shared").rglob("networks/*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("opbuild warm", "opbuild warn"),
        ("--target", "--target_levels"),
        ("COPY models", "COPY model"),
        ("remote", "remoat"),
        ("python:3", "python:2"),
    ],
)
def test_a_wrong_line_is_found(right: str, wrong: str, image: Image) -> None:
    """A command, an option, a file, an extra that there is not."""
    [line] = [line for line in text_of("dockerfile").splitlines() if right in line]
    with pytest.raises(FailedError):
        image.build(line.replace(right, wrong))
