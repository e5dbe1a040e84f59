"""Cells that hold cells; Dense, Embedding, Dropout and their kind; cells that wrap others."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, allowed, one_of, positive
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import HeUniform, Uniform, initializer
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.convolution import BatchNorm1d, BatchNorm2d, Conv2d
from opbuild.mindspore.nn.declaration import cell as declared
from opbuild.mindspore.nn.declaration import layer, parameter
from opbuild.mindspore.nn.layers import ClipByNorm, LeakyReLU, get_activation
from opbuild.mindspore.ops.declaration import Primitive
from opbuild.mindspore.ops.reduction import product
from opbuild.mindspore.ops.shaping import reshaped
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


class _Numbered(Cell):
    """Cells in order, named by number or by the keys of an ``OrderedDict``."""

    def _register(self, name: str, value: Any) -> None:
        prefix = self._prefix() if isinstance(value, Cell) and self._auto_prefix else ""
        super()._register(name, value)
        if prefix:
            value.update_parameters_name(f"{prefix}{name}.")

    def _prefix(self) -> str:
        """Return the prefix of names of parameters here: another cell has been given these, so its parts have too."""
        for path, held in self.parameters_and_names():
            if held.name.endswith(path):
                return held.name.removesuffix(path)
        return ""

    def _add(self, cells: Iterable[Any]) -> None:
        for cell in cells:
            self.append(cell)

    def append(self, cell: Cell) -> Any:
        """Add a cell at the end."""
        self.insert_child_to_cell(str(len(self._cells)), _checked(cell, type(self).__name__))
        return self

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(list(self._cells.values()))

    def __getitem__(self, index: int | slice) -> Any:
        cells = list(self._cells.values())
        if isinstance(index, slice):
            return type(self)(*([cells[index]] if isinstance(self, CellList) else cells[index]))
        return cells[index]

    def __setitem__(self, index: int, cell: Cell) -> None:
        setattr(self, list(self._cells)[index], _checked(cell, type(self).__name__))

    def __delitem__(self, index: int | slice) -> None:
        cells = list(self._cells.values())
        del cells[index]
        self._replace(cells)

    def _replace(self, cells: list[Cell]) -> None:
        for name in list(self._cells):
            delattr(self, name)
        self._add(cells)


class SequentialCell(_Numbered):
    """Cells of which each takes the result of the one before.

    Args:
        args: Cells, one list of cells, or one ``OrderedDict`` of named cells.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], (OrderedDict, dict)):
            for name, cell in args[0].items():
                self.insert_child_to_cell(name, _checked(cell, "SequentialCell"))
            return
        self._add(args[0] if len(args) == 1 and isinstance(args[0], list) else args)

    def construct(self, input_data: Any) -> Any:
        """Apply the cells in order."""
        for cell in self._cells.values():
            input_data = cell(input_data)
        return input_data


