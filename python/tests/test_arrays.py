"""Data as callers have it."""

import contextlib
import enum
import sys
import types

import numpy as np
import pytest
import srjit

pd = pytest.importorskip("pandas")

TEXT = "x0 + 2*x1"


def loss(engine, *data, **options):
    return engine.loss(engine.compile(TEXT), engine.upload(*data, **options)).values[0]


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(2)
    return random.normal(size=(257, 2)), random.normal(size=257)


def test_any_layout_gives_the_same(engine, rows):
    X, y = rows
    wide = np.zeros((257, 4))
    wide[:, ::2] = X
    expected = loss(engine, X, y)
    for same in (np.asfortranarray(X), wide[:, ::2], X[::-1][::-1], X.tolist(), X.astype(">f8")):
        assert loss(engine, same, y) == expected
    assert loss(engine, X, y.reshape(-1, 1)) == expected
    assert loss(engine, X, y.tolist()) == expected


def test_pinned_memory_is_the_hosts(engine, rows):
    class Pinned:
        """As a tensor of torch in pinned memory, which says kDLCUDAHost."""

        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return 3, 0

        def __array__(self, dtype=None, copy=None):
            return np.array(self.array, dtype=dtype)

    X, y = rows
    assert loss(engine, Pinned(X), Pinned(y)) == loss(engine, X, y)


def test_types_are_converted(engine):
    integers = np.array([[1, 2], [3, 4]])
    expected = loss(engine, integers.astype(float), [1.0, 2.0])
    for kind in (np.int8, np.uint64, np.float32, np.float16, object):
        assert loss(engine, integers.astype(kind), [1, 2]) == expected
    assert loss(engine, np.array([[True, False]]), [True]) == 0
    for bad in (np.array([["a", "b"]]), np.array([[1j, 2]]), np.array([[None, {}]], dtype=object)):
        with pytest.raises(TypeError):
            engine.upload(bad)


def test_one_column_may_be_a_vector(engine):
    assert engine.upload([1.0, 2.0, 3.0]).shape == (3, 1)


def test_data_frames_bring_names(engine, rows):
    X, y = rows
    frame = pd.DataFrame(X, columns=["mass", "net weight"])
    data = engine.upload(frame, pd.Series(y))
    assert data.names == ["mass", "net weight"]
    program = engine.compile("mass + 2*`net weight`", names=data)
    assert engine.loss(program, data).values[0] == loss(engine, X, y)
    mixed = pd.DataFrame({"a": np.arange(3, dtype=np.int32), "b": np.ones(3, np.float32)})
    assert engine.upload(mixed).names == ["a", "b"]
    assert engine.upload(frame, names=["u", "v"]).names == ["u", "v"]
    with pytest.raises(TypeError, match="row 2 of column 'net weight' of X is 'heavy', which is no number: encode"):
        engine.upload(pd.DataFrame({"mass": [1.0, 2.0], "net weight": [3.0, "heavy"]}))
    with pytest.raises(TypeError, match="row 1 of column 'a' of X is 'x'"):
        engine.upload(pd.DataFrame({"a": ["x", "y"]}))


def test_texts_are_refused_with_their_place(engine):
    with pytest.raises(TypeError, match="row 2, column 1 of X is 'b', which is no number"):
        engine.upload(np.array([[1.5, 2], ["b", 3]], dtype=object))
    with pytest.raises(TypeError, match="row 1, column 1 of X is 'a'"):
        engine.upload(["a", "b"])
    with pytest.raises(TypeError, match="row 3 of y is 'seven'"):
        engine.upload(np.ones(3), np.array([1, 2, "seven"], dtype=object))


def test_names_may_be_any_kind_of_text(engine):
    class Column(str, enum.Enum):
        MASS = "mass"

    frame = pd.DataFrame(np.ones((2, 2)), columns=pd.Index([Column.MASS, np.str_("net weight")], dtype=object))
    data = engine.upload(frame, [1.0, 2.0])
    assert data.names == ["mass", "net weight"] and {type(name) for name in data.names} == {str}
    assert engine.upload(np.ones((2, 1)), names=np.array(["mass"])).names == ["mass"]
    assert engine.upload(np.ones((2, 1)), names=[Column.MASS]).names == ["mass"]
    program = engine.compile("mass + `net weight`", names=frame.columns)
    assert program.names == ["mass", "net weight"]
    assert engine.loss(program, data, loss=np.str_("mse"), nan=np.str_("skip")).values[0] == 0.5


