"""Losses of expressions that are in a GPU's memory. Those marked so: on a machine with a GPU, SRJIT_TEST_DEVICE=cuda:0."""

import pathlib
import runpy
import sys

import numpy as np
import pytest
import srjit

from conftest import DEVICE

needs_gpu = pytest.mark.skipif(not DEVICE.startswith("cuda"), reason="needs a GPU")

TEXTS = ["x0", "x0*2.5 + sin(x1)", "x1/(x0 - 1.5)", "log(x0*x0 + 0.5)*x1", "x0 - x1*x0 + 0.25", "x7", "x0 * 3"]


@pytest.fixture(scope="module")
def gpu():
    return srjit.Engine(DEVICE, precision="f32")


@pytest.fixture(scope="module")
def near_data(gpu):
    random = np.random.default_rng(5)
    return gpu.upload(random.normal(size=(1000, 2)).astype(np.float32), random.normal(size=1000).astype(np.float32))


def arrays_of(texts):
    population = srjit.parse(texts)
    return population.codes, population.constants, population.offsets


def expected_of(gpu, data, texts, **options):
    return gpu.loss(arrays_of(texts), data, simplify=False, **options)


def rows_of(codes, constants, offsets, width):
    """The tokens of each expression in a row, and what no one may read behind them."""
    lengths = np.diff(offsets).astype(np.int32)
    matrix = np.full((len(lengths), width), 31_000, np.int32)
    numbers = np.full(matrix.shape, np.nan, np.float32)
    for e, length in enumerate(lengths):
        tokens = slice(offsets[e], offsets[e] + length)
        matrix[e, :length], numbers[e, :length] = codes[tokens], constants[tokens]
    return matrix, numbers, lengths


def module_of(library):
    """How an array of NumPy gets to the GPU, and back."""
    module = pytest.importorskip(library)
    if library == "torch":
        return module, lambda array: module.tensor(array, device=DEVICE), lambda array: array.cpu().numpy()
    return module, module.asarray, lambda array: array.get()


@needs_gpu
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_losses_are_those_of_arrays_of_the_host(gpu, near_data, library):
    _, put, get = module_of(library)
    codes, constants, offsets = arrays_of(TEXTS)
    for loss, nan in (("mse", "propagate"), ("mae", "skip"), ("rmse", "reject")):
        expected = expected_of(gpu, near_data, TEXTS, loss=loss, nan=nan)
        found = gpu.loss((put(codes), put(constants), put(offsets)), near_data, loss=loss, nan=nan)
        np.testing.assert_array_equal(get(found.values), expected.values.astype(np.float32))
        is_valid = get(found.faults) == 0
        np.testing.assert_array_equal(get(found.valid_rows)[is_valid], expected.valid_rows[is_valid])
        assert [(f.expression, "variable" in str(f.error)) for f in found.failures] == [(5, True)]
        matrix, numbers, lengths = rows_of(codes, constants, offsets, 20)
        again = gpu.loss((put(matrix), put(numbers), put(lengths)), near_data, loss=loss, nan=nan)
        np.testing.assert_array_equal(get(again.values), get(found.values))


@needs_gpu
def test_prefix_ends_by_itself(gpu, near_data):
    _, put, get = module_of("torch")
    add, sin = srjit.ops["add"].code, srjit.ops["sin"].code
    codes = np.array([[add, srjit.VARIABLE, sin, srjit.VARIABLE - 1, 999], [srjit.CONSTANT, 999, 999, 999, 999]], np.int32)
    found = gpu.loss((put(codes), put(np.full(codes.shape, 1.5)), None), near_data, prefix=True)
    expected = expected_of(gpu, near_data, ["x0 + sin(x1)", "1.5"]).values
    np.testing.assert_array_equal(get(found.values), expected.astype(np.float32))


@needs_gpu
def test_parameters_have_the_numbers_of_their_tokens(gpu, near_data):
    _, put, get = module_of("torch")
    codes, constants, offsets = arrays_of(["p0*x0 + exp(p1)"])
    constants = np.where(codes <= srjit.PARAMETER, 0.5, constants)
    found = gpu.loss((put(codes), put(constants), put(offsets)), near_data)
    expected = gpu.loss(arrays_of(["p0*x0 + exp(p1)"]), near_data, [0.5, 0.5], simplify=False).values
    np.testing.assert_array_equal(get(found.values), expected.astype(np.float32))


@needs_gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_losses_are_written_where_asked(gpu, near_data, dtype):
    torch, put, get = module_of("torch")
    out = torch.full((len(TEXTS),), -1.0, dtype=getattr(torch, dtype), device=DEVICE)
    found = gpu.loss(tuple(map(put, arrays_of(TEXTS))), near_data, out=out)
    assert found.values is out
    np.testing.assert_array_equal(get(out), expected_of(gpu, near_data, TEXTS).values.astype(dtype))


