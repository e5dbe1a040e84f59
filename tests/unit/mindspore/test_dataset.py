"""Data sets: which rows come, in which order, and as what."""

from __future__ import annotations

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.mindspore import dataset as ds
from opbuild.mindspore.dataset import config, transforms, vision


@pytest.fixture(autouse=True)
def _no_seed(monkeypatch):
    monkeypatch.setitem(config._SETTINGS, "seed", None)


def _numbers(count: int, **options) -> ds.NumpySlicesDataset:
    return ds.NumpySlicesDataset({"x": np.arange(count, dtype=np.float32), "y": np.arange(count) % 3}, **options)


def _rows(dataset: ds.Dataset, column: int = 0) -> list:
    return [row[column].tolist() for row in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)]


def test_rows_are_batched_and_the_last_ones_fewer_or_left_out():
    """As tensors or as arrays, by name or in order; sizes are told before anything is read."""
    data = _numbers(5, shuffle=False)
    assert _rows(data.batch(2)) == [[0, 1], [2, 3], [4]]
    assert _rows(data.batch(2, drop_remainder=True)) == [[0, 1], [2, 3]]
    assert [len(data.batch(2)), data.batch(2, True).get_dataset_size(), data.batch(2).get_batch_size()] == [3, 2, 2]
    (first, *_) = data.batch(2).create_dict_iterator()
    assert list(first) == ["x", "y"]
    assert isinstance(first["x"], ms.Tensor)
    assert first["x"].dtype == ms.float32
    assert data.batch(2).output_shapes() == [[2], [2]]
    assert data.output_types() == [np.float32, np.int64]


def test_the_order_is_random_by_default_and_the_seed_repeats_it():
    """Every epoch has another one; all rows come in each."""
    ms.set_seed(5)
    once, again = [_epochs(_numbers(20)) for _ in range(2)]
    assert once == again
    assert once[0] != once[1]
    third = ds.pipeline.Rows(_numbers(20), list, 1, True, first=1)
    assert [float(row[0]) for row in third] == once[1]
    assert [sorted(epoch) for epoch in once] == [list(range(20))] * 2
    ds.config.set_seed(6)
    assert _epochs(_numbers(20)) != once
    assert _rows(_numbers(4, shuffle=False)) == [0, 1, 2, 3]


def _epochs(data: ds.Dataset) -> list[list[float]]:
    iterator = data.create_dict_iterator(num_epochs=2, output_numpy=True)
    found = [[float(row["x"]) for row in iterator] for _ in range(3)]
    assert not found.pop()
    return found


def test_operations_follow_each_other():
    """Maps of several columns, names, repeats, parts, filters, and two sets side by side."""
    data = _numbers(6, shuffle=False)
    mapped = data.map([lambda x: x * 2, lambda x: x + 1], "x")
    assert _rows(mapped) == [1, 3, 5, 7, 9, 11]
    split = data.map(lambda x, y: (x, y, x + y), ["x", "y"], ["a", "b", "c"])
    assert split.get_col_names() == ["a", "b", "c"]
    assert _rows(split, 2) == [0, 2, 4, 3, 5, 7]
    assert _rows(data.repeat(2).batch(4)) == [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]
    assert len(data.repeat(2).batch(4)) == 3
    assert _rows(data.skip(2).take(3)) == [2, 3, 4]
    assert _rows(data.filter(lambda y: y == 0, "y")) == [0, 3]
    assert len(data.filter(lambda y: y == 0, "y")) == 2
    assert data.rename("x", "image").project(["y", "image"]).get_col_names() == ["y", "image"]
    other = ds.NumpySlicesDataset([[7, 8], [9, 10]], ["z"], shuffle=False)
    assert ds.zip((data, other)).get_col_names() == ["x", "y", "z"]
    assert _rows(data.zip(other), 2) == [[7, 8], [9, 10]]
    assert _rows(data.take(1) + data.skip(5)) == [0, 5]


def test_shuffle_draws_from_a_buffer():
    """A row comes at most as much earlier as the buffer is long."""
    ms.set_seed(2)
    found = _rows(_numbers(40, shuffle=False).shuffle(4))
    assert sorted(found) == list(range(40))
    assert found != sorted(found)
    assert all(number - place < 4 for place, number in enumerate(found))


