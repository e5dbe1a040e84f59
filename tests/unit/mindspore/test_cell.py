# ruff: noqa: F811, E501, D103 - a fixture is imported; texts stay as MindSpore prints them
"""Cells: parts, parameters, tracing by signature, modes, and what is refused."""

from __future__ import annotations

import copy
import sys
import threading
from collections import OrderedDict

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.errors import InvalidModelError, OpbuildError
from opbuild.mindspore import Parameter, Tensor, nn, ops
from support.mindspore_host import graphs  # noqa: F401 - a fixture


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(3, 2)
        self.scale = Parameter(np.float32([2.0]))
        self.norm = nn.BatchNorm1d(2)

    def construct(self, x):
        return self.norm(self.fc(x)) * self.scale


class Double(nn.Cell):
    def construct(self, x, times=2):
        return x * times


def tensor(*values: float) -> Tensor:
    return Tensor(np.float32(values))


def test_parameters_are_named_by_the_attributes_that_lead_to_them(graphs):
    """The order and the names are MindSpore's: a cell's own parameters first, then its parts'."""
    net = nn.SequentialCell(Block(), nn.ReLU())
    names = [
        "0.scale",
        "0.fc.weight",
        "0.fc.bias",
        "0.norm.moving_mean",
        "0.norm.moving_variance",
        "0.norm.gamma",
        "0.norm.beta",
    ]
    assert [parameter.name for parameter in net.get_parameters()] == names
    assert list(net.parameters_dict()) == names
    assert [p.name for p in net.untrainable_params()] == ["0.norm.moving_mean", "0.norm.moving_variance"]
    assert [name for name, _ in net.cells_and_names()] == ["", "0", "0.fc", "0.norm", "1"]
    assert list(net[0].name_cells()) == ["fc", "norm"]


def test_a_parameter_that_two_cells_share_is_listed_once(graphs):
    """Tied weights are one parameter."""
    net = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))
    net[1].weight = net[0].weight
    assert len(net.trainable_params()) == 3


def test_a_signature_is_traced_once(graphs):
    """Equal shapes, element types and plain values reuse the network; others get one of their own."""
    net = Double()
    for _ in range(2):
        assert net(tensor(1, 2)).asnumpy().tolist() == [2, 4]
    assert len(graphs) == 1
    net(tensor(1, 2, 3))
    net(Tensor(np.int32([1, 2])))
    assert net(tensor(1, 2), 3).asnumpy().tolist() == [3, 6]
    assert net(tensor(1, 2), times=True).dtype == ms.float32
    assert len(graphs) == 5


def test_a_network_follows_its_parameters(graphs):
    """set_data, a new Parameter and an assignment to a part are seen by the next call."""
    net = Block()
    x = Tensor(np.ones((1, 3), np.float32))
    net.fc.weight.set_data(Tensor(np.ones((2, 3), np.float32)))
    net.fc.bias.set_data(np.zeros(2, np.float32))
    first = net(x).asnumpy()
    net.scale.set_data(np.float32([4.0]))
    assert np.allclose(net(x).asnumpy(), 2 * first)
    net.scale = Parameter(np.float32([6.0]))
    assert np.allclose(net(x).asnumpy(), 3 * first)
    net.fc.bias[0] = 1.0
    assert not np.allclose(net(x).asnumpy(), 3 * first)


def test_parameters_of_another_shape_are_refused(graphs):
    """set_data keeps the shape; the error is a ValueError too, as in MindSpore."""
    with pytest.raises(ValueError, match="shape is"):
        nn.Dense(3, 2).weight.set_data(np.zeros((3, 3), np.float32))


def test_plain_attributes_are_part_of_a_network(graphs):
    """A changed Python attribute makes a new network; an attribute that construct sets does not."""

    class Scaled(nn.Cell):
        def __init__(self):
            super().__init__()
            self.factor = 2.0

        def construct(self, x):
            self.calls = True
            return x * self.factor

    net = Scaled()
    assert net(tensor(1)).asnumpy().tolist() == [2]
    net.factor = 5.0
    assert net(tensor(1)).asnumpy().tolist() == [5]
    net(tensor(1))
    assert len(graphs) == 2


def test_nests_go_in_and_come_out(graphs):
    """Tuples, lists and dictionaries of tensors and plain values keep their form."""

    class Nest(nn.Cell):
        def construct(self, pair, named):
            first, (second,) = pair
            return {"sum": first + second, "rest": (named["k"], [first * 2]), "plain": (3, "s", None)}

    result = Nest()((tensor(1), [tensor(2)]), {"k": tensor(5)})
    assert result["sum"].asnumpy().tolist() == [3]
    assert result["rest"][0].asnumpy().tolist() == [5]
    assert result["rest"][1][0].asnumpy().tolist() == [2]
    assert result["plain"] == (3, "s", None)


