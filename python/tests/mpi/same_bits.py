"""Run by test_mpi.py with mpirun: what ranks compute has the bits, shapes and failures of one engine."""

import importlib.util
import sys

import numpy as np
import srjit
import srjit.mpi

TEXTS = ["x0*p0 + sin(x1)*p1", "x2^2", "p0*exp(-x0)", "x0 +", "x0*x1", "p0 + p1*x0 + p2*x1", "log(x0 - 5)", "p0*x2^p1"] * 3
ROWS = 1000


def table():
    random = np.random.default_rng(1)
    X = random.uniform(0.5, 2.0, (ROWS, 3))
    return X, X[:, 0] ** 2 + np.sin(X[:, 1]) * X[:, 2]


def fields(result):
    if isinstance(result, np.ndarray):
        return {"values": result}
    made = {name: value for name, value in vars(result).items() if not name.startswith("_") and name != "failures"}
    made["failures"] = [(failure.expression, str(failure.error), failure.error.where) for failure in result.failures]
    return made


def compare(ranks, one, what):
    mine, expected = fields(ranks), fields(one)
    assert list(mine) == list(expected), what
    for name in expected:
        if isinstance(expected[name], np.ndarray):
            assert mine[name].dtype == expected[name].dtype and mine[name].shape == expected[name].shape, (what, name)
            assert mine[name].tobytes() == expected[name].tobytes(), (what, name)
        else:
            assert mine[name] == expected[name], (what, name, mine[name], expected[name])


def compare_programs(engine, data, one, its_data, expressions):
    program, single = engine.compile(expressions), one.compile(expressions)
    assert len(program) == len(single)
    np.testing.assert_array_equal(program.parameter_offsets, single.parameter_offsets)
    assert [str(failure) for failure in program.failures] == [str(failure) for failure in single.failures]
    random = np.random.default_rng(2)
    for shape in (single.parameter_count,), (3, single.parameter_count):
        parameters = random.uniform(0.5, 1.5, shape)
        for call, options in (
            ("loss", {}), ("loss", {"loss": "abs(f - y)^1.5", "nan": "skip"}), ("predict", {}), ("gradient", {}),
            ("gradient", {"by": "variables"}), ("jacobian", {}), ("jacobian", {"by": "variables"}),
            ("fit", {"iterations": 10}),
        ):
            what = call, options, shape
            compare(getattr(engine, call)(program, data, parameters, **options),
                    getattr(one, call)(single, its_data, parameters, **options), what)
        if len(single):
            out = np.empty((*shape[:-1], len(single), its_data.shape[0]))
            assert engine.predict(program, data, parameters, out=out) is out
            compare(out, one.predict(single, its_data, parameters), "out")
    compare(engine.fit(program, data), one.fit(single, its_data), "fit without starts")
    return program


