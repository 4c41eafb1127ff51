"""pyoperon's trees both ways."""

import numpy as np
import pytest
import srjit

op = pytest.importorskip("pyoperon")
import srjit.operon  # noqa: E402


@pytest.fixture(scope="module")
def dataset(table):
    numbers = np.asfortranarray(np.column_stack(table).astype(np.float32))
    yield op.Dataset(numbers)  # which reads the array's memory, and does not keep it
    del numbers


@pytest.fixture(scope="module")
def trees(dataset):
    kinds = op.NodeType
    problem = op.Problem(dataset)
    problem.Target = dataset.Variables[-1]
    problem.InputHashes = [variable.Hash for variable in dataset.Variables[:-1]]
    chosen = kinds.Constant | kinds.Variable
    for kind in (kinds.Add, kinds.Mul, kinds.Sub, kinds.Div, kinds.Sin, kinds.Exp, kinds.Logabs, kinds.Powabs,
                 kinds.Sqrtabs, kinds.Square, kinds.Fmin, kinds.Aq):
        chosen |= kind
    problem.ConfigurePrimitiveSet(chosen)
    inputs, primitives = problem.InputHashes, problem.PrimitiveSet  # pyoperon holds pointers to these
    creator = op.BalancedTreeCreator(primitives, inputs, bias=0.0)
    initialize = op.UniformLengthTreeInitializer(creator)
    initialize.ParameterizeDistribution(1, 25)
    initialize.MaxDepth = 8
    coefficients = op.NormalCoefficientInitializer()
    coefficients.ParameterizeDistribution(0, 1)
    random = op.RandomGenerator(1)
    made = []
    for _ in range(200):
        tree = initialize(random)
        coefficients(random, tree)
        made.append(tree)
    return made


@pytest.fixture(scope="module")
def engine_f32():
    from conftest import DEVICE

    return srjit.Engine(DEVICE, precision="f32")


def own_values(trees, dataset):
    return np.array([np.array(op.Evaluate(tree, dataset, op.Range(0, 1000)), dtype=np.float64) for tree in trees])


def assert_alike(ours, theirs):
    """f32 with other functions: alike in nearly all rows."""
    both = np.isfinite(ours) & np.isfinite(theirs) & (np.abs(theirs) < 1e10) & (np.abs(theirs) > 1e-10)
    assert both.mean() > 0.5
    assert (np.abs(ours - theirs)[both] <= 1e-3 * np.abs(theirs)[both]).mean() > 0.99


def test_predictions_are_pyoperons(trees, dataset, table, engine_f32):
    population = srjit.operon.population_of(trees, dataset.Variables[:-1])
    values = engine_f32.predict(engine_f32.compile(population), engine_f32.upload(table[0]))
    assert_alike(values.astype(np.float64), own_values(trees, dataset))


def test_coefficients_as_parameters(trees, dataset, table, engine_f32):
    population = srjit.operon.population_of(trees, dataset.Variables[:-1], parameters=True)
    program = engine_f32.compile(population)
    coefficients = [tree.GetCoefficients() for tree in trees]
    assert np.diff(program.parameter_offsets).tolist() == [len(some) for some in coefficients]
    data = engine_f32.upload(*table)
    fixed = engine_f32.compile(srjit.operon.population_of(trees, dataset.Variables[:-1]))
    np.testing.assert_allclose(engine_f32.loss(program, data, coefficients).values,
                               engine_f32.loss(fixed, data).values, rtol=1e-5)
    fits = engine_f32.fit(program, data, coefficients)
    back = srjit.operon.trees_of(population, dataset.Variables[:-1], program.split(fits.parameters))
    assert_alike(engine_f32.predict(program, data, fits.parameters).astype(np.float64), own_values(back, dataset))


def test_trees_come_back(trees, dataset, table, engine_f32):
    fewer = [tree for tree in trees if not {node.Name for node in tree.Nodes} & {"logabs", "sqrtabs", "powabs", "abs"}]
    population = srjit.operon.population_of(fewer, dataset.Variables[:-1])
    assert_alike(own_values(srjit.operon.trees_of(population, dataset.Variables[:-1]), dataset),
                 own_values(fewer, dataset))
    texts = srjit.parse(["x0 - x1/x2", "-x0", "inv(x1)", "sqrt(abs(x0 - 3))"])
    made = own_values(srjit.operon.trees_of(texts, dataset.Variables[:-1]), dataset)
    ours = engine_f32.predict(engine_f32.compile(texts), engine_f32.upload(table[0]))
    np.testing.assert_allclose(made, ours, rtol=1e-5)


def test_what_does_not_fit_is_an_error(trees, dataset):
    with pytest.raises(ValueError, match="none of `variables`"):
        srjit.operon.population_of(trees, dataset.Variables[:1])
    with pytest.raises(ValueError, match="operator 'erf'"):
        srjit.operon.trees_of(srjit.parse("erf(x0)"), dataset.Variables)
    with pytest.raises(ValueError, match="parameter p0, which has no value"):
        srjit.operon.trees_of(srjit.parse("p0*x0"), dataset.Variables)
