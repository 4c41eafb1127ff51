"""gplearn's estimators with and without the adapter."""

import concurrent.futures
import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest
import srjit

pytest.importorskip("gplearn")
from gplearn import fitness, functions, genetic  # noqa: E402
from sklearn.base import clone  # noqa: E402

import srjit.gplearn  # noqa: E402
from conftest import DEVICE  # noqa: E402

OPTIONS = {"population_size": 300, "generations": 5, "random_state": 3, "parsimony_coefficient": 0.001}
FUNCTIONS = ("add", "sub", "mul", "div", "sqrt", "log", "neg", "inv", "abs", "max", "min", "sin", "cos", "tan")


def programs_of(estimator):
    return [str(program) for program in estimator._programs[-1]]


def fit_both(name, X, y, sample_weight=None, **options):
    options = {**OPTIONS, **options}
    theirs = getattr(genetic, name)(**options).fit(X, y, sample_weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = getattr(srjit.gplearn, name)(**options, device=DEVICE).fit(X, y, sample_weight)
    return ours, theirs


@pytest.mark.parametrize("metric", ["mse", "rmse", "mean absolute error", "pearson"])
def test_the_same_programs_evolve(table, metric):
    ours, theirs = fit_both("SymbolicRegressor", *table, metric=metric, function_set=FUNCTIONS)
    assert programs_of(ours) == programs_of(theirs)
    np.testing.assert_allclose([program.raw_fitness_ for program in ours._programs[-1]],
                               [program.raw_fitness_ for program in theirs._programs[-1]], rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(ours.predict(table[0]), theirs.predict(table[0]))
    assert ours.run_details_["best_length"] == theirs.run_details_["best_length"]


def test_weights(table):
    weights = np.linspace(0, 3, 1000)
    ours, theirs = fit_both("SymbolicRegressor", *table, sample_weight=weights)
    assert programs_of(ours) == programs_of(theirs)


def test_several_processes(table):
    ours, theirs = fit_both("SymbolicRegressor", *table, n_jobs=2, generations=3)
    assert programs_of(ours) == programs_of(theirs)


def test_several_threads(table):
    seeds = range(4)
    expected = [programs_of(genetic.SymbolicRegressor(**{**OPTIONS, "random_state": seed, "generations": 3}).fit(*table))
                for seed in seeds]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        fitted = threads.map(lambda seed: srjit.gplearn.SymbolicRegressor(
            **{**OPTIONS, "random_state": seed, "generations": 3}, device=DEVICE).fit(*table), seeds)
        assert [programs_of(estimator) for estimator in fitted] == expected


def test_warm_start(table):
    ours, theirs = fit_both("SymbolicRegressor", *table, warm_start=True, generations=2)
    for estimator in (ours, theirs):
        estimator.set_params(generations=4).fit(*table)
    assert programs_of(ours) == programs_of(theirs)


def test_classifier(table):
    X, y = table
    ours, theirs = fit_both("SymbolicClassifier", X, np.where(y > np.median(y), "high", "low"))
    assert programs_of(ours) == programs_of(theirs)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_transformer(table):
    ours, theirs = fit_both("SymbolicTransformer", *table, hall_of_fame=20, n_components=5, metric="pearson")
    assert [str(program) for program in ours] == [str(program) for program in theirs]
    np.testing.assert_array_equal(ours.transform(table[0]), theirs.transform(table[0]))


def _ratio(y, y_pred, w):
    return float(np.average(np.abs(y_pred - y) / (1 + np.abs(y)), weights=w))


@pytest.mark.parametrize("options", [
    {"metric": "spearman", "population_size": 50}, {"max_samples": 0.9}, {"max_samples": 0.5, "metric": "rmse"},
    {"metric": fitness.make_fitness(function=_ratio, greater_is_better=False, wrap=False)}],
    ids=["spearman", "sample", "half", "custom"])
def test_metrics_and_samples_of_gplearn_itself(table, options):
    ours, theirs = fit_both("SymbolicRegressor", *table, generations=3, **options)
    assert programs_of(ours) == programs_of(theirs)
    assert ours.run_details_["best_oob_fitness"] == pytest.approx(theirs.run_details_["best_oob_fitness"], nan_ok=True)


def test_a_function_without_a_counterpart_falls_back_with_one_warning(table):
    hypot = functions.make_function(function=np.hypot, name="hypot", arity=2, wrap=False)
    options = {**OPTIONS, "generations": 3, "function_set": ("add", hypot)}
    theirs = genetic.SymbolicRegressor(**options).fit(*table)
    with pytest.warns(UserWarning, match="srjit has no counterpart of the function 'hypot'") as caught:
        ours = srjit.gplearn.SymbolicRegressor(**options, device=DEVICE).fit(*table)
    assert len([w for w in caught if "srjit" in str(w.message)]) == 1
    assert programs_of(ours) == programs_of(theirs)


def test_it_is_an_estimator(table):
    estimator = srjit.gplearn.SymbolicRegressor(population_size=50, generations=2, device="cpu", precision="f32")
    assert isinstance(estimator, genetic.SymbolicRegressor)
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.get_params()["precision"] == "f32" and estimator.get_params()["tournament_size"] == 20
    again = pickle.loads(pickle.dumps(estimator.fit(*table)))
    np.testing.assert_array_equal(again.predict(table[0]), estimator.predict(table[0]))
    with pytest.raises(TypeError):
        srjit.gplearn.SymbolicRegressor(populaton_size=3)


def test_estimators_are_collected(table):
    fitted = srjit.gplearn.SymbolicRegressor(population_size=50, generations=2, device="cpu").fit(*table)
    reference = weakref.ref(fitted)
    del fitted
    gc.collect()
    assert reference() is None


def test_gplearn_itself_is_as_it_was(table):
    fit_both("SymbolicRegressor", *table, generations=2)
    assert genetic.Parallel.__module__.startswith("joblib")
    assert genetic._parallel_evolve.__module__ == "gplearn.genetic"
