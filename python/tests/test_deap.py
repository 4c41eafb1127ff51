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
    with pytest.raises(ValueError, match="'division' is no operator .* and no expression: unknown name 'division'"):
        srjit.deap.Evaluator(primitive_set(), X, Y, primitives={"protected_div": "division"}, engine=engine)
    with pytest.raises(ValueError, match="2 operands, but operator 'sin' 1"):
        srjit.deap.Evaluator(primitive_set(), X, Y, primitives={"protected_div": "sin"}, engine=engine)
    with pytest.raises(ValueError, match="names sbu, which"):
        srjit.deap.Evaluator(primitive_set(), X, Y, primitives={**PRIMITIVES, "sbu": "sub"}, engine=engine)
    for text, message in (("x0 + x2", "has x2, but the primitive 2 operands"), ("p0 * x0", "has a parameter")):
        with pytest.raises(ValueError, match=message):
            srjit.deap.Evaluator(primitive_set(), X, Y, primitives={"protected_div": text}, engine=engine)
    with pytest.raises(TypeError, match="the names of primitives"):
        srjit.deap.Evaluator(primitive_set(), X, Y, primitives={protected_div: "zdiv"}, engine=engine)


def test_other_arguments_are_checked_at_once(engine):
    def made(columns=X, **options):
        return srjit.deap.Evaluator(primitive_set(), columns, Y, primitives=PRIMITIVES, engine=engine, **options)

    with pytest.raises(ValueError, match="X has 2 columns, but the primitive set 1 argument"):
        made(np.ones((3, 2)))
    with pytest.raises(ValueError, match="'MSE' is none of sse, mse"):
        made(loss="MSE")
    with pytest.raises(ValueError, match="nan is 'zero'"):
        made(nan="zero")
    with pytest.raises(ValueError, match="names half, which the primitive set does not have"):
        srjit.deap.Evaluator(primitive_set(), X, Y, primitives={**PRIMITIVES, "half": "sub"}, engine=engine)
    with pytest.raises(TypeError, match="register its `map` as toolbox.map"):
        pickle.dumps(made())


@pytest.mark.parametrize("primitives", [PRIMITIVES, {**PRIMITIVES, "neg": "0 - x0"}])
def test_what_is_no_tree_has_no_fitness(engine, primitives):
    pset = primitive_set()
    evaluator = srjit.deap.Evaluator(pset, X, Y, primitives=primitives, engine=engine)
    add, argument = pset.mapping["add"], pset.mapping["ARG0"]
    losses = evaluator.losses([[argument], [add, argument], [argument, argument], [], [add, argument, 0.5]])
    assert np.isfinite(losses[[0, 4]]).all() and np.isnan(losses[1:4]).all()
    for bad in ([add, argument, argument], [(argument,)]):
        with pytest.raises(TypeError, match="expected a list of individuals"):
            evaluator.losses(bad)


def test_a_device_is_an_engine_of_it(engine):
    evaluator = srjit.deap.Evaluator(primitive_set(), X, Y, primitives=PRIMITIVES, engine="cpu")
    assert evaluator.engine.device == "cpu" and evaluator.engine.precision == "f64"


def test_automatically_defined_functions_are_refused(engine):
    pset, adf = primitive_set(), gp.PrimitiveSet("ADF0", 2)
    pset.addADF(adf)
    with pytest.raises(ValueError, match="ADF0 is an automatically defined function"):
        srjit.deap.Evaluator(pset, X, Y, primitives=PRIMITIVES, engine=engine)
    with pytest.raises(TypeError, match="expected one primitive set"):
        srjit.deap.Evaluator([pset, adf], X, Y, primitives=PRIMITIVES, engine=engine)


def test_columns_of_a_frame_stand_where_the_arguments_do(engine):
    pandas = pytest.importorskip("pandas")
    pset = gp.PrimitiveSet("MAIN", 2)
    pset.addPrimitive(operator.sub, 2)
    pset.renameArguments(ARG0="a", ARG1="b")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]})
    evaluator = srjit.deap.Evaluator(pset, frame, [-2.0, -3.0], engine=engine)
    tree = gp.PrimitiveTree.from_string("sub(a, b)", pset)
    program = engine.compile(evaluator.population([tree]))
    assert evaluator.losses([tree])[0] == engine.loss(program, evaluator.data).values[0] == 0
    assert evaluator.population([tree])[0] == "a - b"
    with pytest.raises(ValueError, match="the columns of X are b, a, in another order than the arguments .*: a, b"):
        srjit.deap.Evaluator(pset, frame[["b", "a"]], [1.0, 2.0], engine=engine)
    with pytest.raises(ValueError, match="in another order"):
        srjit.deap.Evaluator(pset, frame.rename(columns={"a": "b", "b": "x"}), [1.0, 2.0], engine=engine)
    other = frame.rename(columns={"a": "x", "b": "y"})
    assert srjit.deap.Evaluator(pset, other, [-2.0, -3.0], engine=engine).losses([tree])[0] == 0


def shifted_log(left, right):
    return math.log(max(abs(left), 1e-9)) - right


