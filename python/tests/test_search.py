"""The search for formulas as an estimator of scikit-learn."""

import enum
import inspect
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import srjit

pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from conftest import DEVICE  # noqa: E402
from srjit import SymbolicRegressor  # noqa: E402
from srjit._search import _OPTIONS  # noqa: E402


def small(**options):
    """A search that takes a fraction of a second, and ends after two generations."""
    return SymbolicRegressor(**{"generations": 2, "islands": 2, "population": 30, "offspring": 30, "device": DEVICE, **options})


# Rows are weighted as they should be (test_weights), but a search takes other turns when its sums are rounded differently,
# and rounds constants by standard errors, for which two rows are more than one of weight 2.
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "equal only up to the course of the search"}


@parametrize_with_checks([small(device="cpu")], expected_failed_checks=lambda _: EXPECTED)
def test_it_keeps_scikit_learns_rules(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def planets():
    """Axes and periods by Kepler's third law, and a column that has no part in it."""
    random = np.random.default_rng(1)
    axis = np.exp(random.uniform(-1, 3.5, 12))
    return np.stack([axis, random.uniform(0.5, 2, 12)], axis=1), axis**1.5


@pytest.fixture(scope="module")
def noisy():
    random = np.random.default_rng(2)
    X = random.uniform(-2, 2, (60, 2))
    return X, np.exp(X[:, 0]) - X[:, 1] ** 2 + 0.1 * random.normal(size=60)


def test_a_law_is_found(planets):
    X, y = planets
    model = SymbolicRegressor(seconds=30, device=DEVICE).fit(X, y)
    assert model.status_ == "tol" and model.seconds_ < 30
    assert model.chosen_ in model.front_ and model.expression_ == model.chosen_.expression
    assert model.chosen_.loss < 1e-18 and model.chosen_.complexity <= 4 and np.isnan(model.chosen_.held_out)
    assert "x1" not in model.expression_
    new = np.array([[40.0, 1.0], [0.1, 3.0]])
    np.testing.assert_allclose(model.predict(new), new[:, 0] ** 1.5, rtol=1e-12)
    assert model.score(X, y) == pytest.approx(1)
    assert [formula.complexity for formula in model.front_] == sorted({formula.complexity for formula in model.front_})
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert repr(again.front_) == repr(model.front_)


def test_names_of_columns(planets):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("sympy")
    frame = pd.DataFrame(planets[0], columns=["axis", "mass of the sun"])
    period = np.sqrt(frame["axis"] ** 3 / frame["mass of the sun"])
    model = SymbolicRegressor(seconds=30, device=DEVICE).fit(frame, period)
    assert "axis" in model.expression_ and "`mass of the sun`" in model.expression_
    assert r"\mathrm{axis}" in model.latex()
    formula = model.sympy()
    assert {symbol.name for symbol in formula.free_symbols} == {"axis", "mass of the sun"}
    value = formula.subs({symbol: {"axis": 4, "mass of the sun": 4}[symbol.name] for symbol in formula.free_symbols})
    assert float(value) == pytest.approx(4)
    np.testing.assert_allclose(model.predict(frame), period)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"axis": "orbit"}))


def test_equal_seeds_give_equal_formulas(noisy):
    X = noisy[0]
    hard = X, np.sin(3 * X[:, 0] * X[:, 1]) + np.cos(X[:, 1] ** 2 + X[:, 0])  # no short search finds it
    fronts = [small(generations=40, random_state=seed, threads=threads).fit(*hard).front_
              for seed, threads in ((3, 1), (3, 2), (4, 1))]
    assert repr(fronts[0]) == repr(fronts[1]) and repr(fronts[0]) != repr(fronts[2])
    fronts = [small(generations=40, random_state=seed).fit(*hard).front_ for seed in (2**40, np.uint64(2**40), 2**64 - 1)]
    assert repr(fronts[0]) == repr(fronts[1]) != repr(fronts[2])
    generator = np.random.RandomState(5)
    assert small(random_state=generator).fit(*noisy).n_iter_ == 2
    assert small(random_state=None).fit(*noisy).n_iter_ == 2


