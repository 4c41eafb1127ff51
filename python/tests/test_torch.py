"""Expressions as modules of PyTorch."""

import copy
import pickle

import numpy as np
import pytest
import srjit

torch = pytest.importorskip("torch")
import srjit.torch  # noqa: E402
from conftest import DEVICE  # noqa: E402

TEXTS = ["p0*exp(-p1*x0) + x1", "sin(x0*p0)*x1^2", "x0 - x1"]


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def X(request):
    generator = torch.Generator().manual_seed(1)
    return torch.rand((300, 2), generator=generator, dtype=request.param).to(torch.device(DEVICE)) + 0.5


def by_torch(X, p):
    x0, x1 = X[:, 0], X[:, 1]
    return torch.stack([p[0] * torch.exp(-p[1] * x0) + x1, torch.sin(x0 * p[2]) * x1**2, x0 - x1])


def test_predictions_and_gradients_are_torchs(X):
    module = srjit.torch.compile(TEXTS, [1.5, 0.5, 2.0])
    inputs = X.clone().requires_grad_()
    weights = torch.linspace(-1, 1, 900, dtype=X.dtype, device=X.device).reshape(3, 300)
    result = module(inputs)
    assert result.shape == (3, 300) and result.dtype == X.dtype and result.device == X.device
    (result * weights).sum().backward()
    own, p = X.clone().requires_grad_(), torch.tensor([1.5, 0.5, 2.0], dtype=X.dtype, device=X.device, requires_grad=True)
    expected = by_torch(own, p)
    (expected * weights).sum().backward()
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if X.dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-11}
    torch.testing.assert_close(result, expected, **tolerance)
    torch.testing.assert_close(inputs.grad, own.grad, **tolerance)
    torch.testing.assert_close(module.values.grad.to(p), p.grad, **tolerance)


def test_gradients_pass_torchs_own_check(X):
    module = srjit.torch.compile("p0*exp(-p1*x0)*x1", [1.5, 0.5])
    inputs = X[:5].double().clone().requires_grad_()
    assert torch.autograd.gradcheck(module, (inputs,))


def test_training(X):
    target = 2 * torch.exp(-0.7 * X[:, 0])
    module = srjit.torch.compile("p0*exp(-p1*x0)")
    optimizer = torch.optim.LBFGS(module.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = ((module(X) - target) ** 2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    np.testing.assert_allclose(module.values.detach().cpu(), [2, 0.7], rtol=1e-2)


def test_modules_are_modules(X):
    module = srjit.torch.compile(TEXTS, [1.5, 0.5, 2.0])
    expected = module(X)
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(again(X), expected)
    other = srjit.torch.compile(TEXTS)
    other.load_state_dict(module.state_dict())
    torch.testing.assert_close(other(X), expected)
    assert "p0 * exp" in repr(module)
    assert srjit.torch.compile("x0 + 1")(X).shape == (300,)


def test_without_parameters(X):
    inputs = X.clone().requires_grad_()
    srjit.torch.compile("x0*x1")(inputs).sum().backward()
    torch.testing.assert_close(inputs.grad, X.flip(1))


def test_tensors_that_need_gradients_are_data(X):
    engine = srjit.Engine("cpu", precision="f64")
    data = engine.upload(X.cpu().clone().requires_grad_(), X[:, 0].cpu().clone().requires_grad_())
    assert engine.loss(engine.compile("x0"), data).values[0] == 0


def test_bad_input(X):
    with pytest.raises(ValueError, match="1 parameters were given, but the expressions have 3"):
        srjit.torch.compile(TEXTS, [1.0])
    with pytest.raises(srjit.InvalidError):
        srjit.torch.compile("x0 +")
    with pytest.raises(ValueError, match="rows x columns"):
        srjit.torch.compile("x0")(X[:, 0])
    with pytest.raises(RuntimeError, match="does not require grad|once_differentiable"):
        module = srjit.torch.compile("p0*x0^3")
        inputs = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(module(inputs).sum(), inputs, create_graph=True)
        slope.sum().backward()