@needs_gpu
def test_arrays_of_jax(gpu, near_data):
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    arrays = tuple(jax.device_put(array, jax.devices("gpu")[0]) for array in rows_of(*arrays_of(TEXTS), 20))
    out = torch.zeros(len(TEXTS), device=DEVICE)
    gpu.loss(arrays, near_data, out=out)
    np.testing.assert_array_equal(out.cpu().numpy(), expected_of(gpu, near_data, TEXTS).values.astype(np.float32))
    with pytest.raises(ValueError, match="give out"):
        gpu.loss(arrays, near_data)


@needs_gpu
def test_a_slow_stream_is_waited_for(gpu, near_data):
    torch, put, get = module_of("torch")
    codes, constants, offsets = map(put, arrays_of(TEXTS))
    expected = get(gpu.loss((codes, constants, offsets), near_data).values)
    with torch.cuda.stream(torch.cuda.Stream()):
        late = torch.zeros_like(codes)
        torch.cuda._sleep(400_000_000)
        late += codes
        found = gpu.loss((late, constants, offsets), near_data)
        np.testing.assert_array_equal(get(found.values), expected)


@needs_gpu
def test_a_graph_evaluates_what_the_arrays_then_have(gpu, near_data):
    torch, put, get = module_of("torch")
    codes, constants, offsets = map(put, arrays_of(TEXTS))
    losses = gpu.device_loss(near_data, 10, ["add", "sub", "mul", "div", "sin", "log"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = losses(codes, constants, offsets)
    for factor in (1.0, 2.0):
        constants *= factor
        graph.replay()
        expected = gpu.loss((codes, constants, offsets), near_data)
        np.testing.assert_array_equal(get(found.values), get(expected.values))


@needs_gpu
def test_columns_that_are_used_in_place_stay(gpu):
    torch, put, _ = module_of("torch")
    X = torch.rand((100_000, 1), device=DEVICE)
    losses = gpu.device_loss(gpu.upload(X.clone(), X[:, 0].contiguous()), 1, ["add"])
    codes, constants, offsets = map(put, arrays_of(["x0"]))
    for _ in range(20):
        torch.rand((100_000, 1), device=DEVICE)  # takes memory that is free
    assert losses(codes, constants, offsets).values.item() == 0


@needs_gpu
def test_larger_generations_get_more_room(gpu, near_data):
    _, put, get = module_of("torch")
    for texts in (TEXTS[:1], TEXTS * 3, TEXTS, TEXTS * 50):
        found = gpu.loss(tuple(map(put, arrays_of(texts))), near_data)
        np.testing.assert_array_equal(get(found.values), expected_of(gpu, near_data, texts).values.astype(np.float32))


@needs_gpu
def test_what_does_not_fit_is_an_error(gpu, near_data):
    torch, put, _ = module_of("torch")
    codes, constants, offsets = map(put, arrays_of(TEXTS))
    losses = gpu.device_loss(near_data, 3, ["add"])
    with pytest.raises(srjit.Error, match="7 expressions, expected at most 3"):
        losses(codes, constants, offsets)
    for bad, kind, message in ((lambda: losses(codes.long(), constants, offsets), TypeError, "codes are of type int64"),
                               (lambda: losses(codes, constants[1:], offsets), ValueError, "constants have the shape"),
                               (lambda: losses(codes, constants), ValueError, "offsets are needed"),
                               (lambda: losses(codes, constants, offsets.cpu()), TypeError, "not in the memory of a GPU"),
                               (lambda: losses(codes.repeat(2)[::2], constants, offsets), ValueError, "C's order"),
                               (lambda: losses(codes, constants, offsets[:3], out=torch.zeros(3, device=DEVICE)), ValueError, "out has"),
                               (lambda: gpu.device_loss(near_data, 3, ["nothing"]), ValueError, "unknown operator"),
                               (lambda: gpu.device_loss(near_data, 3, loss="scaled-mse"), srjit.Error, "plain errors"),
                               (lambda: gpu.loss((codes, constants, offsets), near_data, [1.0]), ValueError, "among their constants")):
        with pytest.raises(kind, match=message):
            bad()


@needs_gpu
def test_the_example_of_breeding_finds_its_law(capsys):
    pytest.importorskip("torch")
    try:
        runpy.run_path(str(pathlib.Path(__file__).resolve().parents[2] / "docs/examples/breed.py"))
    finally:
        sys.modules["torch"].set_default_device(None)
    assert float(capsys.readouterr().out.split()[0]) < 0.05


def test_a_processor_has_none(engine, data):
    if engine.device != "cpu":
        pytest.skip("of a processor")
    with pytest.raises(srjit.Error, match="not on one GPU"):
        engine.device_loss(data, 10)
    with pytest.raises(ValueError, match="most_tokens is 257"):
        engine.device_loss(data, 10, most_tokens=257)
    with pytest.raises(ValueError, match="not in a GPU's memory"):
        engine.loss(arrays_of(["x0"]), data, out=np.zeros(1))