def set_with_templates():
    pset = primitive_set()
    pset.addPrimitive(shifted_log, 2)
    return pset


TEMPLATES = {**PRIMITIVES, "shifted_log": "log(max(abs(x0), 1e-9)) - x1", "neg": "0 - x0"}


def test_primitives_can_be_expressions(engine):
    pset = set_with_templates()
    evaluator = srjit.deap.Evaluator(pset, X, Y, primitives=TEMPLATES, engine=engine)
    random.seed(3)
    trees = [gp.PrimitiveTree(gp.genGrow(pset, 1, 5)) for _ in range(200)]
    assert sum("shifted_log" in str(tree) for tree in trees) > 50
    found = evaluator.losses(trees)
    for tree, loss in zip(trees, found.tolist()):
        function = gp.compile(tree, pset)
        expected = np.mean([(function(x) - y) ** 2 for x, y in zip(X[:, 0].tolist(), Y.tolist())])
        assert loss == pytest.approx(expected, rel=1e-9, abs=1e-12)
    one = srjit.deap.Evaluator(pset, X, Y, primitives={**TEMPLATES, "sin": "1"}, engine=engine)
    assert one.population([gp.PrimitiveTree.from_string("add(sin(cos(ARG0)), ARG0)", pset)])[0] == "1 + ARG0"
    tree = gp.PrimitiveTree.from_string("shifted_log(add(ARG0, half), shifted_log(0.25, ARG0))", pset)
    assert evaluator.population([tree])[0] == "log(max(abs(ARG0 + 0.5), 1e-09)) - (log(max(abs(0.25), 1e-09)) - ARG0)"


def test_a_tree_that_doubles_at_each_level_is_refused(engine):
    pset = gp.PrimitiveSet("MAIN", 1)
    pset.addPrimitive(lambda x: x * x, 1, name="twice")
    evaluator = srjit.deap.Evaluator(pset, X, Y, primitives={"twice": "x0 * x0"}, engine=engine)
    twice, argument = pset.mapping["twice"], pset.mapping["ARG0"]
    assert evaluator.losses([[twice] * 10 + [argument]]).shape == (1,)
    with pytest.raises(ValueError, match="more than 16777216 nodes"):
        evaluator.losses([[twice] * 40 + [argument]])


@pytest.mark.parametrize("primitives", [PRIMITIVES, TEMPLATES])
def test_numbers_of_individuals_are_fitted(engine, primitives):
    pset = set_with_templates() if primitives is TEMPLATES else primitive_set()
    y = 3 * X[:, 0] - 0.75
    evaluator = srjit.deap.Evaluator(pset, X, y, primitives=primitives, engine=engine)
    constant = pset.mapping["rand101"]
    drawn = [constant(), constant()]
    for node in drawn:
        node.value = 1
    add, mul, argument, half = (pset.mapping[name] for name in ("add", "mul", "ARG0", "half"))
    line = creator.Individual([add, mul, drawn[0], argument, drawn[1]])
    same = creator.Individual(line)
    fixed = creator.Individual([mul, half, argument])
    losses = evaluator.fit([line, fixed], iterations=20)
    assert [node.value for node in line if not node.arity and node is not argument] == pytest.approx([3, -0.75])
    assert all(type(line[place]) is constant and line[place].name == "rand101" for place in (2, 4))
    assert [node.value for node in drawn] == [1, 1] and str(same) != str(line)  # others may have the same nodes
    assert str(fixed) == "mul(half, ARG0)"  # a name is no number
    np.testing.assert_array_equal(losses, evaluator.losses([line, fixed]))
    assert line.fitness.values == (losses[0],) and losses[0] < 1e-20 < losses[1]
    assert evaluator.fit([]).shape == (0,)
    numbers = gp.PrimitiveTree([argument, *[]])
    for _ in range(300):
        numbers = gp.PrimitiveTree([add, constant(), *numbers])
    before = str(numbers)
    assert evaluator.fit([numbers]) == evaluator.losses([numbers]) and str(numbers) == before  # too many
    again = gp.PrimitiveTree.from_string("mul(ARG0, 1.0)", pset)
    evaluator.fit([again])
    assert str(again) == f"mul(ARG0, {again[2].value!r})" and again[2].name == str(again[2].value)


@pytest.mark.parametrize("loss", ["mse", "scaled-mse", "r2"])
def test_no_fit_is_worse_than_its_start(engine, loss):
    pset = primitive_set()
    pset.addEphemeralConstant("uniform", partial(random.uniform, -2, 2))
    evaluator = srjit.deap.Evaluator(pset, X, Y, primitives=PRIMITIVES, loss=loss, engine=engine)
    random.seed(6)
    trees = [gp.PrimitiveTree(gp.genHalfAndHalf(pset, 1, 5)) for _ in range(500)]
    before, after = evaluator.losses(trees), evaluator.fit(trees)
    gain = after - before if loss == "r2" else before - after
    assert (gain[np.isfinite(before)] >= 0).all() and (gain > 0).sum() > 100
    np.testing.assert_array_equal(after, evaluator.losses(trees))


