"""Arrays of a GPU, in place and with the right waits. On a machine with a GPU: SRJIT_TEST_DEVICE=cuda:0."""

import numpy as np
import pytest
import srjit

from conftest import DEVICE

pytestmark = pytest.mark.skipif(not DEVICE.startswith("cuda"), reason="needs a GPU")


def rows():
    random = np.random.default_rng(4)
    return random.normal(size=(5000, 3)).astype(np.float32), random.normal(size=5000).astype(np.float32)


@pytest.fixture(scope="module")
def gpu():
    return srjit.Engine(DEVICE, precision="f32")


def to_torch(array):
    torch = pytest.importorskip("torch")
    return torch.tensor(array, device=DEVICE)


def to_cupy(array):
    return pytest.importorskip("cupy").asarray(array)


def to_jax(array):
    jax = pytest.importorskip("jax")
    return jax.device_put(array, jax.devices("gpu")[0])


class CudaArrayInterface:
    """An array that has only this interface."""

    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


@pytest.mark.parametrize("convert", [to_torch, to_cupy, to_jax, lambda a: CudaArrayInterface(to_cupy(a)),
                                     lambda a: to_torch(a).requires_grad_()],
                         ids=["torch", "cupy", "jax", "interface", "gradient"])
def test_losses_are_those_of_host_data(gpu, convert):
    X, y = rows()
    program = gpu.compile(["x0 + sin(x1)*x2", "x2^2"])
    expected = gpu.loss(program, gpu.upload(X, y)).values
    data = gpu.upload(convert(X), convert(y))
    np.testing.assert_array_equal(gpu.loss(program, data).values, expected)
    weights = np.abs(y) + 1
    np.testing.assert_array_equal(gpu.loss(program, gpu.upload(convert(X), convert(y), convert(weights))).values,
                                  gpu.loss(program, gpu.upload(X, y, weights)).values)
    np.testing.assert_array_equal(gpu.loss(program, data.with_weights(convert(weights))).values,
                                  gpu.loss(program, gpu.upload(X, y, weights)).values)


def test_columns_are_used_in_place(gpu):
    torch = pytest.importorskip("torch")
    X = torch.zeros((4, 2), device=DEVICE)
    data = gpu.upload(X.T.contiguous().T)
    X = data._data.owner  # the owners are kept
    assert X
    table = torch.zeros((2, 4), device=DEVICE)
    data = gpu.upload(table.T)
    table += 3
    torch.cuda.synchronize()
    assert gpu.predict(gpu.compile("x0 + x1"), data).tolist() == [[6.0] * 4]


def test_a_slow_producer_is_waited_for(gpu):
    """Of each kind of stream: what it has still to do when its array is handed over comes first."""
    torch = pytest.importorskip("torch")
    program = gpu.compile("x0")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            X = torch.zeros((1000000, 1), device=DEVICE)
            torch.cuda._sleep(400_000_000)  # cycles: about 0.2 s
            X += 1
            data = gpu.upload(X)
        assert gpu.predict(program, data).min() == 1.0
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        X = cupy.zeros((1000000, 1), dtype=cupy.float32)
        for _ in range(2000):
            X += 1
        data = gpu.upload(CudaArrayInterface(X))
    assert gpu.predict(program, data).min() == 2000.0
    stream.synchronize()


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_results_on_the_device(gpu, library):
    module = pytest.importorskip(library)
    X, _ = rows()
    data = gpu.upload(X)
    program = gpu.compile(["x0*p0 + sin(x1)", "x0 +", "x2"])

    def empty(*shape):
        return module.full(shape, -1.0, dtype=module.float32, **({"device": DEVICE} if library == "torch" else {}))

    def host(array):
        return array.cpu().numpy() if library == "torch" else array.get()

    out = empty(3, 5000)
    assert gpu.predict(program, data, [2.0], out=out) is out
    np.testing.assert_array_equal(host(out), gpu.predict(program, data, [2.0]))
    for by, shape in (("parameters", (1, 5000)), ("variables", (3, 3, 5000))):
        out = gpu.jacobian(program, data, [2.0], by=by, out=empty(*shape))
        np.testing.assert_array_equal(host(out), gpu.jacobian(program, data, [2.0], by=by))
    for bad, kind in ((empty(3, 4999), ValueError), (empty(3, 10000)[:, ::2], ValueError),
                      (empty(5000, 3).T, ValueError)):
        with pytest.raises(kind):
            gpu.predict(program, data, [2.0], out=bad)
    with pytest.raises(TypeError, match="precision"):
        gpu.predict(program, data, [2.0], out=module.zeros((3, 5000), dtype=module.float64,
                                                           **({"device": DEVICE} if library == "torch" else {})))


def test_output_waits_for_its_stream(gpu):
    torch = pytest.importorskip("torch")
    data = gpu.upload(np.ones((1000000, 1), np.float32))
    program = gpu.compile("x0")
    with torch.cuda.stream(torch.cuda.Stream()):
        out = torch.zeros((1, 1000000), device=DEVICE)
        torch.cuda._sleep(400_000_000)
        out -= 5
        gpu.predict(program, data, out=out)
    assert out.min().item() == 1.0


def test_what_does_not_fit_is_an_error(gpu):
    torch = pytest.importorskip("torch")
    X, y = rows()
    with pytest.raises(srjit.Error):
        gpu.upload(to_torch(X.astype(np.float64)))
    with pytest.raises(TypeError, match="expected float32"):
        gpu.upload(to_torch(X.astype(np.int32)))
    with pytest.raises(ValueError, match="y is not"):
        gpu.upload(to_torch(X), y)
    with pytest.raises(ValueError, match="computes on cpu"):
        srjit.Engine("cpu").upload(to_torch(X))
    if torch.cuda.device_count() > 1:
        with pytest.raises(ValueError, match="cuda:1"):
            gpu.upload(torch.tensor(X, device="cuda:1"))


def test_tensors_of_another_device_than_torchs_current_one():
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    X, y = rows()
    engine = srjit.Engine("cuda:1", "f32")
    data = engine.upload(torch.tensor(X, device="cuda:1"), torch.tensor(y, device="cuda:1"))
    assert torch.cuda.current_device() == 0
    host = srjit.Engine("cpu", "f32")
    expected = host.loss(host.compile("x0"), host.upload(X, y)).values
    np.testing.assert_array_equal(engine.loss(engine.compile("x0"), data).values, expected)