def test_the_formula_that_predicts_can_be_chosen(noisy):
    X, y = noisy
    model = small(generations=10, held_out=0.3).fit(X, y)
    first, last = model.front_[0], model.front_[-1]
    assert len(model.front_) > 2 and all(np.isfinite(formula.held_out) for formula in model.front_)
    # All but the constant may have been fitted to other rows.
    constant = model.predict(X, complexity=1)
    assert first.complexity == 1 and np.ptp(constant) == 0
    assert model.latex(complexity=1) == first.latex and float(model.sympy(complexity=1)) == pytest.approx(constant[0])
    with pytest.raises(ValueError, match="complexity is 0"):
        model.predict(X, complexity=0)
    chosen = {choose: clone(model).set_params(choose=choose).fit(X, y).chosen_ for choose in ("loss", 1, last.complexity - 1)}
    assert chosen["loss"] == last and chosen[1] == first
    assert chosen[last.complexity - 1] == model.front_[-2]
    assert model.chosen_.held_out <= 1.05 * min(formula.held_out for formula in model.front_)


def test_the_choice_is_by_evidence_a_rule_or_a_function(noisy):
    X, y = noisy
    model = small(generations=10).fit(X, y)
    assert model.chosen_ == max(model.front_, key=lambda formula: formula.evidence)
    assert all(formula.r2 == pytest.approx(1 - formula.loss) for formula in model.front_)
    assert all(np.isfinite(formula.bic) for formula in model.front_)
    balanced = clone(model).set_params(choose="balance").fit(X, y)
    assert balanced.chosen_.loss <= 1.05 * balanced.front_[-1].loss
    by_function = clone(model).set_params(choose=lambda front: min(front, key=lambda formula: formula.bic)).fit(X, y)
    assert by_function.chosen_ == min(by_function.front_, key=lambda formula: formula.bic)
    with pytest.raises(ValueError, match="choose gave 3, expected one of the formulas"):
        clone(model).set_params(choose=lambda front: 3).fit(X, y)
    custom = small(loss="abs(f - y)").fit(X, y)
    assert np.isnan(custom.chosen_.evidence) and np.isfinite(custom.chosen_.r2)


def test_constants_are_fitted_to_all_rows_at_last(noisy):
    X, y = noisy
    model = small(generations=4, held_out=0.5).fit(X, y)
    for formula in model.front_:
        errors = y - model.predict(X, complexity=formula.complexity)
        assert np.mean(errors**2) / np.var(y) == pytest.approx(formula.loss)
    assert any("all 60 rows" in notice for notice in model.notices_)


def test_predictions_outside_of_the_data():
    X = np.stack([np.linspace(1, 11, 50), np.linspace(-1, 1, 50) ** 3], axis=1)
    model = small(operators="mul").fit(X, X[:, 0] * 3)
    np.testing.assert_allclose(model.box_, [[1 / 3, -1.2], [12, 1.2]])
    new = np.array([[6.0, 0.0], [13.0, 0.0], [6.0, 9.0]])
    for outside, values in {"formula": [18, 39, 18], "clamp": [18, 36, 18], "nan": [18, np.nan, 18]}.items():
        np.testing.assert_allclose(model.set_params(outside=outside).predict(new), values)
    with pytest.raises(ValueError, match="outside is 'zero', expected 'formula', 'clamp' or 'nan'"):
        clone(model).set_params(outside="zero").fit(X, X[:, 0])


def test_errors_intervals_and_importances():
    from scipy import stats
    random = np.random.default_rng(3)
    X = random.normal(size=(150, 3))
    y = 2 + 3 * X[:, 1] + random.normal(size=150)
    weights = np.where(np.arange(150) < 100, 1.0, 0.0)
    model = small(operators="add,mul", max_complexity=5, generations=10).fit(X, y, weights)
    line = np.stack([np.ones(100), X[:100, 1]], axis=1)
    residual = np.sqrt(((y - model.predict(X))[:100]**2).sum() / 98)
    covariance = residual**2 * np.linalg.inv(line.T @ line)
    assert model.residual_ == pytest.approx(residual, rel=1e-9)
    assert sorted(model.standard_errors_) == pytest.approx(sorted(np.sqrt(np.diag(covariance))), rel=1e-9), model.expression_
    assert model.feature_importances_.tolist() == [0, 1, 0]
    for same in (model, pickle.loads(pickle.dumps(model))):
        prediction, low, high = same.predict(X, interval=0.9)
        at = np.stack([np.ones(150), X[:, 1]], axis=1)
        half = stats.t.ppf(0.95, 98) * np.sqrt(residual**2 + np.einsum("ri,ij,rj->r", at, covariance, at))
        np.testing.assert_allclose(high - prediction, half, rtol=1e-9)
        np.testing.assert_allclose(prediction - low, half, rtol=1e-9)
        np.testing.assert_array_equal(prediction, model.predict(X))
    for bad in ({"interval": 0}, {"interval": 95}, {"interval": 0.9, "complexity": 3}):
        with pytest.raises(ValueError, match="expected a probability"):
            model.predict(X, **bad)
    clamped = small(operators="add,mul", max_complexity=5, generations=10, outside="clamp").fit(X, y, weights)
    for column in clamped.predict(np.array([[0, 50, 0], [0, 99, 0]]), interval=0.9):
        assert column[0] == column[1]


