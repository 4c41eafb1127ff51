"""Engines, data sets, programs and evaluations, compared with NumPy."""

import numpy as np
import pytest
import srjit

from conftest import DEVICE

TEXTS = ["x0*p0 + sin(x1)*p1", "x2^2", "p0*exp(-x0)", "x0*x1"]


@pytest.fixture(scope="module")
def program(engine):
    return engine.compile(TEXTS)


@pytest.fixture(scope="module")
def parameters():
    return np.array([1.5, -0.5, 2.0])


def expected(X, p):
    return np.array([X[:, 0] * p[0] + np.sin(X[:, 1]) * p[1], X[:, 2] ** 2, p[2] * np.exp(-X[:, 0]), X[:, 0] * X[:, 1]])


def test_predictions_are_those_of_numpy(engine, program, data, table, parameters):
    values = engine.predict(program, data, parameters)
    assert values.shape == (4, 1000) and values.dtype == np.float64
    np.testing.assert_allclose(values, expected(table[0], parameters), rtol=1e-14)


def test_losses_are_those_of_numpy(engine, program, data, table, parameters):
    X, y = table
    errors = expected(X, parameters) - y
    for loss, value in {"mse": np.mean(errors**2, 1), "mae": np.mean(abs(errors), 1), "abs(f-y)^3": np.mean(abs(errors)**3, 1)}.items():
        losses = engine.loss(program, data, parameters, loss=loss)
        np.testing.assert_allclose(losses.values, value, rtol=1e-12)
        assert losses.valid_rows.tolist() == [1000] * 4
        assert losses.failures == []


def test_several_vectors_give_one_more_dimension(engine, program, data, parameters):
    vectors = np.array([parameters, parameters * 2])
    losses = engine.loss(program, data, vectors)
    assert losses.values.shape == losses.valid_rows.shape == (2, 4)
    for vector, values in zip(vectors, losses.values):
        np.testing.assert_array_equal(engine.loss(program, data, vector).values, values)
    assert engine.predict(program, data, vectors).shape == (2, 4, 1000)
    assert engine.gradient(program, data, vectors).derivatives.shape == (2, 3)
    assert engine.jacobian(program, data, vectors, by="variables").shape == (2, 4, 3, 1000)


def test_parameters_may_be_given_by_expression(engine, program, data, parameters):
    by_expression = [[1.5, -0.5], [], [2.0], []]
    np.testing.assert_array_equal(engine.loss(program, data, by_expression).values,
                                  engine.loss(program, data, parameters).values)
    assert [part.tolist() for part in program.split(parameters)] == by_expression
    assert program.parameter_offsets.tolist() == [0, 2, 2, 3, 3] and program.parameter_count == 3


def test_several_vectors_as_lists_are_not_taken_for_parameters_by_expression(engine, data):
    program = engine.compile(["x0*p0", "x0*p0"])
    by_expression = engine.loss(program, data, [[1.0], [2.0]])
    assert by_expression.values.shape == (2,)
    assert engine.loss(program, data, [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]).values.shape == (3, 2)


def test_gradients_are_finite_differences(engine, program, data, parameters):
    gradient = engine.gradient(program, data, parameters)
    np.testing.assert_array_equal(gradient.values, engine.loss(program, data, parameters).values)
    for p in range(3):
        step = np.zeros(3)
        step[p] = 1e-6
        change = engine.loss(program, data, parameters + step).values - engine.loss(program, data, parameters - step).values
        np.testing.assert_allclose(gradient.derivatives[p], change.sum() / 2e-6, rtol=1e-6)
    by_variables = engine.gradient(program, data, parameters, by="variables")
    assert by_variables.derivatives.shape == (4, 3)


