"""Bingo's individuals: their fitness, and their constants."""

import numpy as np
import pytest
import srjit

pytest.importorskip("bingo")
from bingo.evaluation.evaluation import Evaluation  # noqa: E402
from bingo.local_optimizers.local_opt_fitness import LocalOptFitnessFunction  # noqa: E402
from bingo.local_optimizers.scipy_optimizer import ScipyOptimizer  # noqa: E402
from bingo.symbolic_regression.agraph.component_generator import ComponentGenerator  # noqa: E402
from bingo.symbolic_regression.agraph.generator import AGraphGenerator  # noqa: E402
from bingo.symbolic_regression.explicit_regression import ExplicitRegression, ExplicitTrainingData  # noqa: E402

import srjit.bingo  # noqa: E402


@pytest.fixture(params=[False, True], ids=["cpp", "python"])
def individuals(request):
    components = ComponentGenerator(3)
    for name in ("+", "-", "*", "/", "sin", "cos", "exp", "log", "sqrt", "pow"):
        components.add_operator(name)
    np.random.seed(7)
    generate = AGraphGenerator(16, components, use_python=request.param)
    return [generate() for _ in range(100)]


def with_constants(individuals):
    for individual in individuals:
        count = individual.get_number_local_optimization_params()
        individual.set_local_optimization_params(np.random.uniform(-2, 2, count))
    return individuals


@pytest.mark.parametrize("metric", ["mse", "mae", "rmse"])
def test_the_fitness_is_bingos(individuals, table, engine, metric):
    function = ExplicitRegression(ExplicitTrainingData(*table), metric=metric)
    with_constants(individuals)
    copies = [individual.copy() for individual in individuals]
    Evaluation(function)(copies)
    evaluation = srjit.bingo.Evaluation(function, engine=engine)
    before = evaluation.eval_count
    evaluation(individuals)
    assert evaluation.eval_count == before + 100
    theirs, ours = ([individual.fitness for individual in some] for some in (copies, individuals))
    finite = np.isfinite(theirs) & (np.abs(theirs) < 1e100)
    np.testing.assert_allclose(np.array(ours)[finite], np.array(theirs)[finite], rtol=1e-8)
    assert finite.sum() > 50 and all(individual.fit_set for individual in individuals)


def test_constants_are_fitted_at_least_as_well(individuals, table, engine):
    function = LocalOptFitnessFunction(ExplicitRegression(ExplicitTrainingData(*table), metric="mse"),
                                       ScipyOptimizer(ExplicitRegression(ExplicitTrainingData(*table)), method="lm",
                                                      param_init_bounds=[-1, 1]))
    copies = [individual.copy() for individual in individuals]
    np.random.seed(1)
    Evaluation(function)(copies)
    np.random.seed(1)
    srjit.bingo.Evaluation(function, engine=engine)(individuals)
    theirs, ours = (np.array([individual.fitness for individual in some]) for some in (copies, individuals))
    fitted = np.array([individual.get_number_local_optimization_params() > 0 for individual in individuals])
    assert fitted.any() and not any(individual.needs_local_optimization() for individual in individuals)
    both = fitted & np.isfinite(theirs) & np.isfinite(ours)
    # Several minima: in nearly all cases it is the same one, or a better one.
    assert (ours[both] <= theirs[both] * (1 + 1e-6) + 1e-12).mean() > 0.9
    # The fitness is that of the constants that the individual has now.
    again = ExplicitRegression(ExplicitTrainingData(*table), metric="mse")
    values = np.array([again(individual) for individual in individuals])
    finite = np.isfinite(values) & np.isfinite(ours) & (values < 1e100)
    np.testing.assert_allclose(ours[finite], values[finite], rtol=1e-7, atol=1e-20)


def test_individuals_with_a_fitness_are_left_alone(individuals, table, engine):
    with_constants(individuals)
    individuals[0].fitness = 42.0
    srjit.bingo.Evaluation(ExplicitRegression(ExplicitTrainingData(*table)), engine=engine)(individuals)
    assert individuals[0].fitness == 42.0
    srjit.bingo.Evaluation(ExplicitRegression(ExplicitTrainingData(*table)), True, engine=engine)(individuals)
    assert individuals[0].fitness != 42.0


def test_what_has_no_counterpart_is_evaluated_by_bingo(individuals, table, engine):
    with_constants(individuals)
    function = ExplicitRegression(ExplicitTrainingData(*table), relative=True)
    evaluation = srjit.bingo.Evaluation(function, engine=engine)
    with pytest.warns(UserWarning, match="no counterpart of relative errors"):
        evaluation(individuals[:50])
    copies = [individual.copy() for individual in individuals]
    evaluation(individuals[50:])
    Evaluation(function)(copies)
    np.testing.assert_array_equal([i.fitness for i in individuals], [i.fitness for i in copies])


def test_individuals_as_expressions(individuals):
    with_constants(individuals)
    population = srjit.bingo.population_of(individuals)
    assert len(population) == 100 and population.failures == []
