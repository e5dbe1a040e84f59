"""Layers of networks that torch trains: what each writes into the forward pass, and into the backward one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kernels.tape import Pass, Tape
from opbuild.frontend.torch.builder import Value

ALL = (True, True, True)


class Layers(Tape):
    """A tape that knows the layers of networks."""

    def __init__(self) -> None:
        super().__init__()
        self._zeros: dict[tuple[int, ...], Value] = {}

    # Images

    def conv(
        self, x: Value, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, bias: bool = False,
        pad: int | None = None,
    ) -> Value:  # fmt: skip
        """Add a convolution that keeps the extents, divided by the stride, if ``pad`` says nothing else."""
        weight = self.parameter(outputs, x.shape[1] // groups, kernel, kernel)
        shift = self.parameter(outputs) if bias else None
        around = kernel // 2 if pad is None else pad
        geometry = ((stride,) * 2, (around,) * 2, (1, 1), False, (0, 0), groups)

        def back(dy: Value) -> None:
            wanted = (self.needs(x), True, bias)
            given = (dy, self.kept(x), self.kept(weight), (outputs,))
            found = self.backward("convolution_backward.default", *given, *geometry, wanted)
            for value, gradient in zip((x, weight, shift), found, strict=True):
                if value is not None and gradient is not None:
                    self.flow(value, gradient)

        return self.layer(self.forward("convolution.default", x, weight, shift, *geometry), back)

    def norm(self, x: Value) -> Value:
        """Add a batch normalization by the batch's statistics."""
        channels = x.shape[1]
        scale, shift = self.parameter(channels), self.parameter(channels)
        running = [self.forward.input((channels,)) for _ in range(2)]
        to = self.forward
        y, mean, inverse, *new = to(
            "_native_batch_norm_legit_functional.default", x, scale, shift, *running, True, 0.1, 1e-5
        )
        steps = to("add.Tensor", to.input((), "int64"), 1, dtype="int64")
        for value in (*new, steps):
            to.output(value)

        def back(dy: Value) -> None:
            given = (dy, self.kept(x), self.kept(scale), None, None, self.kept(mean), self.kept(inverse))
            found = self.backward("native_batch_norm_backward.default", *given, True, 1e-5, ALL)
            for value, gradient in zip((x, scale, shift), found, strict=True):
                self.flow(value, gradient)

        return self.layer(y, back)

    def relu(self, x: Value, *, alone: bool = False) -> Value:
        """Add a ReLU; ``alone``: no layer that is trained reads it, so not its result is kept, but where it is 0."""
        y = self.forward("relu.default", x)
        hidden = self.forward("le.Scalar", y, 0, dtype="bool") if alone else None

        def back(dy: Value) -> None:
            to = self.backward
            where = self.kept(hidden) if hidden is not None else to("le.Scalar", self.kept(y), 0, dtype="bool")
            self.flow(x, to("where.self", where, to("scalar_tensor.default", 0, dtype="float32"), dy))

        return self.layer(y, back)

    def relu6(self, x: Value) -> Value:
        """Add a ReLU that ends at 6."""
        to = self.forward
        ends = [to(f"{name}.Scalar", x, bound, dtype="bool") for name, bound in (("le", 0.0), ("ge", 6.0))]
        hidden = to("bitwise_or.Tensor", *ends, dtype="bool")

        def back(dy: Value) -> None:
            zero = self.backward("scalar_tensor.default", 0.0)
            self.flow(x, self.backward("where.self", self.kept(hidden), zero, dy))

        return self.layer(to("hardtanh.default", x, 0.0, 6.0), back)

    def max_pool(self, x: Value, kernel: int, stride: int, pad: int = 0) -> Value:
        """Add the greatest element of each window."""
        geometry = ((kernel,) * 2, (stride,) * 2, (pad,) * 2)
        y, places = self.forward("max_pool2d_with_indices.default", x, *geometry)

        def back(dy: Value) -> None:
            given = (dy, self.kept(x), *geometry, (1, 1), False, self.kept(places))
            self.flow(x, self.backward("max_pool2d_with_indices_backward.default", *given))

        return self.layer(y, back)

    def mean(self, x: Value) -> Value:
        """Add the mean of each channel, as rows."""
        batch, channels, *space = x.shape
        means = self.forward("mean.dim", x, (-1, -2), True)

        def back(dy: Value) -> None:
            to = self.backward
            spread = to("expand.default", to("view.default", dy, (batch, channels, 1, 1)), x.shape)
            self.flow(x, to("div.Scalar", spread, prod(space)))

        return self.layer(self.forward("view.default", means, (batch, channels)), back)

    # Everywhere

    def view(self, x: Value, *shape: int) -> Value:
        """Add another shape."""
        return self.layer(
            self.forward("view.default", x, shape),
            lambda dy: self.flow(x, self.backward("view.default", dy, x.shape)),
        )

    def transpose(self, x: Value, one: int, other: int) -> Value:
        """Add an exchange of two dimensions."""
        return self.layer(
            self.forward("transpose.int", x, one, other),
            lambda dy: self.flow(x, self.backward("transpose.int", dy, one, other)),
        )

    def permute(self, x: Value, *order: int) -> Value:
        """Add another order of dimensions."""
        back = tuple(order.index(axis) for axis in range(len(order)))
        return self.layer(
            self.forward("permute.default", x, order),
            lambda dy: self.flow(x, self.backward("permute.default", dy, back)),
        )

    def add(self, x: Value, y: Value) -> Value:
        """Add a sum; ``y`` may be repeated."""

        def back(dy: Value) -> None:
            same = (1,) * (len(dy.shape) - len(y.shape)) + y.shape
            more = tuple(axis for axis, extent in enumerate(same) if extent != dy.shape[axis])
            self.flow(x, dy)
            self.flow(y, self._summed(dy, more, y.shape) if more else dy)

        return self.layer(self.forward("add.Tensor", x, y), back)

    def linear(self, x: Value, outputs: int) -> Value:
        """Add a linear layer over the last dimension."""
        weight, shift = self.parameter(outputs, x.shape[-1]), self.parameter(outputs)
        rows = x if len(x.shape) == 2 else self.view(x, prod(x.shape[:-1]), x.shape[-1])
        turned = self.forward("t.default", weight)

        def back(dy: Value) -> None:
            to = self.backward
            self.flow(rows, to("mm.default", dy, self.kept(weight)))
            self.flow(weight, to("mm.default", to("t.default", dy), self.kept(rows)))
            self.flow(shift, self._summed(dy, (0,), shift.shape))

        y = self.layer(self.forward("addmm.default", shift, rows, turned), back)
        return y if rows is x else self.view(y, *x.shape[:-1], outputs)

    def product(self, x: Value, outputs: int) -> Value:
        """Add a linear layer of rows without a bias."""
        weight = self.parameter(outputs, x.shape[-1])

        def back(dy: Value) -> None:
            to = self.backward
            self.flow(weight, to("mm.default", to("t.default", dy), self.kept(x)))
            self.flow(x, to("mm.default", dy, self.kept(weight)))

        return self.layer(self.forward("mm.default", x, self.forward("t.default", weight)), back)

    def _summed(self, dy: Value, axes: Sequence[int], shape: tuple[int, ...]) -> Value:
        found: Value = self.backward("view.default", self.backward("sum.dim_IntList", dy, axes, True), shape)
        return found

    def cross_entropy(self, logits: Value) -> None:
        """Add the mean cross entropy of rows, the loss."""
        to, rows = self.forward, logits.shape[0]
        classes = to.input((rows,), "int64")

        def counted(to: Pass, classes: Value) -> tuple[Value, Value]:
            counts = to("ne.Scalar", classes, -100, dtype="bool")
            none = to("scalar_tensor.default", 0, dtype="int64")
            return counts, to("where.self", counts, classes, none, dtype="int64")

        found = to("_log_softmax.default", logits, 1, False)
        counts, chosen = counted(to, classes)
        losses = to("gather.default", found, 1, to("unsqueeze.default", chosen, 1, dtype="int64"))
        losses = to("neg.default", to("squeeze.dim", losses, 1))
        losses = to("where.self", counts, losses, to("scalar_tensor.default", 0))
        number = to("_to_copy.default", to("sum.default", counts, dtype="int64"))
        to.output(loss := to("div.Tensor", to("sum.default", losses), number))

        def back(dy: Value) -> None:
            to = self.backward
            each = to("div.Tensor", dy, self.kept(number))
            counts, chosen = counted(to, to("unsqueeze.default", self.kept(classes), 1, dtype="int64"))
            kept = self.kept(found)
            scattered = to("scatter.value", to("zeros_like.default", kept), 1, chosen, -1.0)
            weighted = to("mul.Tensor", scattered, to("where.self", counts, each, to("scalar_tensor.default", 0)))
            sums = to("sum.dim_IntList", weighted, (1,), True)
            self.flow(logits, to("sub.Tensor", weighted, to("mul.Tensor", to("exp.default", kept), sums)))

        self.layer(loss, back)

    # Texts

    def embedding(self, ids: Value, rows: int, width: int) -> Value:
        """Add rows of a table."""
        table = self.parameter(rows, width)

        def back(dy: Value) -> None:
            self.flow(table, self.backward("embedding_dense_backward.default", dy, self.kept(ids), rows, -1, False))

        return self.layer(self.forward("embedding.default", table, ids), back)

    def layer_norm(self, x: Value) -> Value:
        """Add a normalization of the last dimension."""
        width = x.shape[-1:]
        scale, shift = self.parameter(*width), self.parameter(*width)
        y, mean, inverse = self.forward("native_layer_norm.default", x, width, scale, shift, 1e-5)

        def back(dy: Value) -> None:
            kept = [self.kept(each) for each in (mean, inverse, scale, shift)]
            given = (dy, self.kept(x), width, *kept, ALL)
            found = self.backward("native_layer_norm_backward.default", *given)
            for value, gradient in zip((x, scale, shift), found, strict=True):
                self.flow(value, gradient)

        return self.layer(y, back)

    def gelu(self, x: Value) -> Value:
        """Add a Gelu."""

        def back(dy: Value) -> None:
            to, kept = self.backward, self.kept(x)
            error = to("erf.default", to("mul.Tensor", kept, 0.7071067811865476))
            share = to("mul.Tensor", to("add.Tensor", error, 1), 0.5)
            density = to("exp.default", to("mul.Tensor", to("mul.Tensor", kept, kept), -0.5))
            slope = to("mul.Tensor", kept, to("mul.Tensor", density, 0.3989422804014327))
            self.flow(x, to("mul.Tensor", dy, to("add.Tensor", share, slope)))

        return self.layer(self.forward("gelu.default", x), back)

    def select(self, x: Value, index: int) -> Value:
        """Add an element of the first dimension."""

        def back(dy: Value) -> None:
            to, ones = self.backward, (1,) * len(dy.shape)
            places = to("view.default", to("arange.default", x.shape[0], dtype="int64"), (-1, *ones), dtype="int64")
            chosen = to("eq.Scalar", places, index, dtype="bool")
            spread = to("expand.default", to("unsqueeze.default", dy, 0), x.shape)
            if x.shape not in self._zeros:
                self._zeros[x.shape] = to("full.default", x.shape, 0, dtype="float32")
            self.flow(x, to("where.self", chosen, spread, self._zeros[x.shape]))

        return self.layer(self.forward("select.int", x, 0, index), back)

    def attention(self, q: Value, k: Value, v: Value, mask: Value | None, *, steps_first: bool) -> Value:
        """Add attention of heads, written out as torch does where gradients are needed.

        Args:
            q: Queries, ``[batch, heads, seq, size]``.
            k: Keys, as the queries.
            v: Values, as the queries.
            mask: What is added to scores, if anything.
            steps_first: What is kept of these lies step by step, as where one product gives all three.
        """
        to, shape = self.forward, q.shape
        order, turned_order = ((1, 0, 2), (2, 0, 1)) if steps_first else ((), ())
        flat, root = (shape[0] * shape[1], *shape[2:]), float(shape[-1]) ** -0.25
        scores = (*shape[:-1], shape[-2])
        queries = to("view.default", to("mul.Scalar", q, root), flat)
        keys = to("view.default", to("transpose.int", to("mul.Scalar", k, root), -2, -1), (flat[0], flat[2], flat[1]))
        found = to("view.default", to("bmm.default", queries, keys), scores)
        weights = to("_safe_softmax.default", found if mask is None else to("add.Tensor", found, mask), -1)
        rows, values = to("view.default", weights, (flat[0], *scores[2:])), to("view.default", v, flat)

        def back(dy: Value) -> None:
            to = self.backward
            kept, flows = self.kept(weights), to("view.default", dy, flat)
            turned = to("transpose.int", to("view.default", kept, rows.shape), 1, 2)
            self.flow(v, to("view.default", to("bmm.default", turned, flows), shape))
            parts = to("bmm.default", flows, to("transpose.int", self.kept(values, order), 1, 2))
            weighted = to("mul.Tensor", to("view.default", parts, scores), kept)
            sums = to("sum.dim_IntList", weighted, (-1,), True)
            slopes = to("view.default", to("sub.Tensor", weighted, to("mul.Tensor", kept, sums)), rows.shape)
            of_keys = to("bmm.default", to("transpose.int", self.kept(queries, order), 1, 2), slopes)
            of_queries = to("bmm.default", slopes, to("transpose.int", self.kept(keys, turned_order), 1, 2))
            of_keys = to("mul.Scalar", to("view.default", of_keys, (*shape[:2], shape[3], shape[2])), root)
            self.flow(k, to("transpose.int", of_keys, -2, -1))
            self.flow(q, to("mul.Scalar", to("view.default", of_queries, shape), root))

        return self.layer(to("view.default", to("bmm.default", rows, values), shape), back)