class CellList(_Numbered):
    """A list of cells; it holds them and computes nothing.

    Args:
        args: One list of cells, or cells.
        kwargs: ``auto_prefix`` as in ``Cell``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(kwargs.get("auto_prefix", True))
        self._add(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)

    def extend(self, cells: Iterable[Cell]) -> CellList:
        """Add cells at the end."""
        self._add(cells)
        return self

    def insert(self, index: int, cell: Cell) -> None:
        """Add a cell before another."""
        cells = list(self._cells.values())
        cells.insert(index, _checked(cell, "CellList"))
        self._replace(cells)


class CellDict(Cell):
    """Cells by name."""

    def __init__(self, cells: Mapping[str, Cell] | None = None) -> None:
        super().__init__()
        for name, cell in (cells or {}).items():
            self.insert_child_to_cell(name, _checked(cell, "CellDict"))

    def __getitem__(self, name: str) -> Cell:
        return self._cells[name]

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._cells))

    def __contains__(self, name: object) -> bool:
        return name in self._cells

    def keys(self) -> Any:
        """Return the names."""
        return self._cells.keys()

    def values(self) -> Any:
        """Return the cells."""
        return self._cells.values()

    def items(self) -> Any:
        """Return names and cells."""
        return self._cells.items()


def _checked(cell: Any, owner: str) -> Cell:
    if not isinstance(cell, Cell):
        raise ArgumentTypeError(f"{owner} was given a {type(cell).__name__}", "give cells")
    return cell


class Dense(Cell):
    """A fully connected layer: ``activation(x @ weight.T + bias)`` over the last axis.

    Args:
        in_channels: Extent of the input's last axis.
        out_channels: Extent of the output's last axis.
        weight_init: Initial weight of shape (out_channels, in_channels); by default ``HeUniform(sqrt(5))``.
        bias_init: Initial bias of shape (out_channels,); by default uniform within ``1 / sqrt(in_channels)``.
        activation: Name of an activation, a cell or a primitive; None for none.
    """

    def __init__(self, in_channels: int, out_channels: int, weight_init: Any = None, bias_init: Any = None,
                 has_bias: bool = True, activation: Any = None, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels of Dense")
        self.out_channels = positive(out_channels, "out_channels of Dense")
        self.has_bias = bool(has_bias)
        usual, shift = HeUniform(math.sqrt(5)), Uniform(1 / math.sqrt(in_channels))
        self.weight = parameter(weight_init, (out_channels, in_channels), dtype, "weight", usual)
        self.bias = parameter(bias_init, (out_channels,), dtype, "bias", shift) if has_bias else None
        self.activation = get_activation(activation) if isinstance(activation, str) else activation
        if activation is not None and not isinstance(self.activation, (Cell, Primitive)):
            raise ArgumentTypeError(f"activation of Dense is {activation!r}", "give a name, a Cell or a Primitive")

    def construct(self, x: Tensor) -> Tensor:
        """Return a tensor of shape (..., out_channels)."""
        rows = x if x.ndim == 2 else reshaped(x, (x.size // max(x.shape[-1], 1), x.shape[-1]))
        result = product(rows, self.weight, False, True, "Dense", 2)
        if self.bias is not None:
            result = ops.bias_add(result, self.bias)
        if self.activation is not None:
            result = self.activation(result)
        return result if x.ndim == 2 else reshaped(result, (*x.shape[:-1], self.out_channels))

    def extend_repr(self) -> str:
        """Return the layer's arguments."""
        shown = f"input_channels={self.in_channels}, output_channels={self.out_channels}"
        shown += f", has_bias={self.has_bias}" if self.has_bias else ""
        return shown + (f", activation={self.activation}" if self.activation is not None else "")


class Linear(Cell):
    """``input @ weight.T + bias`` over the last axis."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, weight_init: Any = None,
                 bias_init: Any = None, dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        self.in_features = positive(in_features, "in_features of Linear")
        self.out_features = positive(out_features, "out_features of Linear")
        usual, shift = HeUniform(math.sqrt(5)), Uniform(1 / math.sqrt(in_features))
        self.weight = parameter(weight_init, (out_features, in_features), dtype, "weight", usual)
        self.bias = parameter(bias_init, (out_features,), dtype, "bias", shift) if bias else None

    def construct(self, x: Tensor) -> Tensor:
        """Return a tensor of shape (..., out_features)."""
        return ops.dense(x, self.weight, self.bias)


class Identity(Cell):
    """The input as it is; arguments are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def construct(self, x: Any) -> Any:
        """Return ``x``."""
        return x


