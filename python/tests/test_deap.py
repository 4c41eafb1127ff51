"""DEAP's symbolic regression example with and without the adapter."""

import gc
import math
import operator
import pickle
import random
import weakref
from functools import partial

import numpy as np
import pytest
import srjit

pytest.importorskip("deap")
from deap import algorithms, base, creator, gp, tools  # noqa: E402

import srjit.deap  # noqa: E402


def protected_div(left, right):
    try:
        return left / right
    except ZeroDivisionError:
        return 1


PRIMITIVES = {"protected_div": "zdiv"}
X = np.arange(-10, 10).reshape(-1, 1) / 10.0
Y = X[:, 0] ** 4 + X[:, 0] ** 3 + X[:, 0] ** 2 + X[:, 0]

creator.create("FitnessMin", base.Fitness, weights=(-1.0,))
creator.create("Individual", gp.PrimitiveTree, fitness=creator.FitnessMin)


def primitive_set():
    pset = gp.PrimitiveSet("MAIN", 1)
    pset.addPrimitive(operator.add, 2)
    pset.addPrimitive(operator.sub, 2)
    pset.addPrimitive(operator.mul, 2)
    pset.addPrimitive(protected_div, 2)
    pset.addPrimitive(operator.neg, 1)
    pset.addPrimitive(math.cos, 1)
    pset.addPrimitive(math.sin, 1)
    pset.addEphemeralConstant("rand101", partial(random.randint, -1, 1))
    pset.addTerminal(0.5, "half")
    return pset


@pytest.fixture(scope="module")
def pset():
    return primitive_set()


@pytest.fixture(scope="module")
def evaluator(pset, engine):
    return srjit.deap.Evaluator(pset, X, Y, primitives=PRIMITIVES, engine=engine)


def toolbox_of(pset):
    toolbox = base.Toolbox()
    toolbox.register("expr", gp.genHalfAndHalf, pset=pset, min_=1, max_=2)
    toolbox.register("individual", tools.initIterate, creator.Individual, toolbox.expr)
    toolbox.register("population", tools.initRepeat, list, toolbox.individual)
    toolbox.register("compile", gp.compile, pset=pset)
    toolbox.register("select", tools.selTournament, tournsize=3)
    toolbox.register("mate", gp.cxOnePoint)
    toolbox.register("expr_mut", gp.genFull, min_=0, max_=2)
    toolbox.register("mutate", gp.mutUniform, expr=toolbox.expr_mut, pset=pset)
    for name in ("mate", "mutate"):
        toolbox.decorate(name, gp.staticLimit(key=operator.attrgetter("height"), max_value=17))

    def evaluate(individual):
        function = toolbox.compile(expr=individual)
        return (math.fsum((function(x) - y) ** 2 for x, y in zip(X[:, 0].tolist(), Y.tolist())) / len(Y),)

    toolbox.register("evaluate", evaluate)
    return toolbox


def final_population(toolbox):
    random.seed(318)
    population = toolbox.population(n=300)
    algorithms.eaSimple(population, toolbox, 0.5, 0.1, 10, verbose=False)
    return population


def test_the_same_population_evolves(pset, evaluator):
    own = toolbox_of(pset)
    ours = toolbox_of(pset)
    ours.register("evaluate", evaluator.evaluate)
    ours.register("map", evaluator.map)
    before = evaluator.evaluations
    theirs, population = final_population(own), final_population(ours)
    assert [str(individual) for individual in population] == [str(individual) for individual in theirs]
    np.testing.assert_allclose([i.fitness.values[0] for i in population], [i.fitness.values[0] for i in theirs],
                               rtol=1e-12)
    assert evaluator.evaluations - before > 300