def test_what_is_known_already():
    random = np.random.default_rng(4)
    X = random.uniform(1, 3, (80, 3))
    X[:, 2] = np.arange(80) % 2
    y = X[:, 0] * X[:, 1] + np.where(X[:, 2] > 0, 5.0, 2.0)
    form = small(template="f(x0, x1) + p0[x2]", generations=30).fit(X, y)
    assert form.score(X, y) > 1 - 1e-12 and all("if(x2 - 0.5" in formula.expression for formula in form.front_)
    bounded = small(template="f(x0, x1) + p0[x2]", bounds={"p0": (0, 3)}, generations=8).fit(X, y)
    numbers = [re.search(r"if\(x2 - 0.5, ([^,]+), ([^)]+)\)", formula.expression) for formula in bounded.front_]
    assert all(0 <= float(number) <= 3 for found in numbers if found for number in found.groups()) and any(numbers)
    law = X[:, 0] / (X[:, 0] + X[:, 1] ** 2)
    guessed = small(guesses=["x2", "p0*x0/(x0 + square(x1))"], generations=1).fit(X, 3 * law)
    assert guessed.score(X, 3 * law) > 1 - 1e-12
    defined = small(operators="add,mul", define="hill(x, k) = x/(x + k*k)", generations=30).fit(X, law)
    assert any("/" in formula.expression for formula in defined.front_)
    units = {"x0": "m", "x1": "m", "x2": None, "target": "m^2"}
    kept = small(units=units, generations=10).fit(X, X[:, 0] * X[:, 1] + 0.01 * X[:, 2])
    assert not any(re.search(r"(exp|sin|log)\(x[01]\)", formula.expression) for formula in kept.front_)
    with pytest.raises(ValueError, match="combination of columns"):
        small(units={"x0": "m", "target": "kg"}, unit_constants="dimensionless").fit(X, y)
    few = small(max_columns=1, monotone={"x0": "up"}, codata=True, generations=5).fit(X, y)
    assert all(len(set(re.findall(r"x\d", formula.expression))) <= 1 for formula in few.front_)


def test_several_formulas_of_a_complexity(noisy):
    model = small(top=3, generations=10).fit(*noisy)
    sizes = [formula.complexity for formula in model.front_]
    assert len(set(sizes)) < len(sizes)
    size = max(sizes, key=sizes.count)
    best = min(formula.loss for formula in model.front_ if formula.complexity <= size)
    assert model.latex(complexity=size) in [formula.latex for formula in model.front_ if formula.loss == best]


@pytest.mark.parametrize(("options", "message"), [
    ({"units": "x0:m,q:s"}, "units:1:6: 'q' is neither the target nor a column"),
    ({"guesses": "tanh(x0)"}, "guesses:1: tanh is no operator of the search"),
    ({"template": "f(x0) +"}, "template:1:8"),
    ({"template": "f(x0) + p0", "bounds": "p1:0:"}, "'p1:0:': no expression has this parameter"),
    ({"bounds": {"p0": (0, None)}}, "there is no template"),
    ({"define": "mm(x, y) = x"}, "define:1:7: the argument y is not used"),
    ({"checkpoint": "c.json", "warm_start": True}, "two ways to go on"),
])
def test_what_is_known_wrongly(noisy, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        small(**options).fit(*noisy)


def test_defaults_are_those_of_the_command():
    help_text = subprocess.run([sys.executable, "-m", "srjit", "search", "--help"], capture_output=True, text=True,
                               check=True).stdout
    shown = dict(re.findall(r"^ +(--[\w-]+) [^\s=]+=(\S+)", help_text, re.MULTILINE))
    parameters = inspect.signature(SymbolicRegressor).parameters
    defaults = {option: parameters[name].default for name, (option, _) in _OPTIONS.items() if name in parameters}
    for option, default in defaults.items():
        if isinstance(default, bool):
            assert not default and option in help_text and option not in shown
        elif isinstance(default, (int, float)):
            assert default == float(shown[option]), option
        elif default is not None:
            assert default == shown[option], option
    assert len(shown.keys() & defaults.keys()) > 15


def test_operators_and_what_they_cost(noisy):
    X = noisy[0]
    for operators in ("add mul:3", ["add", "mul:3"], {"add": 1, "mul": 3}):
        model = small(operators=operators, generations=20).fit(X, X[:, 0] * X[:, 1])
        assert model.chosen_.loss < 1e-18 and model.chosen_.complexity == 5
        text = "".join(formula.expression for formula in model.front_)
        assert not any(function in text for function in ("sqrt", "exp", "log", "sin", "cos", "/"))


def test_weights(planets):
    X, y = planets
    wrong = y.copy()
    wrong[3] = 500
    weights = np.ones(len(y))
    weights[3] = 0
    model = SymbolicRegressor(seconds=30, device=DEVICE).fit(X, wrong, sample_weight=weights)
    assert model.status_ == "tol"
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-9)
    with pytest.raises(ValueError, match="weight"):
        small().fit(X, y, sample_weight=-weights)


