"""An expression as an estimator of scikit-learn."""

import pickle
import warnings

import numpy as np
import pytest
import srjit

pytest.importorskip("sklearn")
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from conftest import DEVICE  # noqa: E402
from srjit.sklearn import ExpressionRegressor, score  # noqa: E402


@parametrize_with_checks([ExpressionRegressor(device="cpu"), ExpressionRegressor("p0*exp(p1*x0) + p2", device="cpu")])
def test_it_keeps_scikit_learns_rules(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def decay():
    X = np.linspace(0, 3, 200).reshape(-1, 1)
    return X, 2 * np.exp(-0.5 * X[:, 0]) + 1


def test_parameters_are_found(decay):
    X, y = decay
    model = ExpressionRegressor("p0*exp(-p1*x0) + p2", device=DEVICE).fit(X, y)
    np.testing.assert_allclose(model.parameters_, [2, 0.5, 1], rtol=1e-6)
    assert model.status_ == "converged" and model.score(X, y) == pytest.approx(1)
    assert model.standard_errors_.shape == (3,)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_parameters_keep_their_bounds(decay):
    X, y = decay
    model = ExpressionRegressor("p0*exp(-p1*x0) + p2", device=DEVICE, bounds={"p1": (0.6, 0.8)}).fit(X, y)
    assert model.parameters_[1] == 0.6 and np.isnan(model.standard_errors_).tolist() == [False, True, False]


def test_linear_fits_at_their_optimum_do_not_warn():
    for seed in range(60):
        random = np.random.default_rng(seed)
        rows = int(random.integers(5, 300))
        X = random.uniform(1, 5, (rows, 2))
        y = X[:, 0] * X[:, 1] - 3 + random.normal(size=rows)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = ExpressionRegressor("p0*x0 + p1*x1", device="cpu").fit(X, y)
        assert model.status_ == "converged"
        np.testing.assert_allclose(model.parameters_, np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-9)


def test_names_of_columns_and_sympy(decay):
    pd, sympy = pytest.importorskip("pandas"), pytest.importorskip("sympy")
    frame = pd.DataFrame({"time": decay[0][:, 0]})
    model = ExpressionRegressor("p0*exp(-p1*time) + p2", device=DEVICE).fit(frame, decay[1])
    time = sympy.Symbol("time")
    assert model.sympy().free_symbols == {time}
    assert model.sympy(real=True).free_symbols == {sympy.Symbol("time", real=True)}
    assert float(model.sympy().subs(time, 0)) == pytest.approx(3)
    p, t = sympy.symbols("p0 time")
    assert ExpressionRegressor(p * t, device=DEVICE).fit(frame, 3 * frame["time"]).parameters_ == pytest.approx([3])


def test_weights_and_losses(decay):
    X, y = decay
    outlier = y.copy()
    outlier[5] = 1e3
    weights = np.ones(200)
    weights[5] = 0
    expression = "p0*exp(-p1*x0) + p2"
    weighted = ExpressionRegressor(expression, device=DEVICE).fit(X, outlier, sample_weight=weights)
    np.testing.assert_allclose(weighted.parameters_, [2, 0.5, 1], rtol=1e-6)
    robust = ExpressionRegressor("p0 + p1*x0", loss="huber:0.1", device=DEVICE).fit(X, np.where(np.arange(200) == 5, 99, X[:, 0]))
    np.testing.assert_allclose(robust.parameters_, [0, 1], atol=0.01)


def test_bad_input(decay):
    X, y = decay
    with pytest.raises(srjit.InvalidError) as problem:
        ExpressionRegressor("p0*(x0", device=DEVICE).fit(X, y)
    assert problem.value.where is not None
    with pytest.raises(srjit.Error, match="x3"):
        ExpressionRegressor("p0*x3", device=DEVICE).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="no finite loss"):
        ExpressionRegressor("p0*log(-1 - x0)", device=DEVICE).fit(X, y)
    with pytest.raises(TypeError, match="a list"):
        ExpressionRegressor(["p0*x0", "x0"], device=DEVICE).fit(X, y)
    with pytest.raises(ValueError, match="start has the shape"):
        ExpressionRegressor("p0*x0", start=[1.0, 2.0], device=DEVICE).fit(X, y)


def test_random_states_and_booleans(decay):
    X, y = decay
    for state in (2**40, np.uint64(2**64 - 1), np.random.RandomState(1), None):
        model = ExpressionRegressor("p0*exp(-p1*x0) + p2", device=DEVICE, random_state=state).fit(X, y)
        np.testing.assert_allclose(model.parameters_, [2, 0.5, 1], rtol=1e-6)
    with pytest.raises(ValueError, match="random_state is -1, expected 0 to 18446744073709551615"):
        ExpressionRegressor("p0*x0", device=DEVICE, random_state=-1).fit(X, y)
    truth = X[:, 0] > 1
    model = ExpressionRegressor("p0*x0 + p1", device=DEVICE).fit(truth.reshape(-1, 1), truth)
    np.testing.assert_allclose(model.parameters_, [1, 0], atol=1e-12)


def test_texts_are_refused_with_column_and_row(decay):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"time": decay[0][:, 0], "place": ["here"] * 200})
    with pytest.raises(ValueError, match="row 1 of column 'place' of X is 'here', which is no number"):
        ExpressionRegressor("p0*time", device=DEVICE).fit(frame, decay[1])


def test_scores_of_many_expressions(decay, engine):
    X, y = decay
    texts = ["2*exp(-0.5*x0) + 1", "x0", "log(x0 - 1)"]
    scores = score(texts, X, y, engine=engine)
    assert scores[0] == pytest.approx(1) and scores[1] < 0.5 and scores[2] == -np.inf
    from sklearn.metrics import mean_absolute_error

    assert score(["x0"], X, y, scoring="neg_mean_absolute_error", engine=engine)[0] == pytest.approx(
        -mean_absolute_error(y, X[:, 0]))
    assert score(["2 + 0*x0", "x0"], X, np.full(200, 2.0), engine=engine).tolist() == [1, 0]
    with pytest.raises(srjit.Error, match="expression 1"):
        score(["x0", "(("], X, y, engine=engine)
    with pytest.raises(ValueError, match="expected one of"):
        score(texts, X, y, scoring="accuracy")