def search(engine):
    X, y = table()
    one = srjit.Engine("cpu", "f64")
    its_data = one.upload(X, y)
    for array in X, y:
        array.flags.writeable = False
    data = engine.upload(X, y)
    assert engine.devices == ["cpu"] * engine.size and data.shape == its_data.shape
    bounds = compare_programs(engine, data, one, its_data, TEXTS).bounds
    assert len(bounds) == engine.size + 1 and bounds[0] == 0 and bounds[-1] == len(TEXTS)
    compare_programs(engine, data, one, its_data, TEXTS[:2])  # fewer expressions than ranks
    compare_programs(engine, data, one, its_data, ["p0*x0", *["x1"] * 7])  # ranks without a parameter

    # Token arrays, evaluated once, in both orders; also with parameters, with code that is none, and without an expression.
    population = srjit.parse(TEXTS)
    arrays = population.codes, population.constants, population.offsets
    parameters = np.full(one.compile(arrays).parameter_count, 1.25)
    compare(engine.loss(arrays, data, parameters), one.loss(arrays, its_data, parameters), "arrays with parameters")
    mul = srjit.ops["mul"].code
    prefix = np.array([mul, srjit.VARIABLE, srjit.CONSTANT] * 20, np.int32), np.full(60, 2.5), np.arange(21) * 3
    compare(engine.loss(prefix, data, prefix=True), one.loss(prefix, its_data, prefix=True), "prefix")
    compare(engine.loss(prefix, data, prefix=True, simplify=False),
            one.loss(prefix, its_data, prefix=True, simplify=False), "as written")
    compare(engine.loss(arrays, data, parameters, simplify=False),
            one.loss(arrays, its_data, parameters, simplify=False), "as written, with parameters")
    prefix[0][31] = 12345
    compare(engine.loss(prefix, data, prefix=True), one.loss(prefix, its_data, prefix=True), "a code that is none")
    none = np.empty(0, np.int32), np.empty(0), np.zeros(1, np.int64)
    compare(engine.loss(none, data), one.loss(none, its_data), "no expression")

    # Several calls in flight, taken in another order, one of them not at all; arrays are copied.
    program, single = engine.compile(TEXTS), one.compile(TEXTS)
    numbers = [np.full(program.parameter_count, value) for value in (0.5, 1.0, 1.5, 2.0)]
    engine.prepare(program, data)
    engine.prepare(program, data, "mse", nan="skip")
    pending = [engine.submit_loss(program, data, vector) for vector in numbers]
    expected = [one.loss(single, its_data, vector) for vector in numbers]
    for vector in numbers:
        vector[:] = np.nan
    del pending[1]
    for call, result in ((2, 3), (0, 0), (1, 2)):
        compare(pending[call].result(), expected[result], "in flight")
        assert pending[call].result() is pending[call].result() and pending[call].ready()

    # Other data sets of these rows; data that each rank makes itself; single-precision columns; weights; names.
    for ours, theirs in ((data.rows(100, 500), its_data.rows(100, 500)), (data.sample(3, 7), its_data.sample(3, 7)),
                         (data.with_weights(X[:, 0]), its_data.with_weights(X[:, 0])), (engine.upload_from(table), its_data),
                         (engine.upload(X.astype(np.float32), y, X[:, 1]), one.upload(X.astype(np.float32), y, X[:, 1]))):
        vector = np.ones(program.parameter_count)
        compare(engine.loss(program, ours, vector), one.loss(single, theirs, vector), "other data")
    single_gradient = one.gradient(one.compile(["p0"] * 5), one.upload(X[:, :0], y), np.ones(5), by="variables")
    compare(engine.gradient(engine.compile(["p0"] * 5), engine.upload(X[:, :0], y), np.ones(5), by="variables"),
            single_gradient, "no columns")
    named = engine.upload(X, y, names=["a", "b", "c"])
    assert engine.loss(engine.compile("a*b", names=named), named).values[0] == one.loss(one.compile("x0*x1"), its_data).values[0]


def adapter(engine):
    """DEAP, which knows nothing of ranks, with this engine."""
    import operator
    import random

    from deap import gp

    import srjit.deap

    primitives = gp.PrimitiveSet("MAIN", 3)
    for function in operator.add, operator.mul:
        primitives.addPrimitive(function, 2)
    random.seed(1)
    individuals = [gp.PrimitiveTree(gp.genHalfAndHalf(primitives, 1, 4)) for _ in range(50)]
    losses = [srjit.deap.Evaluator(primitives, *table(), engine=engine_of).losses(individuals)
              for engine_of in (engine, srjit.Engine("cpu", "f64"))]
    assert losses[0].tobytes() == losses[1].tobytes()


srjit._ranks._CHUNK = 1000  # data in several pieces
with srjit.mpi.Engine("cpu", "f64", root=int(sys.argv[1])) as engine, srjit.mpi.Engine(
        "cpu", "f32", root=int(sys.argv[1])) as other:
    if engine.is_root:
        search(engine)
        # Two engines of the same ranks, in turn; a program of one is refused by the other.
        its_data, data = (of.upload(*table()) for of in (other, engine))
        program, its_program = (of.compile(["x0", "x1*x2"] * 4) for of in (engine, other))
        for _ in range(3):
            assert np.allclose(other.loss(its_program, its_data).values, engine.loss(program, data).values, rtol=1e-3)
        try:
            other.loss(program, its_data)
        except ValueError:
            pass
        else:
            raise AssertionError("a program of another engine")
        if importlib.util.find_spec("deap"):
            adapter(engine)
        print("same bits on", engine.size, "ranks")
assert engine.is_root or engine.rank != int(sys.argv[1])