def test_python_control_flow_on_known_values_is_unrolled(graphs):
    """Loops and branches on shapes and plain values run while the network is traced."""

    class Loop(nn.Cell):
        def construct(self, x, flag):
            for index in range(x.shape[0]):
                x = x + index if flag else x
            return x

    assert Loop()(tensor(1, 1, 1), True).asnumpy().tolist() == [4, 4, 4]
    assert [node.op_type for node in graphs[0].nodes] == ["Add", "Add", "Add"]


@pytest.mark.parametrize(
    "body", [lambda x: x if x.sum() > 0 else -x, lambda x: x.asnumpy(), lambda x: float(x[0]), lambda x: x.item(0)]
)
def test_needing_data_while_tracing_names_the_line(graphs, body):
    """A branch on a traced tensor says where it stands and what to do instead."""

    class Branch(nn.Cell):
        def construct(self, x):
            return body(x)

    with pytest.raises(InvalidModelError, match=r"test_cell\.py:\d+.*") as caught:
        Branch()(tensor(1, 2))
    assert "ops.where" in caught.value.hint


def test_an_assignment_to_a_traced_tensor_is_refused(graphs):
    """x[0] = 1 inside construct says what to do instead."""

    class Assign(nn.Cell):
        def construct(self, x):
            x[0] = 1.0
            return x

    with pytest.raises(InvalidModelError, match="assigns to a part"):
        Assign()(tensor(1, 2))


def test_in_pynative_mode_branches_on_data_work(graphs):
    """Construct runs as it stands: one network for each operator, reused for equal types."""

    class Branch(nn.Cell):
        def construct(self, x):
            return x * 2 if x.sum() > 0 else -x

    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Branch()
    assert net(tensor(1, 2)).asnumpy().tolist() == [2, 4]
    assert net(tensor(-1, -2)).asnumpy().tolist() == [1, 2]
    assert net(tensor(3, 4)).asnumpy().tolist() == [6, 8]
    assert [len(graph.nodes) for graph in graphs] == [1, 1, 1, 1]


def test_a_numpy_argument_is_refused(graphs):
    """The error says to wrap it."""
    with pytest.raises(TypeError, match=r"Tensor\(\)"):
        Double()(np.float32([1]))


def test_a_part_assigned_before_init_is_refused():
    """The error says to call super().__init__() first."""

    class Early(nn.Cell):
        def __init__(self):
            self.fc = nn.Dense(1, 1)

    with pytest.raises(TypeError, match="super"):
        Early()


def test_containers_number_or_name_their_cells(graphs):
    """SequentialCell and CellList index, slice, grow and shrink; an OrderedDict gives names."""
    named = nn.SequentialCell(OrderedDict([("a", nn.Dense(2, 3)), ("b", nn.ReLU())]))
    assert [p.name for p in named.get_parameters()] == ["a.weight", "a.bias"]
    cells = nn.CellList([nn.ReLU(), nn.Tanh()])
    cells.append(nn.Sigmoid())
    cells.insert(0, nn.GELU())
    del cells[1]
    assert [type(cell).__name__ for cell in cells] == ["GELU", "Tanh", "Sigmoid"]
    assert len(cells[1:]) == 2
    with pytest.raises(TypeError):
        nn.SequentialCell(ops.ReLU())


def test_a_copied_cell_has_its_own_parameters(graphs):
    """Deepcopy copies parameters and drops built networks."""
    net = Block()
    x = Tensor(np.ones((1, 3), np.float32))
    before = net(x).asnumpy()
    other = copy.deepcopy(net)
    other.scale.set_data(np.float32([0.0]))
    assert other(x).asnumpy().tolist() == [[0, 0]]
    assert np.array_equal(net(x).asnumpy(), before)


def test_jit_traces_a_function(graphs):
    """A decorated function is one network; inside a cell it is part of the cell's."""

    @ms.jit
    def double_plus(x, y):
        return x * 2 + y

    assert double_plus(tensor(1), tensor(2)).asnumpy().tolist() == [4]
    assert [node.op_type for node in graphs[0].nodes] == ["Mul", "Add"]

    class Net(nn.Cell):
        def construct(self, x):
            return double_plus(x, x)

    assert Net()(tensor(1)).asnumpy().tolist() == [3]
    assert len(graphs) == 2


def test_a_tensor_kept_from_tracing_is_refused_later(graphs):
    """An attribute that held a traced tensor cannot be read as data."""

    class Keeps(nn.Cell):
        def construct(self, x):
            self.kept = x * 2
            return x + 1

    net = Keeps()
    net(tensor(1))
    with pytest.raises(OpbuildError):
        print(net.kept + 1)