class Dropout(Cell):
    """In training elements are zeroed with probability ``p`` and the others divided by ``1 - p``; else nothing happens.

    Args:
        keep_prob: The older argument: the probability that an element stays, in (0, 1].
        p: The probability that an element is zeroed, in [0, 1).
        dtype: Kept for programs that give it.
    """

    def __init__(self, keep_prob: float = 0.5, p: float | None = None, dtype: Any = float32) -> None:
        super().__init__()
        if p is None and not 0 < keep_prob <= 1:
            raise ArgumentValueError(f"keep_prob of Dropout is {keep_prob}", "give a number above 0 and up to 1")
        if p is not None and not 0 <= p < 1:
            raise ArgumentValueError(f"p of Dropout is {p}", "give a number from 0 to below 1")
        self.keep_prob = keep_prob
        self.p = p

    def construct(self, x: Tensor) -> Tensor:
        """Return ``x``, in training with zeros."""
        return ops.dropout(x, 1.0 - self.keep_prob if self.p is None else self.p, self.training)

    def extend_repr(self) -> str:
        """Return the layer's arguments."""
        return f"keep_prob={self.keep_prob}" if self.p is None else f"p={self.p}"


class Embedding(Cell):
    """Rows of a table, by index.

    Args:
        use_one_hot: Multiply a one-hot matrix instead of gathering: an index that is out of range gives zeros.
        dtype: Kept for programs that give it; the table is float32 unless a tensor says otherwise.
        padding_idx: The row that starts as zeros, or None.
    """

    _shown = "vocab_size embedding_size use_one_hot embedding_table dtype padding_idx"

    def __init__(self, vocab_size: int, embedding_size: int, use_one_hot: bool = False, embedding_table: Any = "normal",
                 dtype: Any = float32, padding_idx: int | None = None) -> None:  # fmt: skip
        super().__init__()
        self.vocab_size = positive(vocab_size, "vocab_size of Embedding")
        self.embedding_size = positive(embedding_size, "embedding_size of Embedding")
        self.use_one_hot = use_one_hot
        self.dtype = dtype
        self.padding_idx = padding_idx
        table = initializer(embedding_table, (vocab_size, embedding_size)).asnumpy()
        if padding_idx is not None:
            if not 0 <= padding_idx < vocab_size:
                raise ArgumentValueError(
                    f"padding_idx of Embedding is {padding_idx}", f"it must be in [0, {vocab_size})"
                )
            table = table.copy()
            table[padding_idx] = 0
        self.embedding_table = Parameter(np.asarray(table), name="embedding_table")

    def construct(self, ids: Tensor) -> Tensor:
        """Return a tensor of shape (*ids.shape, embedding_size)."""
        if not self.use_one_hot:
            return ops.embedding(ids, self.embedding_table)
        chosen = ops.one_hot(reshaped(ids, (ids.size,)), self.vocab_size, 1.0, 0.0)
        return reshaped(ops.matmul(chosen, self.embedding_table), (*ids.shape, self.embedding_size))