def test_a_fitness_that_fails_leaves_individuals_as_they_were(engine):
    pset = primitive_set()
    evaluator = srjit.deap.Evaluator(pset, X, 3 * X[:, 0], primitives=PRIMITIVES, engine=engine,
                                     fitness=lambda individual, loss: (loss, 0.0))
    individual = creator.Individual([pset.mapping["mul"], gp.Terminal(1.0, False, object), pset.mapping["ARG0"]])
    with pytest.raises(AssertionError):
        evaluator.fit([individual])
    assert individual[1].value == 1.0


def test_fitness_of_more_than_the_loss(pset, engine):
    evaluator = srjit.deap.Evaluator(pset, X, Y, primitives=PRIMITIVES, engine=engine,
                                     fitness=lambda individual, loss: (loss, len(individual)))
    random.seed(4)
    trees = toolbox_of(pset).population(n=5)
    losses = evaluator.losses(trees)
    expected = [(loss, len(tree)) for tree, loss in zip(trees, losses.tolist())]
    assert evaluator.map(evaluator.evaluate, trees) == expected == [evaluator.evaluate(tree) for tree in trees]


def test_evaluating_one_by_one_is_a_warning(pset, evaluator):
    random.seed(5)
    trees = toolbox_of(pset).population(n=3)
    with pytest.warns(RuntimeWarning, match="one by one") as warned:
        values = evaluator.map(lambda tree: (evaluator.evaluate(tree)[0] + len(tree),), trees)
    assert len(warned) == 1
    assert values == [(loss + len(tree),) for tree, loss in zip(trees, evaluator.losses(trees).tolist())]


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


def test_trees_of_typed_sets_have_the_types_of_their_places(engine):
    pset = gp.PrimitiveSetTyped("MAIN", [float], bool)
    pset.addPrimitive(operator.mul, [float, float], float)
    pset.addPrimitive(operator.lt, [float, float], bool)
    pset.addPrimitive(max, [bool, bool], bool)
    pset.addTerminal(False, bool)
    pset.addTerminal(2.5, float)
    evaluator = srjit.deap.Evaluator(pset, X, Y, engine=engine)
    tree = gp.PrimitiveTree.from_string("max(lt(ARG0, mul(2.5, ARG0)), False)", pset)
    back = gp.PrimitiveTree(evaluator.tree_of(evaluator.population([tree]), 0))
    assert str(back) == str(tree) and [node.ret for node in back] == [node.ret for node in tree]
    assert back[-1].value is False
    for text, message in (("max(x0 < 1, 0.5)", "the number 0.5 stands where the primitive set has bool"),
                          ("max(x0 < 1, x0)", "'ARG0' gives float, where the primitive set has bool"),
                          ("x0*x0", "'mul' gives float")):
        text = text.replace("x0 < 1", "lt(x0, 1)")
        with pytest.raises(ValueError, match=message):
            evaluator.tree_of(srjit.parse(text), 0)


def test_typed_sets_may_have_an_operator_for_each_type(engine):
    pset = gp.PrimitiveSetTyped("MAIN", [float, float], float)
    pset.addPrimitive(operator.and_, [bool, bool], bool)
    pset.addPrimitive(operator.or_, [bool, bool], bool)
    pset.addPrimitive(operator.not_, [bool], bool)
    pset.addPrimitive(operator.eq, [float, float], bool)
    pset.addPrimitive(operator.lt, [float, float], bool)
    pset.addPrimitive(min, [float, float], float)
    pset.addPrimitive(pow, [float, int], float)
    pset.addPrimitive(lambda c, a, b: a if c else b, [bool, float, float], float, name="if_then_else")
    pset.addTerminal(np.bool_(True), bool, name="yes")
    pset.addTerminal(3, int)
    primitives = {"if_then_else": "if", "and_": "min", "or_": "max", "not_": "1 - x0", "eq": "min(le(x0, x1), le(x1, x0))"}
    evaluator = srjit.deap.Evaluator(pset, np.array([[1.0, 2.0], [3.0, 3.0]]), [0.0, 0.0], primitives=primitives,
                                     loss="sum", engine=engine)
    texts = ["if_then_else(lt(ARG0, ARG1), min(ARG0, 1.0), ARG1)", "if_then_else(not_(eq(ARG0, ARG1)), 10.0, 20.0)",
             "if_then_else(and_(lt(ARG0, ARG1), yes), pow(ARG0, 3), 7.0)"]
    trees = [gp.PrimitiveTree.from_string(text, pset) for text in texts]
    assert evaluator.losses(trees).tolist() == [1 + 3, 10 + 20, 1 + 7]
    for tree in (trees[0], trees[2]):
        back = gp.PrimitiveTree(evaluator.tree_of(evaluator.population([tree]), 0))
        assert str(back) == str(tree).replace("yes", "True") and [n.ret for n in back] == [n.ret for n in tree]
    with pytest.raises(ValueError, match="the number 2.5 stands where the primitive set has int"):
        evaluator.tree_of(srjit.parse("x0^2.5"), 0)
    evaluator.loss = "mse"
    evaluator.fit([trees[2]])
    assert trees[2][-2].value == 3 and type(trees[2][-2].value) is int and "yes" in str(trees[2])
