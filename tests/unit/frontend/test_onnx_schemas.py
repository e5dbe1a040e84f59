"""What ONNX says about calls of its operators: the table is what the installed onnx says, and else that is asked."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import defs

from opbuild.frontend import onnx_schemas
from opbuild.frontend.onnx_schemas import TABLE, described, newest_of, newest_opset, schema

TOOL = Path(__file__).parents[3] / "tools" / "onnx_schemas.py"
KEPT = f'"release":"{onnx.__version__}"' in TABLE.read_text(encoding="utf-8")


@pytest.fixture
def another_release(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An onnx whose schemas are not in the table."""
    asked = (schema, newest_opset, newest_of, onnx_schemas._table)
    monkeypatch.setattr(onnx_schemas, "release_of", lambda _: "0.0.1")
    for each in asked:
        each.cache_clear()
    yield
    for each in asked:
        each.cache_clear()


@pytest.mark.skipif(not KEPT, reason="the table is of another release of onnx than the installed one")
def test_the_table_is_what_the_installed_onnx_says() -> None:
    """Run tools/onnx_schemas.py when it is not."""
    spec = importlib.util.spec_from_file_location("tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert TABLE.read_text(encoding="utf-8") == tool.table()


def every_version() -> Iterator[tuple[str, int, str]]:
    """Yield each operator in each version of its operator set."""
    for each in {(each.name, each.domain) for each in defs.get_all_schemas_with_history()}:
        for version in range(1, newest_of(each[1]) + 2):
            yield each[0], version, each[1]


def check_all() -> None:
    """Compare all operators in all operator sets with what onnx says."""
    for op_type, version, domain in every_version():
        try:
            wanted = described(defs.get_schema(op_type, version, domain))
        except defs.SchemaError:
            wanted = None
        assert schema(op_type, version, domain) == wanted, (op_type, version, domain)
    assert newest_opset() == defs.onnx_opset_version()


def test_each_operator_has_the_schema_of_its_operator_set() -> None:
    """Versions between two that changed an operator have the older one, and those before the first have none."""
    check_all()


def test_another_release_of_onnx_is_asked(another_release: None) -> None:
    """Of a release that the table is not of, nothing is taken from it."""
    assert onnx_schemas._table() == {}
    check_all()


def test_an_operator_that_is_registered_is_found() -> None:
    """What the table has not is asked of onnx: an operator of nobody's is absent until somebody registers it."""
    assert schema("NobodysOwn", 1, "nobody.unit") is None
    schema.cache_clear()
    defs.register_schema(defs.OpSchema("NobodysOwn", "nobody.unit", 1))
    try:
        assert schema("NobodysOwn", 1, "nobody.unit") is not None
    finally:
        defs.deregister_schema("NobodysOwn", 1, "nobody.unit")
        schema.cache_clear()
        newest_of.cache_clear()