def test_jacobian_by_parameters_and_variables(engine, program, data, table, parameters):
    X = table[0]
    jacobian = engine.jacobian(program, data, parameters)
    np.testing.assert_allclose(jacobian, [X[:, 0], np.sin(X[:, 1]), np.exp(-X[:, 0])], rtol=1e-14)
    by_variables = engine.jacobian(program, data, parameters, by="variables")
    np.testing.assert_allclose(by_variables[3], [X[:, 1], X[:, 0], np.zeros(1000)], rtol=1e-14)
    with pytest.raises(ValueError, match="by is 'rows'"):
        engine.jacobian(program, data, parameters, by="rows")


def test_a_deferred_program_gives_the_same(engine, data):
    texts = ["p0*x0^p1", "p0 + p1*x0", "x0"]
    at_once, deferred = engine.compile(texts), engine.compile(texts, deferred=True)
    assert deferred.status()["nodes_after"] == 0 < at_once.status()["nodes_after"]
    np.testing.assert_array_equal(engine.fit(deferred, data).parameters, engine.fit(at_once, data).parameters)
    np.testing.assert_array_equal(engine.loss(deferred, data, np.ones(4)).values,
                                  engine.loss(at_once, data, np.ones(4)).values)
    np.testing.assert_array_equal(engine.predict(deferred, data, np.ones(4)), engine.predict(at_once, data, np.ones(4)))


def test_expressions_are_evaluated_as_they_are_written(table):
    X, _ = table
    engine = srjit.Engine(device="cpu", precision="f64", math="fast")
    data = engine.upload(X, np.ones(len(X)))
    written = engine.compile("x0*x1 + x0*x1", simplify=False)
    np.testing.assert_array_equal(engine.predict(written, data)[0], X[:, 0] * X[:, 1] + X[:, 0] * X[:, 1])
    assert written.status()["nodes_after"] == 7 > engine.compile("x0*x1 + x0*x1").status()["nodes_after"]
    add, mul = srjit.ops["add"].code, srjit.ops["mul"].code
    codes = np.array([srjit.VARIABLE, srjit.VARIABLE - 1, mul, srjit.VARIABLE, srjit.VARIABLE - 1, mul, add], dtype=np.int32)
    arrays = codes, np.zeros(7), np.array([0, 7])
    for losses in engine.loss(arrays, data, simplify=False), engine.submit_loss(arrays, data, simplify=False).result():
        assert losses.values == engine.loss(written, data).values
    with pytest.raises(ValueError, match="simplify is False, but there are passes"):
        engine.compile("x0", passes="simplify", simplify=False)


def test_fit_finds_parameters(engine, data, table):
    program = engine.compile(["p0*x0^2 + p1*sin(x1)*x2 + p2", "p0 + exp(x0*p1)"])
    fits = engine.fit(program, data, iterations=100)
    np.testing.assert_allclose(program.split(fits.parameters)[0], [1, 1, 0], atol=1e-7)
    assert fits.status[0] == "converged" and fits.losses[0] < 1e-20
    np.testing.assert_array_equal(engine.loss(program, data, fits.parameters).values, fits.losses)
    several = engine.fit(program, data, starts=np.array([np.full(5, np.nan), np.ones(5)]), iterations=100)
    assert several.start.tolist() == [1, 1]
    one = engine.fit(program, data, iterations=1)
    assert one.status[1] == "iterations" and one.iterations[1] == 1


def test_bounds_of_fits(engine, data):
    program = engine.compile(["p0*x0^2 + p1*sin(x1)*x2 + p2", "p0 + p1*x0"])
    free = engine.fit(program, data, iterations=100)
    for bounds in ({"p1": (None, 0.5), "p2": (-np.inf, 0.1)}, [(None, None), (-np.inf, 0.5), (None, 0.1)]):
        fits = engine.fit(program, data, iterations=100, bounds=bounds)
        assert fits.parameters[1] == 0.5 and fits.parameters[2] == 0.1 and fits.losses[0] > free.losses[0]
        assert np.isnan(fits.standard_errors[:3]).tolist() == [False, True, True]
    np.testing.assert_array_equal(engine.submit_fit(program, data, iterations=100, bounds=bounds).result().parameters, fits.parameters)
    for bad, words in (({"p3": (0, 1)}, "'p3'"), ({"p0": 1}, "expected a pair"), ([(1, 0)], "of p0"), ({"p0": (np.nan, 1)}, "of p0")):
        with pytest.raises(ValueError, match=words):
            engine.fit(program, data, bounds=bad)