def test_a_constant_target_is_a_constant(planets):
    model = small().fit(planets[0], np.full(12, 2.5))
    assert model.expression_ == "2.5" and model.status_ == "tol"


def test_missing_values_are_refused_by_name_and_number(noisy):
    pd = pytest.importorskip("pandas")
    X = noisy[0].copy()
    X[[7, 9], 1] = np.nan
    X[9, 0] = np.inf
    with pytest.raises(ValueError, match="NaN or inf in 2 of 60 rows, first in row 8, column 'x1'"):
        small().fit(X, noisy[1])
    with pytest.raises(ValueError, match="first in row 8, column 'speed'"):
        small().fit(pd.DataFrame(X, columns=["mass", "speed"]), noisy[1])


def test_a_loss_that_is_no_square_ends_the_search_at_zero(noisy):
    X = noisy[0]
    for loss in ("mae", "huber:0.1", "abs(f - y)^1.5"):
        model = SymbolicRegressor("add,mul", loss=loss, seconds=60, device=DEVICE).fit(X, X[:, 0] * X[:, 1])
        assert model.status_ == "tol" and model.seconds_ < 60, loss


def test_powers_of_negative_bases(noisy):
    X = noisy[0]
    model = SymbolicRegressor("add,pow", seconds=60, device=DEVICE).fit(X, X[:, 0] ** 2)
    assert model.status_ == "tol"
    np.testing.assert_allclose(model.predict(X), X[:, 0] ** 2, rtol=1e-9)


def test_no_formula_with_a_finite_loss(noisy):
    with pytest.raises(ValueError, match="no formula has a finite loss"):
        small(loss="log(f/y)^2").fit(noisy[0], np.sin(1e4 * noisy[1]))


def long_search(**options):
    """A search whose first generation takes minutes."""
    X = np.random.default_rng(0).uniform(1, 5, (200_000, 3))
    y = np.exp(-X[:, 0]) * np.sin(X[:, 1]) * X[:, 2]
    return SymbolicRegressor(rows=200_000, offspring=10_000, device="cpu", **options), X, y


def test_seconds_are_kept_inside_of_a_generation():
    model, X, y = long_search(seconds=1)
    begin = time.monotonic()
    model.fit(X, y)
    assert time.monotonic() - begin < 8  # 2.2 on a machine that does nothing else
    assert model.status_ == "seconds" and len(model.front_) > 1
    assert any("first generation" in notice for notice in model.notices_)


def test_ctrl_c_ends_a_generation():
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent("""
        import warnings, time
        import numpy as np, srjit
        X = np.random.default_rng(0).uniform(1, 5, (200_000, 3))
        model = srjit.SymbolicRegressor(rows=200_000, offspring=10_000, device="cpu", seconds=100)
        print("begun", flush=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, np.exp(-X[:, 0]) * np.sin(X[:, 1]) * X[:, 2])
        print(model.status_, len(model.front_) > 1)
        """)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    time.sleep(2)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted True\n" and process.returncode == 0
    assert time.monotonic() - begin < 8  # 1 on a machine that does nothing else


def test_progress(planets, capfd):
    small(verbose=1).fit(*planets)
    assert "complexity" in capfd.readouterr().err
    small().fit(*planets)
    assert capfd.readouterr() == ("", "")


