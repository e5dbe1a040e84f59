"""The first answer of networks that the pack was not made for, beside ONNX Runtime's session and first run, in turn.

Each is a fresh process with an empty store. The networks are held out of the pack's making: so many of each family,
drawn by hashes of their names from what ``make structures`` exported. Answers are compared with ONNX Runtime's.

    python benchmarks/first_answer.py [NAME ...] [--structures FOLDER] [--each 10] [--forbidden] [--without-halide]

With ``--quantised`` they are networks of 8 bits that the pack was made for, as deep as they are known.

Columns about what is built behind the calls are empty where all is built before the first answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
import onnx
from measure import THREADS, ort_session, parser, write_results
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from rich.console import Console
from rich.table import Table

from generated.mutated_models import difference
from kernels.drawn import FAMILIES, architecture, exported, family, held_out, name_hash
from kernels.quantised import Quantised, random_inputs, with_weights
from kernels.transformer import FORMS, Sizes, bert, gpt2
from kernels.vision import resnet
from support.comparison import onnxruntime_outputs

Arrays = Sequence[np.ndarray]

ONCE = Path(__file__).with_name("first_answer_once.py")
RESULTS = Path(__file__).with_name("results") / "structures"
ANSWER = {"OPBUILD_FIRST": "answer"}
GONE = "import sys\nsys.modules['halide'] = None\n"
"""A ``sitecustomize`` of all processes of a machine on which halide is not installed."""
FARTHER = 1.1
"""How much farther than ONNX Runtime's answer a quantized network's may be from that of the network before."""
FADED = 1e-30
LIMIT = 120
"""Seconds of a process."""

_IMAGE, _TEXT = ({"batch": 1, "height": 224, "width": 224},), ({"batch": 1, "seq": 128},)
_RESNET = partial(resnet, ("batch", "height", "width"), wide=False)
_BERT, _GPT = (partial(write, Sizes("batch", "seq"), FORMS[2], layers=12) for write in (bert, gpt2))
QUANTISED = {
    "vision/ResNet-18/int8-QDQ": Quantised(_RESNET, "QDQ", _IMAGE),
    "vision/ResNet-18/int8-QDQ-signed": Quantised(_RESNET, "QDQ signed", _IMAGE),
    "encoders/BERT-base/int8-dynamic": Quantised(_BERT, "dynamic", _TEXT),
    "encoders/BERT-base/int8-QDQ-signed": Quantised(_BERT, "QDQ signed", _TEXT),
    "decoders/GPT-2-small/int8-dynamic": Quantised(_GPT, "dynamic", _TEXT),
}
"""Networks of 8 bits by their family, name and form."""


def write_quantised(folder: Path) -> None:
    """Write the networks of 8 bits as ``make structures`` writes drawn ones."""
    for name, network in QUANTISED.items():
        path = folder / f"{name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(network.model(), path)
        whole = with_weights(network.write())
        onnx.save(whole, path.with_name("float32.onnx"))
        np.savez(path.with_suffix(".npz"), **random_inputs(whole, network.sizes[0]))
        path.with_suffix(".json").write_text(json.dumps({"family": name.partition("/")[0]}))


def drawn(models: Mapping[str, Path], each: int) -> dict[str, Path]:
    """Return so many held-out models of each family, no two of one architecture, in the order of hashes of names."""
    chosen: dict[str, dict[str, str]] = defaultdict(dict)
    for name in sorted(filter(held_out, models), key=name_hash):
        of_family = chosen[family(models[name])]
        if len(of_family) < each:
            of_family.setdefault(architecture(name), name)
    return {name: models[name] for known in FAMILIES for name in chosen[known].values()}


class Ways:
    """The ways to a first answer, each in a fresh process.

    Args:
        folder: Where what they need lies.
        forbidden: Whether also where compiling is forbidden.
        without_halide: Whether also where halide cannot be imported.
    """

    def __init__(self, folder: Path, *, forbidden: bool, without_halide: bool) -> None:
        self.folder = folder
        (folder / "sitecustomize.py").write_text(GONE)
        search = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        self.environments: dict[str, dict[str, str]] = {
            "onnxruntime": {},
            "opbuild": ANSWER,
            **({"forbidden": {**ANSWER, "OPBUILD_FORBID_COMPILE": "1"}} if forbidden else {}),
            **({"without halide": {**ANSWER, "PYTHONPATH": search}} if without_halide else {}),
        }

    def answer(self, way: str, model: Path, seconds: float) -> dict[str, Any]:
        """Return the answer of one process with the components of the operators that it built, or a problem."""
        runtime = "onnxruntime" if way == "onnxruntime" else "opbuild"
        with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
            outputs = Path(temporary) / "outputs.npz"
            command = [sys.executable, str(ONCE), runtime, str(model), str(model.with_suffix(".npz")), str(outputs)]
            own = {"MS_COMPILER_CACHE_PATH": temporary, **self.environments[way]}
            begun = time.perf_counter()
            try:
                done = subprocess.run(
                    [*command, str(THREADS), str(seconds)], env=os.environ | own, capture_output=True, text=True,
                    check=False, timeout=LIMIT,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return {"problem": f"no answer within {LIMIT} s"}
            if done.returncode:
                return {"problem": (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]}
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            found["process"] = time.perf_counter() - begun
            with np.load(outputs) as stored:
                found["outputs"] = [stored[name] for name in stored.files]
            built = set(found.get("built", ()))
            infos = (path for path in Path(temporary).rglob("*.info") if path.stem in built)
            found["missing"] = [json.loads(path.read_text())["key"]["components"] for path in infos]
            return found


def wrong(outputs: Arrays, expected: Arrays, others: Callable[[], tuple[Arrays, Arrays]] | None = None) -> str:
    """Return how outputs differ from ONNX Runtime's, empty if they do not but for rounding.

    Args:
        outputs: What was answered.
        expected: ONNX Runtime's answer.
        others: Of a quantized network, returns ONNX Runtime's exact answer, and that of the network before: what is as
            near to this one is right, since what rounds to one step or to the next grows from layer to layer.
    """
    said = _difference(outputs, expected)
    if not said or others is None:
        return said
    expected, whole = others()
    said = _difference(outputs, expected)
    shapes = [[each.shape for each in arrays] for arrays in (outputs, expected, whole)]
    if not said or shapes[0] != shapes[1] or shapes[1] != shapes[2]:
        return said
    distances = zip(outputs, expected, whole, strict=True)
    return "" if all(_distance(a, c) <= FARTHER * _distance(b, c) for a, b, c in distances) else said


def _difference(outputs: Arrays, expected: Arrays) -> str:
    return difference([_without_denormals(each) for each in outputs], [_without_denormals(each) for each in expected])


def _without_denormals(values: np.ndarray) -> np.ndarray:
    """Return values without those that networks of random weights fade into."""
    return np.where(np.abs(values) < FADED, values.dtype.type(0), values) if values.dtype.kind == "f" else values


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(one.astype("f8") - other.astype("f8")))


def other_answers(path: Path, usual: Arrays) -> tuple[Arrays, Arrays]:
    """Return ONNX Runtime's exact answer of a quantized model, and that of the network before.

    Sums of products of bytes saturate in its usual one without VNNI, which is taken where it cannot write a model
    otherwise.
    """
    with np.load(path.with_suffix(".npz")) as found:
        feeds = dict(found)
    exact = usual
    with contextlib.suppress(Fail):
        exact = onnxruntime_outputs(onnx.load(path), feeds)
    return exact, ort_session(str(path.with_name("float32.onnx"))).run(None, feeds)


def measured(name: str, path: Path, ways: Ways, repeat: int, seconds: float) -> dict[str, Any]:
    """Return the row of one network."""
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    names = [*ways.environments]
    for number in range(repeat):
        for way in names[number % len(names) :] + names[: number % len(names)]:
            runs[way].append(ways.answer(way, path, seconds))
    expected = runs["onnxruntime"][0].get("outputs", [])
    others = partial(other_answers, path, expected) if "int8" in name else None
    row: dict[str, Any] = {"name": name, "family": family(path)}
    for way, answers in runs.items():
        first = answers[0]
        problem = next((each["problem"] for each in answers if "problem" in each), "")
        problem = problem or wrong(first["outputs"], expected, others)
        row[way] = {"problem": problem, **_medians(answers)}
        row[way] |= {key: first[key] for key in ("operators", "host", "built", "missing") if key in first}
    return row


def _medians(answers: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    columns: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        for key, value in answer.items():
            if isinstance(value, (int, float)):
                columns[key].append(value)
    return {key: statistics.median(values) for key, values in columns.items()}


def ratio(row: Mapping[str, Any], way: str = "opbuild") -> float | None:
    """Return the first answer's time relative to ONNX Runtime's; None if one of them failed."""
    one, other = row[way], row["onnxruntime"]
    return None if one["problem"] or other["problem"] else one["seconds"] / other["seconds"]


def summary(rows: Sequence[Mapping[str, Any]], ways: Iterable[str]) -> list[str]:
    """Return lines about all networks."""
    lines = []
    for way in ways:
        ratios = [value for row in rows if (value := ratio(row, way)) is not None]
        said = f"{way}: {len(ratios)} of {len(rows)} right"
        if ratios:
            said += f", first answer {statistics.geometric_mean(ratios):.2f} of ONNX Runtime's, worst {max(ratios):.2f}"
        lines.append(said)
    found = [row["opbuild"] for row in rows if "missing" in row["opbuild"]]
    counts = sorted(max(len(each["missing"]), int(each.get("built_behind", 0))) for each in found)
    if counts:
        tenth = counts[min(len(counts) - 1, int(0.9 * len(counts)))]
        lines.append(f"kernels beyond the pack: median {statistics.median(counts):g}, nine of ten at most {tenth}")
    return lines


def _cells(row: Mapping[str, Any], others: Iterable[str]) -> list[str]:
    own, peer, value = row["opbuild"], row["onnxruntime"], ratio(row)
    best = own.get("best")
    return [
        row["name"],
        f"{peer.get('seconds', 0):.3f}",
        f"{own['seconds']:.3f}" if "seconds" in own else own["problem"][:60],
        "" if value is None else f"{value:.2f}",
        f"{len(own['built'])} of {len(own['operators'])}" if "built" in own else "",
        f"{1e3 * own['latency']:.2f}" if "latency" in own else "",
        f"{own['latency'] / best:.2f}" if best else "",
        f"{own['behind']:.2f}" if best else "",
        f"{own['processor']:.2f}" if best else "",
        *("right" if not row[way]["problem"] else "no" for way in others),
    ]


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("names", nargs="*", help="structures; default: those that are drawn")
    arguments.add_argument("--structures", type=Path, default=RESULTS)
    arguments.add_argument("--each", type=int, default=10, help="networks of each family")
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=0.2, help="length of a measurement of latency")
    arguments.add_argument("--forbidden", action="store_true", help="also with OPBUILD_FORBID_COMPILE=1")
    arguments.add_argument("--without-halide", action="store_true", help="also where it cannot be imported")
    arguments.add_argument("--quantised", action="store_true", help="networks of 8 bits that the pack was made for")
    given = arguments.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, Console(stderr=True).status("") as status:
        structures = Path(temporary) / "quantised" if given.quantised else given.structures
        if given.quantised:
            write_quantised(structures)
        models = exported(structures)
        names = given.names or (QUANTISED if given.quantised else drawn(models, given.each))
        chosen = {name: models[name] for name in names}
        ways = Ways(Path(temporary), forbidden=given.forbidden, without_halide=given.without_halide)
        for number, (name, path) in enumerate(chosen.items()):
            status.update(f"{number} of {len(chosen)}: {name}")
            rows.append(measured(name, path, ways, given.repeat, given.seconds))
            write_results(given.json, "first_answer", rows)
    others = [way for way in ways.environments if way not in ("opbuild", "onnxruntime")]
    table = Table(
        "network", "ONNX Runtime, s", "opbuild, s", "ratio", "built", "calls after, ms", "of the best", "until then, s",
        "processor, s", *others, title="First answers",
    )  # fmt: skip
    for row in rows:
        table.add_row(*_cells(row, others))
    console = Console(width=190)
    console.print(table)
    for line in summary(rows, ("opbuild", *others)):
        console.print(line, highlight=False)
    console.print(dict(Counter(row["family"] for row in rows)), highlight=False)


if __name__ == "__main__":
    main()