def test_fits_without_parameters_say_so(engine, data):
    program = engine.compile(["x0 + x1", "p0*x0"])
    assert [engine.fit(program, data, loss=loss).status[0] for loss in ("mse", "scaled-mse")] == ["no parameters"] * 2


def test_starts_are_drawn_around_given_ones(engine, data):
    program = engine.compile(["sin(x0*p0)", "p0 + p1*x1"])
    starts = program.draw_starts(50, seed=3, around=[2, 0, -5])
    assert starts.shape == (50, 3) and starts[0].tolist() == [2, 0, -5]
    share = np.abs(starts[1:]) / [2, 1, 5]
    assert share.min() >= 1 / 16 and share.max() < 16 and len(np.unique(starts[1:])) == 147
    np.testing.assert_array_equal(program.draw_starts(50, 3, [2, 0, -5]), starts)
    assert (program.draw_starts(50, 4, [2, 0, -5])[1:] != starts[1:]).all()
    assert program.draw_starts(1).tolist() == [[1, 1, 1]]
    assert engine.fit(program, data, starts).start.shape == (2,)
    assert (starts[1:, 2] / 5 != starts[1:, 0] / 2).all()  # each expression has numbers of its own
    assert engine.compile(["x0"]).draw_starts(2**32 - 1).shape == (2**32 - 1, 0)
    with pytest.raises(ValueError, match="count is 0, expected at least 1"):
        program.draw_starts(0)
    with pytest.raises(ValueError, match="around has several vectors"):
        program.draw_starts(2, around=np.ones((2, 3)))


def test_a_bad_expression_fails_alone(engine, data):
    program = engine.compile(["x0", "x0 +", "x9"])
    assert [failure.expression for failure in program.failures] == [1]
    losses = engine.loss(program, data)
    assert [failure.expression for failure in losses.failures] == [1, 2]
    assert "before the end" in str(losses.failures[0].error)
    assert losses.failures[0].error.code == "syntax" and losses.failures[1].error.code == "invalid"
    assert np.isfinite(losses.values).tolist() == [True, False, False]
    with pytest.raises(srjit.Error, match="expression 1: expected an operand"):
        losses.check()


def test_a_single_bad_expression_raises(engine):
    with pytest.raises(srjit.InvalidError) as problem:
        engine.compile("x0 + * 2")
    assert problem.value.where == srjit.Place(1, 6, 1)
    assert isinstance(problem.value, (srjit.Error, ValueError)) and problem.value.code == "syntax"


def test_token_arrays_are_compiled_and_evaluated(engine, data):
    texts = ["x0*2 + x1", "sin(x1)", "x0/x2 - 0.5"]
    population = srjit.parse(texts)
    arrays = (population.codes, population.constants, population.offsets)
    expected = engine.loss(engine.compile(texts), data).values
    np.testing.assert_array_equal(engine.loss(engine.compile(arrays), data).values, expected)
    np.testing.assert_array_equal(engine.loss(arrays, data).values, expected)
    np.testing.assert_array_equal(engine.submit_loss(arrays, data).result().values, expected)
    with pytest.raises(ValueError):
        engine.compile((population.codes, population.constants, population.offsets[1:]))


def test_prefix_token_arrays(engine, data):
    add, sin = srjit.ops["add"].code, srjit.ops["sin"].code
    prefix = ([add, srjit.VARIABLE, sin, srjit.VARIABLE - 1], [0, 0, 0, 0], [0, 4])
    expected = engine.loss(engine.compile("x0 + sin(x1)"), data).values
    np.testing.assert_array_equal(engine.loss(engine.compile(prefix, prefix=True), data).values, expected)
    np.testing.assert_array_equal(engine.loss(prefix, data, prefix=True).values, expected)
    assert srjit.Population.from_arrays(*prefix, prefix=True)[0] == "x0 + sin(x1)"