def test_progress_in_a_notebook():
    """IPython shows one place, which changes; a kernel is known by its configuration."""
    pytest.importorskip("IPython")
    script = textwrap.dedent("""
        from unittest.mock import patch
        import IPython, numpy as np, srjit
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        X = np.random.default_rng(0).uniform(1, 5, (500, 2))
        model = srjit.SymbolicRegressor(device="cpu", seconds=2, verbose=1, links="identity")
        lines, shown = [], []
        with patch.object(shell.display_pub, "publish", lambda data, **more: shown.append((data, more))):
            for configuration in ({}, {"IPKernelApp": {}}):
                shell.config.update(configuration)
                model.fit(X, np.sin(X[:, 0] * X[:, 1]) * np.exp(X[:, 1] ** 0.7))
                lines.append(len(shown))
        pages = [data["text/html"] for data, _ in shown]
        assert lines[0] == 0 and lines[1] > 2, lines
        assert not shown[0][1].get("update") and all(more["update"] for _, more in shown[1:])
        assert len({more["transient"]["display_id"] for _, more in shown}) == 1
        assert "trees per second" in pages[-1] and pages[-1].count("<tr>") == 1 + len(model.front_)
        assert pages[-1].count("(chosen)") == 1 and model.expression_ in pages[-1]
        """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "complexity" in done.stderr  # of the first fit, in no notebook


def page_data(path):
    return json.loads(re.search('type="application/json">\n(.*)\n', path.read_text())[1])


def test_report(noisy, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = noisy
    frame, target = pd.DataFrame(X, columns=["</script>", "b"]), pd.Series(y, name="yield")
    model = pickle.loads(pickle.dumps(small(max_complexity=12).fit(frame, target)))
    path = tmp_path / "page.html"
    assert model.report(path) is None
    data = page_data(path)
    assert [one["formula"] for one in data["front"]] == [one.expression for one in model.front_]
    assert [one["chosen"] for one in data["front"]].count(True) == 1
    assert (data["target"], data["rows"], data["loss"]) == ("yield", 60, "nmse")
    assert [column["name"] for column in data["columns"]] in (["</script>", "b"], ["b", "</script>"])
    for one, formula in zip(data["front"], model.front_):
        np.testing.assert_allclose(one["residuals"], y - model.predict(frame, complexity=formula.complexity), rtol=1e-4, atol=1e-12)
        assert one["held_out"] is None and one["complexity"] == formula.complexity
    again = eval(data["command"].removesuffix(".fit(X, y)"), {"SymbolicRegressor": SymbolicRegressor})
    assert again.get_params() == model.get_params()
    # Other rows, and more rows than are kept.
    model.report(path, frame[:7], target[:7])
    assert page_data(path)["rows"] == 7
    many = np.random.default_rng(0).uniform(1, 2, (5001, 1))
    small().fit(many, many[:, 0]).report(str(path))
    data = page_data(path)
    assert data["rows"] == 2000 and data["target"] == "y" and "2000 of 5001 rows were kept" in data["facts"]
    assert data["y"][1] == pytest.approx(many[2, 0])
    with pytest.raises(srjit.InvalidError, match="both X and y"):
        model.report(path, frame)
    with pytest.raises(srjit.Error, match="none"):
        model.report(tmp_path / "none" / "page.html")
    with pytest.raises(ValueError, match="not fitted"):
        small().report(path)


def test_equations(noisy, monkeypatch):
    pd = pytest.importorskip("pandas")
    model = small(choose=lambda front: front[0]).fit(*noisy)
    table = model.equations_
    assert list(table) == ["complexity", "loss", "held_out", "evidence", "bic", "r2", "expression", "latex", "chosen"]
    assert list(table["expression"]) == [formula.expression for formula in model.front_]
    assert list(table.index[table["chosen"]]) == [0]
    assert table["complexity"].is_monotonic_increasing and isinstance(table, pd.DataFrame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        model.equations_
    with pytest.raises(ValueError, match="not fitted"):
        small().equations_


@pytest.mark.parametrize("options, message", [
    ({"operators": "add,foo"}, "unknown operator 'foo'"), ({"operators": []}, "no operator is named"), ({"operators": ""}, "no operator is named"), ({"operators": 3}, "operators"),
    ({"nesting": "sin"}, "OUTER:INNER:MOST"), ({"links": ["root"]}, "unknown link 'root'"),
    ({"max_complexity": 1}, "largest complexity"), ({"max_complexity": 2.5}, "max_complexity is of type float"),
    ({"loss": "r2"}, "cannot minimise r2"), ({"loss": "foo"}, "'foo' is none of"), ({"loss": 1}, "loss is of type int"),
    ({"held_out": 0.95}, "held_out: .0.95. is no number from 0 to 0.9"), ({"held_out": "some"}, "held_out"), ({"seconds": 0}, "seconds is 0"),
    ({"seconds": float("nan")}, "seconds is nan"), ({"generations": 0}, "generations is 0"), ({"islands": 1}, "islands is 1"),
    ({"precision": "f16"}, "precision: .f16. is none of"), ({"choose": "best"}, "choose is 'best'"), ({"choose": 0}, "choose is 0, expected 1 to"),
    ({"random_state": -1}, "random_state is -1, expected 0 to 18446744073709551615"),
    ({"random_state": 2**64}, "random_state is 18446744073709551616"), ({"random_state": 1.5}, "random_state is 1.5, expected a whole number, a RandomState, a Generator or None"),
    ({"random_state": True}, "random_state is of type bool"), ({"self_nesting": "no"}, "self_nesting is of type str"),
    ({"verbose": "no"}, "verbose is of type str"), ({"choose": 1.5}, "choose is of type float"),
    ({"operators": {3: 1}}, "a key of operators is of type int"), ({"links": [3]}, "a part of links is of type int"),
    ({"rows": 2**32}, "rows is 4294967296, expected 1 to 4294967295"), ({"random_state": None, "checkpoint": "file"}, "random_state is None"),
])
def test_bad_parameters_are_refused_before_the_search(planets, options, message):
    limits = {"generations": None, "seconds": 60} if "generations" not in options and "seconds" not in options else {}
    begin = time.monotonic()
    with pytest.raises((ValueError, TypeError), match=message):
        small(**{**limits, **options}).fit(*planets)
    assert time.monotonic() - begin < 30


def test_bad_devices_and_checkpoints(planets, tmp_path):
    with pytest.raises(srjit.Error, match="cuda:99"):
        small(device="cuda:99").fit(*planets)
    with pytest.raises(srjit.Error, match="cannot write"):
        small(checkpoint=tmp_path / "nowhere" / "search").fit(*planets)
    path = tmp_path / "search"
    path.write_text("{")
    with pytest.raises(ValueError, match="no checkpoint"):
        small(checkpoint=path).fit(*planets)
    assert path.read_text() == "{"


def test_a_search_goes_on_from_its_checkpoint(noisy, tmp_path):
    path = tmp_path / "search"
    whole = small(generations=30).fit(*noisy)
    first = small(generations=3, checkpoint=path).fit(*noisy)
    second = small(generations=30, checkpoint=str(path)).fit(*noisy)
    assert (first.n_iter_, second.n_iter_) == (3, 30)
    assert second.candidates_ == whole.candidates_ and second.seconds_ > first.seconds_
    with pytest.raises(ValueError, match=f"{path}: .*other data or options; give another file, or a folder"):
        small(checkpoint=path, max_complexity=20).fit(*noisy)
    with pytest.raises(ValueError, match="other data or options"):
        small(checkpoint=path).fit(noisy[0], noisy[1] + 1)


def test_a_warm_start_goes_on_where_the_last_fit_ended(noisy):
    whole = small(generations=30).fit(*noisy)
    model = small(generations=3, warm_start=True).fit(*noisy)
    model = pickle.loads(pickle.dumps(model)).set_params(generations=27, threads=1).fit(*noisy)
    assert model.n_iter_ == 30 and model.candidates_ == whole.candidates_ and repr(model.front_) == repr(whole.front_)
    seconds = model.seconds_
    model.set_params(generations=None, seconds=0.5, tol=0).fit(*noisy)
    assert model.status_ == "seconds" and 0.4 < model.seconds_ - seconds < 5
    for other, X in [({"max_complexity": 20}, noisy[0]), ({}, noisy[0] + 1)]:
        again = small(generations=3, warm_start=True).fit(*noisy).set_params(**other)
        with pytest.warns(RuntimeWarning, match="warm_start: the last fit had other data or parameters"):
            again.fit(X, noisy[1])
        assert again.n_iter_ == 3 and repr(again.front_) == repr(small(generations=3, **other).fit(X, noisy[1]).front_)
    assert clone(model).set_params(generations=2, seconds=None).fit(*noisy).n_iter_ == 2
    assert small().fit(*noisy).set_params(warm_start=True).fit(*noisy).n_iter_ == 2  # the first kept no state
    with pytest.raises(ValueError, match="random_state is None"):
        small(warm_start=True, random_state=None).fit(*noisy)


def test_a_callback_sees_the_front_and_ends_the_search(noisy):
    seen = []

    def tell(progress):
        seen.append(progress)
        return np.bool_(len(seen) == 3)

    begin = time.monotonic()
    model = small(generations=None, seconds=60, tol=0, callback=tell).fit(*noisy)
    assert model.status_ == "stopped" and len(seen) == 3 and time.monotonic() - begin < 30
    assert [progress.generations for progress in seen] == sorted(progress.generations for progress in seen)
    last = seen[-1]
    assert isinstance(last, srjit.Progress) and last.candidates <= model.candidates_ and last.seconds <= model.seconds_
    assert last.chosen in last.front and all(isinstance(formula, srjit.Formula) for formula in last.front)
    assert small(callback=lambda progress: None).fit(*noisy).status_ == "generations"

    def fail(progress):
        raise LookupError("enough of this")

    with pytest.raises(LookupError, match="enough of this"):
        small(generations=None, seconds=60, callback=fail).fit(*noisy)
    with pytest.raises(TypeError, match="callback is of type int, expected a function"):
        small(callback=3).fit(*noisy)


def test_copies_of_an_estimator_have_checkpoints_in_a_folder(noisy, tmp_path):
    from sklearn.model_selection import cross_val_score

    X, y = noisy
    # Each fold searches other rows, so the file of the first would be refused by the others, whose scores would be NaN.
    with pytest.raises(ValueError, match="'search.json' is a file, which one search writes, .*: give an existing folder"):
        cross_val_score(small(checkpoint="search.json"), X, y, cv=3)
    folder = tmp_path / "searches"
    folder.mkdir()
    scores = cross_val_score(small(checkpoint=folder), X, y, cv=3)
    assert np.isfinite(scores).all() and len(os.listdir(folder)) == 3
    np.testing.assert_array_equal(cross_val_score(small(checkpoint=str(folder)), X, y, cv=3), scores)
    assert len(os.listdir(folder)) == 3
    grown = small(checkpoint=folder, generations=4).fit(X, y)
    assert grown.n_iter_ == 4 and len(os.listdir(folder)) == 4
    assert small(checkpoint=folder, generations=6).fit(X, y).candidates_ > grown.candidates_
    assert len(os.listdir(folder)) == 4


@pytest.mark.parametrize("checkpoint, message", [("/dev/full", "not a device"), ("", "cannot write ''")])
def test_checkpoints_that_cannot_be(noisy, checkpoint, message):
    with pytest.raises(srjit.Error, match=message):
        small(checkpoint=checkpoint).fit(*noisy)


def test_a_checkpoint_that_is_no_json_is_refused_with_its_place(noisy, tmp_path):
    path = tmp_path / "search"
    path.write_text('{"format"')
    with pytest.raises(ValueError, match=f"{path}:1:10: .*: malformed JSON: expected ':' before the end of the text"):
        small(checkpoint=path).fit(*noisy)


def test_booleans_are_numbers(noisy):
    X = noisy[0] > 0
    both = X[:, 0] & X[:, 1]
    model = small(generations=20).fit(X, both)
    np.testing.assert_allclose(model.predict(X), both, atol=1e-9)
    assert model.score(X, both) == pytest.approx(1)


def test_texts_are_refused_with_column_and_row(noisy):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"size": noisy[0][:, 0], "colour": [*noisy[0][:50, 1], "red", *noisy[0][51:, 1]]})
    message = "row 51 of column 'colour' of X is 'red', which is no number: encode such values as numbers"
    with pytest.raises(ValueError, match=message):
        small().fit(frame, noisy[1])
    with pytest.raises(ValueError, match="row 1, column 2 of X is 'a'"):
        small().fit(np.array([[1, "a"], [2, "b"]], dtype=object), [1.0, 2.0])
    model = small().fit(frame.assign(colour=1.0), noisy[1])
    with pytest.raises(ValueError, match=message):
        model.predict(frame)
    with pytest.raises((TypeError, ValueError), match="row 1 of y is 'a'"):
        small().fit(noisy[0], np.array(["a"] * 60))
    with pytest.raises(ValueError, match="row 2 of y is 'a'"):
        small().fit(noisy[0], np.array([1, "a"] * 30, dtype=object))
    with pytest.raises(TypeError, match="row 1 of column 'colour' of X is 1970-01-01"):
        small().fit(frame.assign(colour=pd.Timestamp(0)), noisy[1])


def test_names_may_be_any_kind_of_text(planets):
    pd = pytest.importorskip("pandas")

    class Kind(str, enum.Enum):
        AXIS = "axis"
        LOSS = "nmse"
        ADD = "add"

    names = pd.Index([Kind.AXIS, np.str_("mass of the sun")], dtype=object)
    frame = pd.DataFrame(planets[0], columns=names)
    model = small(generations=4, loss=Kind.LOSS, operators=np.array(["add", "mul"]), choose=np.str_("loss")).fit(frame, planets[1])
    assert model.feature_names_in_.tolist() == ["axis", "mass of the sun"] and "axis" in model.expression_
    assert model.predict(frame).shape == (12,)
    small(operators={Kind.ADD: 1, np.str_("mul"): 2}).fit(frame, planets[1])


def test_a_complexity_below_all_formulas_loses_no_result(noisy):
    with pytest.warns(RuntimeWarning, match="choose is 2, but the simplest formula has a complexity of 5"):
        model = small(constant_complexity=5, variable_complexity=5, max_complexity=40, choose=2).fit(*noisy)
    assert model.chosen_ == model.front_[0]


def test_symbols_are_plain_unless_real_ones_are_asked_for(planets):
    sympy = pytest.importorskip("sympy")
    model = SymbolicRegressor(seconds=30, device=DEVICE).fit(*planets)
    x0 = sympy.Symbol("x0")
    assert float(sympy.diff(model.sympy(), x0).subs(x0, 4)) == pytest.approx(3)
    assert model.sympy(real=True).free_symbols == {sympy.Symbol("x0", real=True)}
    assert model.latex() == srjit.latex(model.expression_)


def start(code, tmp_path):
    begin = textwrap.dedent(f"""
        import warnings
        import numpy as np, srjit
        random = np.random.default_rng(2)
        X = random.uniform(-2, 2, (60, 2))
        y = np.exp(X[:, 0]) - X[:, 1] ** 2 + 0.1 * random.normal(size=60)
        model = srjit.SymbolicRegressor(seconds=100, islands=2, population=30, offspring=30, device={DEVICE!r},
                                        checkpoint={str(tmp_path / "search")!r}, verbose=1)
        """)
    return subprocess.Popen([sys.executable, "-c", begin + textwrap.dedent(code)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def wait_for(is_there, process):
    end = time.monotonic() + 60
    while not is_there():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)


def test_a_killed_search_loses_nothing_that_was_written(noisy, tmp_path):
    path = tmp_path / "search"
    process = start("model.fit(X, y)", tmp_path)
    wait_for(path.exists, process)
    process.kill()
    process.communicate()
    assert os.listdir(tmp_path) == ["search"]
    written = json.loads(path.read_text())
    generations = written["generations"]
    assert generations > 0
    model = small(generations=generations + 2, seconds=100, checkpoint=path).fit(*noisy)
    assert model.n_iter_ == generations + 2 and model.candidates_ > written["candidates"]
    assert model.seconds_ > written["seconds"] and model.status_ in ("generations", "tol")


def test_ctrl_c_gives_the_formulas_found_so_far(tmp_path):
    process = start("""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model.fit(X, y)
        print(model.status_, len(model.front_) > 0, [str(warning.message) for warning in warned], model.predict(X).shape)
        """, tmp_path)
    line = process.stderr.readline()
    assert "complexity" in line
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert time.monotonic() - begin < 30
    assert out.startswith("interrupted True ['the search was interrupted") and out.endswith("(60,)\n"), out
    assert process.returncode == 0 and (tmp_path / "search").exists()


def test_exceptions_of_other_signals_end_the_search(tmp_path):
    process = start("""
        import signal
        def ring(*_):
            raise TimeoutError("time is over")
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 1)
        try:
            model.fit(X, y)
        except TimeoutError as problem:
            print(problem)
        """, tmp_path)
    out, errors = process.communicate(timeout=60)
    assert out == "time is over\n", errors


def test_a_checkpoint_that_cannot_be_written_any_more_is_a_warning(noisy, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    # The first progress comes before the first writing.
    monkeypatch.setattr(srjit._search.ProgressLines, "__call__", lambda *_: folder.exists() and folder.rmdir())
    with pytest.warns(RuntimeWarning, match="not written: cannot write"):
        model = small(checkpoint=folder / "search", verbose=1).fit(*noisy)
    assert model.n_iter_ == 2


def test_the_regressor_is_found_where_others_look_for_it():
    assert srjit.SymbolicRegressor is srjit.sklearn.SymbolicRegressor and "SymbolicRegressor" in dir(srjit)
