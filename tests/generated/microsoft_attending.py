"""Random nodes of com.microsoft's attention and recurrent operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from generated.microsoft_cases import MICROSOFT, Array, Case, Draw, draws, model_of
from support.comparison import onnxruntime_outputs


def mask(draw: Draw, batch: int, length: int, total: int) -> Array | None:
    """Return a mask of keys in one of its forms, or none; every query sees a key."""
    counts = draw.ints(1, total, batch, dtype=np.int32)
    whole = (np.arange(total) < counts[:, None]).astype(np.int32)
    ends = np.concatenate([counts, np.minimum(counts - 1, draw.ints(0, 1, batch, dtype=np.int32))])
    return draw.one(None, counts, whole, np.repeat(whole[:, None], length, 1), ends)


@draws("Attention")
def _attention(draw: Draw) -> Case:
    heads, size, length, batch, past = draw.int(1, 3), draw.int(1, 5), draw.int(1, 5), 2, draw.one(0, 0, 3)
    other = size if past else draw.int(1, 5)
    hidden = draw.int(1, 9)
    columns = heads * (2 * size + other)
    total = length + past
    attrs: dict[str, Any] = {"num_heads": heads, "unidirectional": draw.int(0, 1)}
    attrs |= {"qkv_hidden_sizes": [heads * size, heads * size, heads * other]} if other != size or draw.yes() else {}
    attrs |= {"scale": 0.3} if draw.yes(0.3) else {}
    attrs |= {"mask_filter_value": -1000.0} if draw.yes(0.3) else {}
    given = [
        *(draw.f(batch, length, hidden), draw.f(hidden, columns), draw.maybe(lambda: draw.f(columns), 0.8)),
        *(mask(draw, batch, length, total), draw.f(2, batch, heads, past, size) if past else None),
        None if past else draw.maybe(lambda: draw.f(draw.one(1, batch), draw.one(1, heads), length, total), 0.3),
    ]
    return Case(given, attrs, (True, other == size and (bool(past) or draw.yes())), known=(1, 2), tolerance=1e-4)


@draws("MultiHeadAttention")
def _multi_head(draw: Draw) -> Case:
    heads, size, length, batch = draw.int(1, 3), draw.int(1, 5), draw.int(1, 5), 2
    form = draw.one("apart", "apart", "packed", "packed keys", "heads")
    keys = length if form == "packed" else draw.int(1, 6)
    past = draw.int(1, 3) if form == "apart" and draw.yes(0.4) else 0
    other = draw.int(1, 5) if form == "apart" and not past else size
    total = keys + past
    query, key, value = (
        draw.f(batch, rows, heads, each) for rows, each in ((length, size), (keys, size), (keys, other))
    )
    attrs: dict[str, Any] = {"num_heads": heads, "unidirectional": draw.int(0, 1)}
    attrs |= {"scale": 0.3} if draw.yes(0.3) else {}
    attrs |= {"mask_filter_value": -1000.0} if draw.yes(0.3) else {}
    hidden = mask(draw, batch, length, total)
    given = [
        *(each.reshape(*each.shape[:2], -1) for each in (query, key, value)),
        draw.maybe(lambda: draw.f(heads * (2 * size + other)), 0.4) if form == "apart" else None,
        None if hidden is not None and hidden.shape == (2 * batch,) else hidden,
        draw.maybe(lambda: draw.f(draw.one(1, batch), draw.one(1, heads), length, total), 0.3),
        *((draw.f(batch, heads, past, size), draw.f(batch, heads, past, other)) if past else (None, None)),
    ]
    # Without the keys that it hands on ONNX Runtime forgets those that it was given.
    present = form == "apart" and (bool(past) or draw.yes())
    case = Case(given, attrs, (True, present, present, draw.yes(0.3)), tolerance=1e-4)
    if form == "heads":
        given[1:3] = [np.ascontiguousarray(each.transpose(0, 2, 1, 3)) for each in (key, value)]
    if form.startswith("packed"):  # for which ONNX Runtime has no kernel for CPUs
        case = case._replace(expected=onnxruntime_outputs(*model_of(case, "MultiHeadAttention", MICROSOFT)))
        whole = [query, key, value] if form == "packed" else [key, value]
        packed = np.stack(whole, 3)
        given = [packed, None, None, *given[3:]] if form == "packed" else [given[0], packed, None, *given[3:]]
    return case._replace(inputs=given)


@draws("GroupQueryAttention")
def _grouped(draw: Draw) -> Case:
    groups, each, half = draw.int(1, 2), draw.int(1, 3), 8
    heads, size = groups * each, 2 * half
    first = draw.yes()
    length = draw.int(1, 5) if first else draw.one(1, 1, 3)
    past = 0 if first else draw.int(1, 6)
    batch, total = 1 if past and length > 1 else 2, length + past
    counts = np.full(batch, total - 1, np.int32)
    packed = draw.yes(0.3)
    query = draw.f(batch, length, (heads + 2 * groups if packed else heads) * size)
    key, value = (None if packed else draw.f(batch, length, groups * size) for _ in range(2))
    attrs: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
    rotary = draw.yes()
    attrs |= {"do_rotary": 1, "rotary_interleaved": draw.int(0, 1)} if rotary else {}
    attrs |= {"local_window_size": draw.int(1, 4)} if draw.yes(0.3) else {}
    attrs |= {"softcap": 3.0} if draw.yes(0.3) else {}
    attrs |= {"scale": 0.2} if draw.yes(0.3) else {}
    sink = draw.maybe(lambda: draw.f(heads), 0.3)
    attrs |= {"smooth_softmax": 1} if sink is None and draw.yes(0.3) else {}
    bias = draw.maybe(lambda: draw.f(draw.one(1, batch), draw.one(1, heads), length, total), 0.3)
    given = [
        *(query, key, value),
        *((draw.f(batch, groups, past, size) for _ in range(2)) if past else (None, None)),
        *(counts, np.array(total, np.int32)),
        *((draw.f(16, half), draw.f(16, half)) if rotary else (None, None)),
        *(None, bias, sink),
    ]
    case = Case(given, attrs, (True, True, True), known=(6, 7, 8), tolerance=1e-4)
    return _normalized(draw, case, size) if not packed and draw.yes(0.3) else case


def _normalized(draw: Draw, case: Case, size: int) -> Case:
    """Return a case that normalizes its queries and keys, for which ONNX Runtime has no kernel for CPUs."""
    given = [*case.inputs, None, None, draw.f(size), draw.f(size)]
    plain = list(case.inputs)
    for index in (0, 1):
        rows = np.asarray(given[index]).reshape(*np.shape(given[index])[:2], -1, size)
        weight = np.asarray(given[14 + index])
        rows = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-6) * weight
        plain[index] = rows.reshape(np.shape(given[index])).astype(np.float32)
    right = onnxruntime_outputs(*model_of(case._replace(inputs=plain), "GroupQueryAttention", MICROSOFT))
    return case._replace(inputs=given, expected=right)


@draws("DynamicQuantizeLSTM")
def _lstm(draw: Draw) -> Case:
    hidden, inputs, length, batch, both = draw.int(1, 6), draw.int(1, 6), draw.int(1, 4), 2, draw.yes(0.4)
    directions, columns = 1 + both, (4 * hidden,) if draw.yes() else ()
    kind = draw.one(np.int8, np.uint8)
    weights = [draw.bytes(kind, directions, rows, 4 * hidden) for rows in (inputs, hidden)]
    scales = [(draw.positive(directions, *columns) / 200).astype(np.float32) for _ in range(2)]
    zeros = [np.full((directions, *columns), 0 if kind is np.int8 else 128, kind) for _ in range(2)]
    given = [
        *(draw.f(length, batch, inputs), *weights, draw.maybe(lambda: draw.f(directions, 8 * hidden))),
        draw.maybe(lambda: draw.ints(1, length, batch, dtype=np.int32), 0.3),
        *(draw.maybe(lambda: draw.f(directions, batch, hidden), 0.3) for _ in range(2)),
        draw.maybe(lambda: draw.f(directions, 3 * hidden), 0.3),
        *(scales[0], zeros[0], scales[1], zeros[1]),
    ]
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if both else draw.one("forward", "reverse")}
    return Case(given, attrs, (True, True, True), known=(1, 2, 3, 8, 9, 10, 11), tolerance=5e-2)