def test_submitted_work_gives_the_same(engine, program, data, parameters):
    pending = [engine.submit_loss(program, data, parameters), engine.submit_gradient(program, data, parameters),
               engine.submit_predict(program, data, parameters), engine.submit_jacobian(program, data, parameters),
               engine.submit_fit(program, data, parameters)]
    losses, gradients, values, jacobian, fits = [work.result() for work in pending]
    np.testing.assert_array_equal(losses.values, engine.loss(program, data, parameters).values)
    np.testing.assert_array_equal(gradients.derivatives, engine.gradient(program, data, parameters).derivatives)
    np.testing.assert_array_equal(values, engine.predict(program, data, parameters))
    np.testing.assert_array_equal(jacobian, engine.jacobian(program, data, parameters))
    np.testing.assert_array_equal(fits.parameters, engine.fit(program, data, parameters).parameters)
    assert all(work.ready() for work in pending) and pending[0].result() is losses


def test_a_stopped_fit_keeps_the_best_so_far(engine, data):
    program = engine.compile(["sin(x0*p0) + p1*exp(p2*x1)"] * 500)
    pending = engine.submit_fit(program, data, iterations=100000, loss_tolerance=0, step_tolerance=0)
    pending.stop()
    fits = pending.result()
    assert "failed: cancelled" in fits.status
    assert fits.iterations.max() < 100000


def test_out_is_written_in_place(engine, program, data, parameters):
    out = np.full((4, 1000), np.nan)
    assert engine.predict(program, data, parameters, out=out) is out
    np.testing.assert_array_equal(out, engine.predict(program, data, parameters))
    for bad, kind in ((np.empty((4, 999)), ValueError), (np.empty((4, 1000), np.float32), TypeError),
                      (np.empty((1000, 4)).T, ValueError), ([0.0], TypeError)):
        with pytest.raises(kind):
            engine.predict(program, data, parameters, out=bad)
    read_only = np.empty((4, 1000))
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="cannot be written"):
        engine.predict(program, data, parameters, out=read_only)


def test_rows_that_are_not_finite(engine):
    data = engine.upload([[1.0], [0.0], [4.0]], [1.0, 5.0, 0.25])
    program = engine.compile("1/x0")
    assert np.isinf(engine.loss(program, data).values[0]) and engine.loss(program, data).valid_rows[0] == -1
    skipped = engine.loss(program, data, nan="skip")
    assert skipped.values[0] == 0 and skipped.valid_rows[0] == 2
    assert engine.loss(program, data, nan="reject").values[0] == np.inf


def test_parts_of_data(engine, table):
    X, y = table
    data = engine.upload(X, y)
    program = engine.compile("x0 + x1")
    part = data.rows(100, 200)
    assert part.shape == (200, 3)
    uploaded = engine.upload(X[100:300], y[100:300])
    np.testing.assert_array_equal(engine.loss(program, part).values, engine.loss(program, uploaded).values)
    assert data.sample(3, seed=1).row_groups == 3 and data.row_groups == 8
    weights = np.linspace(1, 2, 1000)
    np.testing.assert_array_equal(engine.loss(program, data.with_weights(weights)).values,
                                  engine.loss(program, engine.upload(X, y, weights)).values)
    with pytest.raises(ValueError):
        data.rows(990, 11)


def test_failures_of_several_vectors_are_those_of_the_expressions(engine, data):
    program = engine.compile(["x0 +", "p0*x0", "x9"])
    failures = engine.loss(program, data, [[1.0], [2.0]]).failures
    assert [failure.expression for failure in failures] == [0, 2]
    assert "before the end" in str(failures[0].error) and "x9" in str(failures[1].error)