def test_individuals_as_expressions_and_back(pset, evaluator):
    random.seed(1)
    toolbox = toolbox_of(pset)
    individuals = toolbox.population(n=50)
    population = evaluator.population(individuals)
    back = [creator.Individual(srjit.deap.tree_of(population, e, pset, PRIMITIVES)) for e in range(50)]
    np.testing.assert_array_equal(evaluator.losses(back), evaluator.losses(individuals))
    assert population.names == ["ARG0"] and "ARG0" in population[0] + population[1] + population[2]
    with pytest.raises(ValueError, match="'exp' is no primitive"):
        srjit.deap.tree_of(srjit.parse("exp(x0)"), 0, pset, PRIMITIVES)
    with pytest.raises(ValueError, match="parameters"):
        srjit.deap.tree_of(srjit.parse("p0*x0"), 0, pset, PRIMITIVES)


def test_copies_of_individuals_are_evaluated_alike(pset, evaluator):
    random.seed(2)
    individuals = toolbox_of(pset).population(n=30)
    copies = pickle.loads(pickle.dumps([list(individual) for individual in individuals]))
    np.testing.assert_array_equal(evaluator.losses(copies), evaluator.losses(individuals))


def test_terminals_are_numbers(pset, evaluator):
    tree = gp.PrimitiveTree.from_string("add(half, mul(ARG0, 3))", pset)
    assert evaluator.population([tree])[0] == "0.5 + ARG0 * 3"
    assert evaluator.evaluate(tree) == (pytest.approx(np.mean((0.5 + 3 * X[:, 0] - Y) ** 2), rel=1e-14),)


def test_map_of_other_functions(evaluator):
    assert evaluator.map(len, ["a", "bc"]) == [1, 2]
    assert evaluator.map(operator.add, [1, 2], [3, 4]) == [4, 6]


def test_a_loss_that_is_not_finite_is_the_worst(pset, evaluator):
    tree = gp.PrimitiveTree.from_string("mul(ARG0, 1e308)", pset)
    square = gp.PrimitiveTree.from_string("mul(mul(ARG0, 1e308), 1e308)", pset)
    assert evaluator.losses([square])[0] == np.inf and evaluator.losses([tree])[0] == np.inf


def test_unknown_primitives_are_named(engine):
    with pytest.raises(ValueError, match=r"no operator is known for protected_div \(2 operands\)"):
        srjit.deap.Evaluator(primitive_set(), X, Y, engine=engine)
    with pytest.raises(ValueError, match="there is no operator 'division'"):
        srjit.deap.Evaluator(primitive_set(), X, Y, primitives={"protected_div": "division"}, engine=engine)
    with pytest.raises(ValueError, match="2 operands, but operator 'sin' 1"):
        srjit.deap.Evaluator(primitive_set(), X, Y, primitives={"protected_div": "sin"}, engine=engine)
    with pytest.raises(ValueError, match="names sbu, which"):
        srjit.deap.Evaluator(primitive_set(), X, Y, primitives={**PRIMITIVES, "sbu": "sub"}, engine=engine)
    with pytest.raises(ValueError, match="X has 2 columns, but the primitive set 1 arguments"):
        srjit.deap.Evaluator(primitive_set(), np.ones((3, 2)), np.ones(3), primitives=PRIMITIVES, engine=engine)


def test_evaluators_are_collected(pset, engine):
    evaluator = srjit.deap.Evaluator(pset, X, Y, primitives=PRIMITIVES, engine=engine)
    reference = weakref.ref(evaluator)
    del evaluator
    gc.collect()
    assert reference() is None


def test_typed_sets(engine):
    pset = gp.PrimitiveSetTyped("MAIN", [float, float], float)
    pset.addPrimitive(operator.mul, [float, float], float)
    pset.addPrimitive(operator.lt, [float, float], bool)
    pset.addPrimitive(lambda c, a, b: a if c else b, [bool, float, float], float, name="choose")
    pset.addTerminal(True, bool)
    evaluator = srjit.deap.Evaluator(pset, np.array([[1.0, 2.0], [3.0, 1.0]]), [0.0, 0.0], primitives={"choose": "if"},
                                     loss="sum", engine=engine)
    tree = gp.PrimitiveTree.from_string("choose(lt(ARG0, ARG1), ARG0, mul(ARG1, ARG1))", pset)
    assert evaluator.losses([tree])[0] == 1 + 1
