"""Run by test_mpi.py with mpirun: what goes wrong, by the name of a case. No case may hang."""

import os
import signal
import sys
import threading

import numpy as np
import srjit
import srjit.mpi

X = np.linspace(1, 2, 300).reshape(-1, 3)
Y = X[:, 0]


def raises(kind, words, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as problem:
        assert words in str(problem), (words, str(problem))
        return problem
    raise AssertionError(f"no {kind.__name__} with {words!r}")


def arguments(engine):
    """Exceptions of the root's arguments are those of one engine, and the ranks serve on."""
    one = srjit.Engine("cpu", "f64")
    its_data, data = one.upload(X, Y), engine.upload(X, Y)
    its_program, program = one.compile(["x0*p0"] * 8), engine.compile(["x0*p0"] * 8)
    nan = Y * np.nan
    for name, args, its_args, options in (
        ("upload", (X, Y[1:]), None, {}), ("upload", (X, nan), None, {}), ("upload", ("no numbers",), None, {}),
        ("compile", ("x0 +",), None, {}), ("compile", (["x0"],), None, {"tier": "none"}), ("compile", (3,), None, {}),
        ("compile", (([1], [0.0], [0, 2]),), None, {}), ("compile", (([1], [0.0], []),), None, {}),
        ("loss", (program, data), (its_program, its_data), {}),
        ("loss", (program, data, np.ones(3)), (its_program, its_data, np.ones(3)), {}),
        ("loss", (program, data, np.ones(8), "none"), (its_program, its_data, np.ones(8), "none"), {}),
        ("loss", (program, data, np.ones(8), "mse", "none"), (its_program, its_data, np.ones(8), "mse", "none"), {}),
        ("loss", ("x0", data), ("x0", its_data), {}), ("loss", (program, X, np.ones(8)), (its_program, X, np.ones(8)), {}),
        ("loss", (program, engine.upload(X), np.ones(8)), (its_program, one.upload(X), np.ones(8)), {}),
        ("gradient", (program, data, np.ones(8)), (its_program, its_data, np.ones(8)), {"by": "none"}),
        ("fit", (program, data), (its_program, its_data), {"iterations": -1}),
        ("fit", (program, data), (its_program, its_data), {"loss": "sum"}),
        ("predict", (program, data, np.ones(8)), (its_program, its_data, np.ones(8)), {"out": np.empty(3)}),
        ("predict", (engine.compile(["x9"] * 8), data), (one.compile(["x9"] * 8), its_data), {}),
    ):
        try:
            getattr(one, name)(*(its_args or args), **options)
        except Exception as expected:
            problem = raises(type(expected), str(expected), getattr(engine, name), *args, **options)
            assert str(problem) == str(expected) and type(problem) is type(expected), (problem, expected)
        else:
            raise AssertionError((name, args, options))
        assert np.isfinite(engine.loss(program, data, np.ones(8)).values).all()
    raises(ValueError, "another engine", engine.loss, program, its_data, np.ones(8))
    raises(ValueError, "another engine", engine.loss, its_program, data, np.ones(8))
    raises(ValueError, "the root makes the calls", engine.serve)
    raises(srjit.Error, "cannot be stopped", engine.submit_fit(program, data).stop)
    raises(ValueError, "expected (rows,)", data.with_weights, np.ones((2, 2)))
    raises(srjit.Error, "rows", data.rows, 90, 20)
    engine.close()
    raises(ValueError, "the engine is closed", engine.upload, X, Y)


def read(what):
    """What ranks read themselves."""
    from mpi4py import MPI

    is_second = MPI.COMM_WORLD.rank == 1
    if what == "none" and is_second:
        raise FileNotFoundError("no such file")
    return X[:50 if what == "less" and is_second else 100], Y[:50 if what == "less" and is_second else 100]


def other_rank(engine):
    """What another rank runs into is an exception of the root, and the ranks serve on."""
    problem = raises(srjit.Error, "no such file", engine.upload_from, read, "none")
    assert problem.code == "io" and str(problem).startswith("rank 1 on "), problem
    raises(srjit.Error, "rank 1 read 50 rows and 3 columns, but the root 100 and 3", engine.upload_from, read, "less")
    assert engine.upload_from(read, "all").shape == (100, 3)


def work(engine):
    data = engine.upload(X, Y)
    while True:
        engine.loss(engine.compile(["x0*p0"] * 8), data, np.ones(8))


def main(case):
    if case == "device":
        from mpi4py import MPI

        raises(srjit.Error, "device" if MPI.COMM_WORLD.rank == 1 else "rank 1 on ",
               srjit.mpi.Engine, "cuda:99" if MPI.COMM_WORLD.rank == 1 else "cpu")
        raises(ValueError, "root is 9", srjit.mpi.Engine, "cpu", root=9)
        return
    with srjit.mpi.Engine("cpu", "f64") as engine:
        if case == "arguments" and engine.is_root:
            arguments(engine)
        elif case == "other_rank" and engine.is_root:
            other_rank(engine)
        elif case == "caught" and engine.is_root:
            raise RuntimeError("a mistake in the search")
        elif case == "raised" and engine.rank == 1:
            raise RuntimeError("a mistake on a rank")
        elif case == "left" and engine.rank == 1:
            sys.exit(0)
        elif case in ("killed", "raised", "left"):
            if engine.rank == 1:
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
            if engine.is_root:
                work(engine)


if sys.argv[1] == "open":
    # Without a block: what nothing catches still ends the job, and an engine that is left open is closed.
    opened = srjit.mpi.Engine("cpu", "f64")
    if not opened.is_root:
        opened.serve()
        sys.exit(0)
    opened.upload(X, Y)
    if sys.argv[2] == "raised":
        raise RuntimeError("a mistake in the search")
else:
    main(sys.argv[1])