def test_cells_print_as_mindspore_prints_them():
    """Nested cells are indented by two spaces."""
    net = nn.SequentialCell(nn.Dense(4, 2, activation="relu"), nn.MaxPool2d(2, 2), nn.Dropout(p=0.3))
    assert repr(net) == (
        "SequentialCell(\n"
        "  (0): Dense(\n"
        "    input_channels=4, output_channels=2, has_bias=True, activation=ReLU()\n"
        "    (activation): ReLU()\n"
        "  )\n"
        "  (1): MaxPool2d(kernel_size=2, stride=2, pad_mode=VALID)\n"
        "  (2): Dropout(p=0.3)\n"
        ")"
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Dense(0, 3), lambda: nn.Conv2d(3, 8, 3, pad_mode="foo"), lambda: nn.Conv2d(3, 8, 3, padding=1),
        lambda: nn.Conv2d(3, 8, 3, group=2), lambda: nn.Conv2d(3, 8, 3, data_format="NHWC"), lambda: nn.Dropout(p=1.0),
        lambda: nn.Embedding(3, 2, padding_idx=3), lambda: nn.MaxPool2d(2, pad_mode="same", padding=1),
        lambda: nn.Dense(2, 2, activation="foo"), lambda: nn.Dense(2, 2, weight_init="foo"),
        lambda: nn.Dense(2, 2, weight_init=Tensor(np.zeros((3, 2), np.float32))), lambda: nn.BatchNorm2d(3, momentum=2.0),
    ],
)  # fmt: skip
def test_wrong_arguments_of_layers_are_value_errors(make):
    """As in MindSpore; they are opbuild's errors too, with a hint."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every message is its own
        make()
    assert isinstance(caught.value, OpbuildError)
    assert caught.value.hint


class Prints(nn.Cell):
    def __init__(self):
        super().__init__()
        self.show = ops.Print()

    def construct(self, x):
        y = x * 2
        print("y is", y, y.shape, sep=": ")
        print([y], end="!\n")
        self.show("given", x)
        print(f"again {y}")
        return y + 1


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_print_in_construct_prints_the_values_of_each_run(graphs, capsys, mode):
    """Traced tensors were printed once, without values; in both modes every call now prints its own, in order."""
    ms.set_context(mode=mode)
    net = Prints()
    for start in (1.0, 5.0):
        assert net(tensor(start)).asnumpy().tolist() == [start * 2 + 1]
        assert capsys.readouterr().out.splitlines() == [
            f"y is: [{start * 2:g}.]: (1,)",
            f"[Tensor(shape=[1], dtype=Float32, value= [ {start * 2:.8e}])]!",
            "given",
            f"Tensor(shape=[1], dtype=Float32, value= [ {start:.8e}])",
            f"again [{start * 2:g}.]",
        ]
    if mode == ms.GRAPH_MODE:
        assert len(graphs) == 1


class Formats(nn.Cell):
    def __init__(self, spec):
        super().__init__()
        self.spec = spec

    def construct(self, x):
        total = x.sum()
        print(f"total {total:{self.spec}}|{total}")
        return x


def test_a_format_in_construct_formats_the_value_of_each_run(graphs, capsys):
    """``f"{loss:.2f}"`` asked a traced tensor for its data."""
    for spec in (".2f", ">10.3f", "<8", "e", "^+9.1%"):
        net = Formats(spec)
        for value in (1.25, 7.5):
            net(tensor(value))
            assert capsys.readouterr().out == f"total {value:{spec}}|{value}\n"


@pytest.mark.parametrize(("spec", "data"), [("d", [1.0]), (".2f", [1.0, 2.0])])
def test_a_format_that_does_not_fit_is_refused_while_it_is_traced(graphs, spec, data):
    """Not when a network that was built prints."""

    class Net(nn.Cell):
        def construct(self, x):
            print(f"{x:{spec}}")
            return x

    with pytest.raises(ValueError, match=r"Unknown format code|of a tensor of shape \(2,\) is not defined"):
        Net()(tensor(*data))


def test_print_of_other_threads_and_files_is_left_alone(graphs, capsys):
    """Only what construct prints to the standard output is kept, and shown at once if it fails."""

    class Net(nn.Cell):
        def construct(self, x):
            other = threading.Thread(target=lambda: print("from a thread"))
            other.start()
            other.join()
            print("to stderr", file=sys.stderr)
            print("before the fault", x * 2)
            raise ValueError("stop")

    before = print
    with pytest.raises(ValueError, match="stop"):
        Net()(tensor(1))
    assert print is before
    said = capsys.readouterr()
    assert said.out == "from a thread\nbefore the fault <traced v0>\n"
    assert said.err == "to stderr\n"