def test_arguments_of_another_type_are_named(engine):
    data = engine.upload(np.ones((2, 1)), np.ones(2))
    program = engine.compile("x0")
    for call, message in ((lambda: engine.loss(program, data, loss=3), "loss is of type int, expected str"),
                          (lambda: engine.loss(program, data, nan=None), "nan is of type NoneType, expected str"),
                          (lambda: engine.fit(program, data, loss=b"mse"), "loss is of type bytes"),
                          (lambda: engine.compile("x0", tier=1), "tier is of type int"),
                          (lambda: engine.compile("x0", language=2), "language is of type int"),
                          (lambda: engine.compile("x0", expected_rows=1.5), "expected_rows is of type float"),
                          (lambda: data.sample(1, -1), "seed is -1, expected 0 to 18446744073709551615"),
                          (lambda: data.rows("a", 1), "first is of type str"),
                          (lambda: program.draw_starts(2, seed=2**64), "seed is 18446744073709551616"),
                          (lambda: srjit.Engine(3), "device is of type int"),
                          (lambda: srjit.Engine("cpu", device_bytes=-1), "device_bytes is -1"),
                          (lambda: srjit.parse(["x0", 3]), "an expression is of type int, expected str")):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_missing_values_of_frames_are_nan(engine):
    frame = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Float64")})
    values = engine.predict(engine.compile("x0"), engine.upload(frame))
    np.testing.assert_array_equal(values, [[1, np.nan, 3]])


def test_bad_data_is_refused_with_its_place(engine):
    X = np.ones((3, 1))
    for arguments, message in (((X, [1.0, 2.0]), "2"), ((X, [1.0, np.nan, 2.0]), "row 2"),
                               ((X, np.ones(3), [1.0, -1.0, 1.0]), "row 2"), ((np.ones((2, 2, 2)),), "3 dimensions"),
                               ((np.ones((0, 2)),), "rows"), ((X, np.ones((3, 2))), "shape")):
        with pytest.raises(ValueError, match=message):
            engine.upload(*arguments)
    with pytest.raises(ValueError, match="name"):
        engine.upload(X, names=["a", "b"])


def test_a_cpu_engine_refuses_memory_of_a_gpu():
    class OnDevice:
        __cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f4", "data": (256, False), "version": 3}

        def __len__(self):
            return 2

    engine = srjit.Engine("cpu")
    with pytest.raises(srjit.Error, match="GPU") as problem:
        engine.upload(OnDevice())
    assert problem.value.code == "unsupported"
    with pytest.raises(ValueError, match="y is not"):
        engine.upload(OnDevice(), [1.0, 2.0])
    with pytest.raises(TypeError, match=r"arrays of the host; loss\(\)"):
        engine.submit_loss((OnDevice(), OnDevice(), OnDevice()), engine.upload([[1.0]], [1.0]))


def test_torch_exports_a_tensor_while_its_device_is_the_current_one(monkeypatch):
    current = [0]

    class Tensor:
        def __dlpack_device__(self):
            return (2, 1)

        def __dlpack__(self, stream):
            assert current == [1] and stream == 1
            raise BufferError("exported")

    @contextlib.contextmanager
    def device(number):
        current[0], before = number, current[0]
        yield
        current[0] = before

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(device=device)))
    with pytest.raises(BufferError, match="exported"):
        srjit._arrays.device_array(Tensor(), "X")


def test_nothing_is_dropped_silently(engine):
    data = engine.upload([1.0, 2.0], [1.0, 2.0])
    program = engine.compile("p0*x0")
    for bad in (np.array([1 + 2j]), ["3"], np.ma.array([1.0], mask=[True])):
        with pytest.raises(TypeError):
            engine.loss(program, data, bad)
        with pytest.raises(TypeError):
            engine.upload(bad)
    with pytest.raises(TypeError):
        srjit.Population.from_arrays([srjit.CONSTANT], np.array([1j]), [0, 1])


def test_uploading_copies(engine):
    X = np.ones((3, 1))
    data = engine.upload(X)
    X[:] = 7
    assert engine.predict(engine.compile("x0"), data)[0, 0] == 1