def test_predictions_of_nothing_but_failures_raise(engine, data):
    for call in (engine.predict, engine.jacobian):
        with pytest.raises(srjit.Error, match="x9"):
            call(engine.compile("x9*p0"), data, [1.0])
    assert np.isnan(engine.predict(engine.compile(["x9", "x0"]), data)[0]).all()


def test_vectors_of_programs_without_parameters(engine, data):
    program = engine.compile(["x0", "x1"])
    assert engine.loss(program, data, np.empty((3, 0))).values.shape == (2,)


def test_token_arrays_with_several_vectors(engine, data):
    population = srjit.parse(["p0*x0"])
    arrays = population.codes, population.constants, population.offsets
    assert engine.loss(arrays, data, [[1.0], [2.0]]).values.shape == (2, 1)
    assert engine.submit_loss(arrays, data, [[1.0], [2.0]]).result().values.shape == (2, 1)


def test_names_of_program_and_data_must_agree(engine):
    data = engine.upload(np.ones((3, 2)), np.ones(3), names=["a", "b"])
    assert engine.loss(engine.compile("a", names=["a", "b"]), data).values[0] == 0
    with pytest.raises(ValueError, match="columns b, a, but the data have a, b"):
        engine.loss(engine.compile("a", names=["b", "a"]), data)
    with pytest.raises(ValueError, match="names of its own"):
        engine.compile(srjit.parse("x0"), names=["a"])


def test_arguments_are_checked(engine, program, data, parameters):
    for call, kind, message in (
            (lambda: srjit.Engine("cpu", precision="f16"), ValueError, "precision is 'f16', expected one of 'f32', 'f64'"),
            (lambda: srjit.Engine("gpu"), ValueError, "gpu"),
            (lambda: engine.loss(program, data), ValueError, "has 3 parameters, but none were given"),
            (lambda: engine.loss(program, data, [1.0]), ValueError, "1 parameters were given, but the program has 3"),
            (lambda: engine.loss(program, data, parameters, loss="mes"), ValueError, "mes"),
            (lambda: engine.loss(program, data, parameters, nan="drop"), ValueError, "nan is 'drop'"),
            (lambda: engine.loss(program, np.ones((3, 3)), parameters), TypeError, "call upload"),
            (lambda: engine.loss("x0", data), TypeError, "call compile"),
            (lambda: engine.loss(program, engine.upload([[1.0, 1.0, 1.0]]), parameters), ValueError, "target"),
            (lambda: engine.compile([1, 2]), TypeError, "neither texts"),
            (lambda: engine.compile("x0", passes="fma, fodl"), ValueError, "fodl"),
            (lambda: engine.fit(program, data, loss="sum"), ValueError, "cannot be fitted"),
            (lambda: engine.fit(program, data, iterations=-1), ValueError, "iterations is -1"),
            (lambda: engine.fit(program, data, iterations=5.0), TypeError, "iterations is of type float"),
            (lambda: srjit.Engine("cpu", threads=-1), ValueError, "threads is -1"),
            (lambda: engine.fit(program, data, iterations=0), ValueError, "0 iterations")):
        with pytest.raises(kind, match=message):
            call()


def test_an_engine_says_what_it_is(engine):
    assert engine.device == DEVICE and engine.threads >= 1
    assert "f64" in repr(engine)
    assert set(engine.cache_stats()) >= {"memory_hits", "misses", "disk_fault"}
    status = engine.compile("x0 + 1").status()
    assert status["tier"] in ("interpret", "direct", "compile") and status["error"] is None


def test_tiers_have_equal_bits(table, program, parameters):
    bits = []
    for tier in ("interpret", "compile"):
        engine = srjit.Engine(DEVICE, precision="f32", tier=tier)
        bits.append(engine.loss(engine.compile(TEXTS), engine.upload(*table), parameters).values)
    np.testing.assert_array_equal(*bits)
