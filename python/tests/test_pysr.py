"""Tables of equations as PySR has them. (PySR itself needs Julia.)"""

import numpy as np
import pytest
import srjit

pd = pytest.importorskip("pandas")
sympy = pytest.importorskip("sympy")
import srjit.pysr  # noqa: E402


@pytest.fixture
def equations():
    texts = ["2.1", "x0 * 1.9", "2.2 * sin(x0 * 0.7) + 0.1*x1**2"]
    table = pd.DataFrame({"complexity": [1, 3, 9], "loss": [5.0, 1.0, 0.2], "score": [0.0, 0.5, 0.3], "equation": texts})
    table["sympy_format"] = [sympy.sympify(text) for text in texts]
    return table


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(5).uniform(-2, 2, (5000, 2))
    return X, 2.5 * np.sin(0.8 * X[:, 0]) + 0.25 * X[:, 1] ** 2


def test_constants_are_refitted(equations, rows, engine):
    made = srjit.pysr.refit(equations, *rows, engine=engine)
    x0, x1 = sympy.symbols("x0 x1", real=True)
    last = made["sympy_format"].iloc[2]
    assert float(last.coeff(x1**2)) == pytest.approx(0.25) and made["loss"].iloc[2] < 1e-20
    assert (made["loss"] <= made["loss_before"]).all()
    assert made["loss_before"].iloc[0] == pytest.approx(np.mean((2.1 - rows[1]) ** 2))
    assert made["score"].iloc[1] == pytest.approx(-np.log(made["loss"].iloc[1] / made["loss"].iloc[0]) / 2)
    assert list(equations["equation"]) == ["2.1", "x0 * 1.9", "2.2 * sin(x0 * 0.7) + 0.1*x1**2"]
    assert made["fit"].iloc[2] == "converged"


def test_names_and_text_alone(equations, rows, engine):
    named = equations.drop(columns="sympy_format")
    named["equation"] = [text.replace("x0", "mass").replace("x1", "speed") for text in named["equation"]]
    frame = pd.DataFrame(rows[0], columns=["mass", "speed"])
    made = srjit.pysr.refit(named, frame, rows[1], engine=engine)
    assert "mass" in made["equation"].iloc[2]
    np.testing.assert_allclose(made["loss"], srjit.pysr.refit(equations, *rows, engine=engine)["loss"], rtol=1e-9, atol=1e-20)


def test_losses_of_which_larger_is_better_are_refused(equations, rows, engine):
    with pytest.raises(ValueError, match="smaller for better"):
        srjit.pysr.refit(equations, *rows, loss="r2", engine=engine)


def test_columns_with_names_of_sympy(rows, engine):
    frame = pd.DataFrame(rows[0], columns=["S", "p0"])
    table = pd.DataFrame({"complexity": [5], "equation": ["S*1.5 + 0.5*p0"]})
    made = srjit.pysr.refit(table, frame, 2.5 * frame["S"] + 0.25 * frame["p0"], engine=engine)
    assert made["loss"].iloc[0] < 1e-20 and "S" in made["equation"].iloc[0] and "p0" in made["equation"].iloc[0]


def test_a_worse_fit_is_not_taken(rows, engine):
    table = pd.DataFrame({"complexity": [4], "equation": ["log(x0 - 0.5)*0.5"]})
    made = srjit.pysr.refit(table, *rows, engine=engine)
    assert made["equation"].iloc[0] == "0.5*log(x0 - 0.5)" and not np.isfinite(made["loss"].iloc[0])