def test_a_function_of_batches_gets_lists_and_the_number():
    """It may change the number of columns."""

    def padded(x, info):
        assert info.get_epoch_num() == 0
        return ([np.full(2, value + 100 * info.get_batch_num()) for value in x],)

    data = _numbers(3, shuffle=False).project("x").batch(2, per_batch_map=padded)
    assert _rows(data) == [[[0, 0], [1, 1]], [[102, 102]]]


class _Source:
    def __len__(self):
        return 4

    def __getitem__(self, place):
        return np.full(2, place, np.int32), place


def _yields():
    for number in range(3):
        yield np.float32(number), number


@pytest.mark.parametrize("source", [_yields, list(_yields()), tuple(_yields())])
def test_a_generator_gives_rows_in_each_epoch(source):
    """Functions are called again, lists are read again; plain numbers become arrays."""
    data = ds.GeneratorDataset(source, ["a", "b"], **({} if callable(source) else {"shuffle": False}))
    iterator = data.create_tuple_iterator(output_numpy=True)
    for _ in range(2):
        rows = list(iterator)
        assert [row[1].item() for row in rows] == [0, 1, 2]
        assert rows[0][1].dtype == np.int64
    assert data.get_dataset_size() == 3


def test_samplers_choose_rows():
    """By place, at random, by weight, from a program's own list; and for one of several ranks."""
    ms.set_seed(1)

    def read(**options):
        return _rows(ds.GeneratorDataset(_Source(), ["a", "b"], **options), 1)

    assert read(sampler=ds.SequentialSampler(1, 2)) == [1, 2]
    assert read(sampler=[3, 1]) == [3, 1]
    assert sorted(read(sampler=ds.SubsetRandomSampler([0, 3]))) == [0, 3]
    assert set(read(sampler=ds.WeightedRandomSampler([0, 1, 0, 1], 20))) == {1, 3}
    assert len(read(sampler=ds.RandomSampler(replacement=True, num_samples=9))) == 9
    assert len(read(num_samples=2)) == 2
    parts = [read(num_shards=3, shard_id=rank) for rank in range(3)]
    assert [len(part) for part in parts] == [2, 2, 2]
    assert {row for part in parts for row in part} == {0, 1, 2, 3}
    assert read(num_shards=2, shard_id=1, shuffle=False) == [1, 3]

    class Own(ds.Sampler):
        def __iter__(self):
            return iter([2, 2, 0])

    assert read(sampler=Own()) == [2, 2, 0]


def test_transforms_of_values_and_images():
    """What tutorials of image networks use."""
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert vision.HWC2CHW()(image).shape == (3, 2, 2)
    np.testing.assert_allclose(vision.Rescale(1 / 255, -0.5)(image), image / 255 - 0.5, rtol=1e-6)
    np.testing.assert_allclose(vision.Normalize([1, 2, 3], [1, 2, 4])(image)[0, 0], [-1, -0.5, -0.25])
    np.testing.assert_allclose(vision.ToTensor()(image), image.transpose(2, 0, 1) / 255, rtol=1e-6)
    assert transforms.Compose([vision.HWC2CHW(), transforms.TypeCast(ms.int32)])(image).dtype == np.int32
    assert transforms.OneHot(3)(np.array([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(transforms.OneHot(2, 0.2)(1), [0.1, 0.9])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: _numbers(3).map(abs, "z"), "'z'"),
        (lambda: _rows(_numbers(3).map(lambda x: (x, x), "x")), "output_columns"),
        (lambda: _numbers(3).batch(0), "batch_size"),
        (lambda: _numbers(3).shuffle(1), "buffer_size"),
        (lambda: _numbers(3).zip(_numbers(3)), "rename"),
        (lambda: _rows(ds.GeneratorDataset([(1,), (2,)], ["a", "b"])), "column_names"),
        (lambda: _rows(ds.GeneratorDataset([np.ones(2), np.ones(3)], ["a"]).batch(2)), "shapes"),
        (lambda: _rows(_numbers(3, sampler=[5])), "row 5"),
        (lambda: _numbers(3, num_shards=2), "shard_id"),
        (lambda: ds.NumpySlicesDataset({"a": [1], "b": [1, 2]}), "lengths"),
    ],
)
def test_what_does_not_fit_is_named(call, says):
    """A column, an option, rows of different shapes."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert says in str(caught.value)
