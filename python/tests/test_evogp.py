"""The adapter of EvoGP. Its tables are tested with a package in EvoGP's place, which has its numbers of types and functions;
the problem itself where EvoGP and a GPU are."""

import importlib.util
import sys
import types

import numpy as np
import pytest
import srjit

from conftest import DEVICE

torch = pytest.importorskip("torch")

HAS_EVOGP = importlib.util.find_spec("evogp") is not None and DEVICE.startswith("cuda")
FUNCTIONS = ["if", "+", "-", "*", "/", "loose_div", "pow", "loose_pow", "max", "min", "<", ">", "<=", ">=", "sin", "cos", "tan",
             "sinh", "cosh", "tanh", "log", "loose_log", "exp", "inv", "loose_inv", "neg", "abs", "sqrt", "loose_sqrt"]  # fmt: skip
# What they compute, by EvoGP's words.
MEANINGS = {
    "if": lambda a, b, c: np.where(a > 0, b, c), "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
    "loose_div": lambda a, b: a / np.copysign(np.maximum(np.abs(b), 1e-9), b), "pow": np.power,
    "loose_pow": lambda a, b: np.power(np.abs(a), b), "max": np.maximum, "min": np.minimum,
    "<": lambda a, b: np.where(a < b, 1.0, -1.0), ">": lambda a, b: np.where(a > b, 1.0, -1.0),
    "<=": lambda a, b: np.where(a <= b, 1.0, -1.0), ">=": lambda a, b: np.where(a >= b, 1.0, -1.0), "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "log": np.log,
    "loose_log": lambda a: np.log(np.abs(a)), "exp": np.exp, "inv": np.reciprocal, "loose_inv": lambda a: 1 / a,
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "loose_sqrt": lambda a: np.sqrt(np.abs(a)),
}  # fmt: skip


@pytest.fixture(scope="module")
def adapter():
    if HAS_EVOGP:
        yield srjit.evogp
        return
    modules = {name: types.ModuleType(name) for name in ("evogp", "evogp.problem", "evogp.tree", "evogp.tree.utils")}
    modules["evogp"].problem, modules["evogp"].tree = modules["evogp.problem"], modules["evogp.tree"]
    modules["evogp.problem"].SymbolicRegression = type("SymbolicRegression", (), {})
    modules["evogp.tree"].Forest = type("Forest", (), {})
    modules["evogp.tree.utils"].FUNCS_NAMES = FUNCTIONS
    modules["evogp.tree.utils"].NType = types.SimpleNamespace(VAR=0, CONST=1, UFUNC=2, BFUNC=3, TFUNC=4)
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        yield srjit.evogp
        sys.modules.pop("srjit.evogp", None)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_compute_what_evogps_do(adapter, engine, name):
    """A tree with this function at the root, whose operands are variables, in EvoGP's arrays."""
    X = np.random.default_rng(3).uniform(-2, 2, (200, 3))
    arity = MEANINGS[name].__code__.co_argcount if hasattr(MEANINGS[name], "__code__") else MEANINGS[name].nin
    kinds = torch.tensor([[arity + 1] + [0] * arity + [9]], dtype=torch.int16)
    values = torch.tensor([[FUNCTIONS.index(name), *range(arity), 1e30]], dtype=torch.float32)
    codes = adapter.codes_of(kinds, values, adapter._codes(3, FUNCTIONS))[0, : arity + 1]
    program = engine.compile((codes.numpy(), np.zeros(arity + 1), np.array([0, arity + 1])), prefix=True)
    assert not program.failures
    with np.errstate(all="ignore"):
        expected = MEANINGS[name](*(X[:, i] for i in range(arity)))
    np.testing.assert_allclose(engine.predict(program, engine.upload(X))[0], expected, rtol=1e-12)


def test_other_nodes_are_no_operators(adapter):
    table = adapter._codes(2, FUNCTIONS)
    kinds = torch.tensor([0, 0, 0, 1, 3, 3, 2, 130, -5, 4], dtype=torch.int16)
    values = torch.tensor([0, 1, 2, 7.25, 1, 14, 14, 14, 0, 99], dtype=torch.float32)
    none = 2**15 - 1
    add, sin = srjit.ops["add"].code, srjit.ops["sin"].code
    expected = [srjit.VARIABLE, srjit.VARIABLE - 1, none, 0, add, none, sin, none, srjit.VARIABLE, none]
    assert adapter.codes_of(kinds, values, table).tolist() == expected
    with pytest.raises(ValueError, match="no operator here: nothing, sinc"):
        adapter._codes(2, ["+", "nothing", "sinc"])


needs_evogp = pytest.mark.skipif(not HAS_EVOGP, reason="needs EvoGP and a GPU")


def problem_and_forest(adapter, functions, trees=5_000, rows=300, **options):
    from evogp.tree import Forest, GenerateDescriptor

    random = np.random.default_rng(7)
    X = torch.tensor(random.uniform(0.5, 2, (rows, 3)), dtype=torch.float32, device=DEVICE)
    y = (X[:, 0] * X[:, 1] - X[:, 2])[:, None]
    descriptor = GenerateDescriptor(max_tree_len=128, input_len=3, output_len=1, using_funcs=functions, max_layer_cnt=5,
                                    const_samples=[-1.0, 0.5, 2.0])
    forest = Forest.random_generate(pop_size=trees, descriptor=descriptor)
    return adapter.SymbolicRegression(datapoints=X, labels=y, **options), forest


@needs_evogp
@pytest.mark.parametrize("functions", [["+", "-", "*"], ["+", "loose_div", "sin", "loose_log", "<", "max"], FUNCTIONS])
@pytest.mark.parametrize("use_mse", [True, False])
def test_fitness_is_evogps(adapter, functions, use_mse):
    problem, forest = problem_and_forest(adapter, functions)
    found = problem.evaluate(forest, use_MSE=use_mse).cpu().numpy()
    evogp_s = super(type(problem), problem).evaluate(forest, use_MSE=use_mse).cpu().numpy()
    both = np.isfinite(found) & np.isfinite(evogp_s)
    assert both.sum() > 2_000
    # Approximate functions of both, and sums in another order.
    close = np.isclose(found[both], evogp_s[both], rtol=1e-3, atol=1e-5)
    assert close.mean() > 0.98, np.flatnonzero(~close)[:5]


@needs_evogp
def test_long_trees_are_evaluated(adapter):
    from evogp.tree import Forest

    problem, forest = problem_and_forest(adapter, ["+", "-", "*"], trees=2, math="precise")
    length = 301
    types_ = torch.zeros((2, 512), dtype=torch.int16, device=DEVICE)
    values = torch.zeros((2, 512), dtype=torch.float32, device=DEVICE)
    sizes = torch.ones((2, 512), dtype=torch.int16, device=DEVICE)
    types_[0, 0 : length - 1 : 2], values[0, 0 : length - 1 : 2], sizes[0, 0] = 3, 1, length  # x0 + (x0 + (...))
    found = problem.evaluate(Forest(3, 1, values, types_, sizes))
    x0 = problem.datapoints[:, 0].double()
    expected = [-((x0 * n - problem.labels[:, 0]) ** 2).mean().item() for n in ((length + 1) // 2, 1)]
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-4)


@needs_evogp
def test_what_does_not_fit_is_an_error(adapter):
    X = torch.ones((10, 2), device=DEVICE)
    with pytest.raises(ValueError, match="2 outputs"):
        adapter.SymbolicRegression(datapoints=X, labels=X)
    with pytest.raises(TypeError, match="expected a Forest"):
        adapter.SymbolicRegression(datapoints=X, labels=X[:, :1]).evaluate([1])