class EmbeddingLookup(Cell):
    """Rows of a table, by index; an index that is out of range gives zeros.

    Args:
        target: ``CPU`` or ``DEVICE``: there is one device.
        slice_mode, manual_shapes, sparse: Kept for programs that give them.
        max_norm: The greatest Euclidean norm of a row, or None.
    """

    def __init__(self, vocab_size: int, embedding_size: int, param_init: Any = "normal", target: str = "CPU",
                 slice_mode: str = "batch_slice", manual_shapes: Any = None, max_norm: float | None = None,
                 sparse: bool = True, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.vocab_size = positive(vocab_size, "vocab_size of EmbeddingLookup")
        self.embedding_size = positive(embedding_size, "embedding_size of EmbeddingLookup")
        self.target = one_of(target, ("CPU", "DEVICE"), "target of EmbeddingLookup")
        shape = (vocab_size, embedding_size)
        self.embedding_table = parameter(param_init, shape, dtype, "embedding_table")
        self.max_norm = max_norm

    def construct(self, indices: Tensor) -> Tensor:
        """Return a tensor of shape (..., embedding_size)."""
        inside = ops.logical_and(ops.greater_equal(indices, 0), ops.less(indices, self.vocab_size))
        rows = ops.gather(self.embedding_table, ops.where(inside, indices, 0), 0)
        rows = ops.where(ops.expand_dims(inside, -1), rows, 0.0)
        return rows if self.max_norm is None else ClipByNorm(rows.ndim - 1)(rows, float(self.max_norm))


class _ChannelDropout(Cell):
    """In training whole channels are zeroed with probability ``p``; else nothing happens."""

    _shown = "p"


class _WithNormAndActivation(Cell):
    """The base of cells of one with parameters, batch normalization if ``has_bn``, and an activation if one is given.

    Subclasses make the first and name it.
    """

    _first = ""

    def _complete(self, norm: Cell | None, activation: Any, alpha: float) -> None:
        self.has_bn = norm is not None
        if norm is not None:
            self.batchnorm = norm
        if activation == "leakyrelu":
            self.activation: Any = LeakyReLU(alpha)
        else:
            self.activation = get_activation(activation) if isinstance(activation, str) else activation

    def construct(self, x: Tensor) -> Tensor:
        """Return the result."""
        x = getattr(self, self._first)(x)
        x = self.batchnorm(x) if self.has_bn else x
        return x if self.activation is None else self.activation(x)


class Conv2dBnAct(_WithNormAndActivation):
    """A convolution, batch normalization if ``has_bn``, and an activation if one is given."""

    _first = "conv"

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 pad_mode: str = "same", padding: Any = 0, dilation: Any = 1, group: int = 1, has_bias: bool = False,
                 weight_init: Any = "normal", bias_init: Any = "zeros", has_bn: bool = False,
                 momentum: float = 0.997, eps: float = 1e-5, activation: Any = None, alpha: float = 0.2,
                 after_fake: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.conv = Conv2d(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group,
                           has_bias, weight_init, bias_init)  # fmt: skip
        self._complete(BatchNorm2d(out_channels, eps, momentum) if has_bn else None, activation, alpha)


class DenseBnAct(_WithNormAndActivation):
    """A dense layer, batch normalization if ``has_bn``, and an activation if one is given."""

    _first = "dense"

    def __init__(self, in_channels: int, out_channels: int, weight_init: Any = "normal", bias_init: Any = "zeros",
                 has_bias: bool = True, has_bn: bool = False, momentum: float = 0.9, eps: float = 1e-5,
                 activation: Any = None, alpha: float = 0.2, after_fake: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.dense = Dense(in_channels, out_channels, weight_init, bias_init, has_bias)
        self._complete(BatchNorm1d(out_channels, eps, momentum) if has_bn else None, activation, alpha)


@declared()
def TimeDistributed(inputs: Tensor, *, layer: Any, time_axis: int, reshape_with_axis: int | None = None) -> Tensor:
    """A cell or a primitive applied to every step along ``time_axis``.

    It is applied to one step after another, or once to all, which are joined to the axis ``reshape_with_axis``.
    """
    axis = time_axis % inputs.ndim
    if reshape_with_axis is None:
        return ops.stack([layer(step) for step in ops.unstack(inputs, axis)], axis)
    other = reshape_with_axis % inputs.ndim
    if abs(axis - other) != 1:
        raise ArgumentValueError(f"TimeDistributed over axis {axis} with reshape_with_axis={other}", "name a neighbour")
    first, shape = min(axis, other), inputs.shape
    joined = ops.reshape(inputs, (*shape[:first], shape[first] * shape[first + 1], *shape[first + 2 :]))
    result = layer(joined)
    return ops.reshape(result, (*result.shape[:first], *shape[first : first + 2], *result.shape[first + 1 :]))


Dropout1d, Dropout2d, Dropout3d = (
    layer(lambda self, x, dropout=dropout: dropout(x, self.p, self.training),
          f"Dropout of channels of shape {shape}.", "x", _ChannelDropout,
          {"p": allowed(lambda p: 0 <= p <= 1, "give a number from 0 to 1")}, p=0.5)
    for dropout, shape in ((ops.dropout1d, "(N, C, L)"), (ops.dropout2d, "(N, C, H, W)"),
                           (ops.dropout3d, "(N, C, D, H, W)"))
)  # fmt: skip
Flatten = layer(ops.flatten, "The axes from ``start_dim`` to ``end_dim`` as one.", "x", start_dim=1, end_dim=-1)

names.export(vars())
