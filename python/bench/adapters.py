"""Seconds of GP systems with and without srjit, on the same problem with the same seed, and what their loops leave to it.

    python python/bench/adapters.py                          # everything, on the CPU
    python python/bench/adapters.py --device cuda:0 --json figures.json
    python python/bench/adapters.py gplearn --population 500 --generations 4 --rows 10000

Each of `conversion`, `tokens`, `gplearn`, `deap` and `bingo` needs the package of its name. Sizes default to those of
docs/performance.md. `tokens` compares with the same calls through libsrjit.so, if --library names it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import operator
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from functools import partial

import numpy as np
import srjit


def seconds_of(function, *arguments):
    begin = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - begin, result


def target(X):
    return X[:, 0] ** 2 - X[:, 1] ** 2 + X[:, 1] - 1


def bench_gplearn(options):
    """The problem of gplearn's README, without its samples of rows."""
    from gplearn.genetic import SymbolicRegressor

    import srjit.gplearn

    X = np.random.default_rng(0).uniform(-1, 1, (options.rows or 100_000, 2))
    y = target(X)
    settings = {"population_size": options.population or 5000, "generations": options.generations or 20,
                "stopping_criteria": -1, "p_crossover": 0.7, "p_subtree_mutation": 0.1, "p_hoist_mutation": 0.05,
                "p_point_mutation": 0.1, "parsimony_coefficient": 0.01, "random_state": 0, "low_memory": True}
    evaluations = []
    evaluate = srjit.gplearn._Batches.evaluate
    srjit.gplearn._Batches.evaluate = lambda *arguments: evaluations.append(seconds_of(evaluate, *arguments)[0])
    ours_seconds, ours = seconds_of(srjit.gplearn.SymbolicRegressor(
        **settings, device=options.device, precision=options.precision).fit, X, y)
    srjit.gplearn._Batches.evaluate = evaluate
    figures = {"rows": len(X), **{name: settings[name] for name in ("population_size", "generations")},
               "srjit_seconds": ours_seconds, "srjit_evaluation_seconds": sum(evaluations)}
    if not options.only_ours:
        seconds, theirs = seconds_of(SymbolicRegressor(**settings, n_jobs=options.jobs).fit, X, y)
        figures |= {"own_seconds": seconds, "own_jobs": options.jobs, "ratio": seconds / ours_seconds,
                    "same_programs": sum(str(a) == str(b) for a, b in zip(ours._programs[-1], theirs._programs[-1]))}
    return figures


def bench_deap(options):
    """DEAP's symbolic regression example (examples/gp/symbreg.py) with more individuals and points."""
    from deap import algorithms, base, creator, gp, tools

    import srjit.deap

    def protected_div(left, right):
        try:
            return left / right
        except ZeroDivisionError:
            return 1

    pset = gp.PrimitiveSet("MAIN", 1)
    for function, arity in ((operator.add, 2), (operator.sub, 2), (operator.mul, 2), (protected_div, 2),
                            (operator.neg, 1), (math.cos, 1), (math.sin, 1)):
        pset.addPrimitive(function, arity)
    pset.addEphemeralConstant("rand101", partial(random.randint, -1, 1))
    creator.create("FitnessMin", base.Fitness, weights=(-1.0,))
    creator.create("Individual", gp.PrimitiveTree, fitness=creator.FitnessMin)
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
    points = np.linspace(-1, 1, options.rows or 10_000)
    y = points**4 + points**3 + points**2 + points
    pairs = list(zip(points.tolist(), y.tolist()))
    size, generations = options.population or 1000, options.generations or 40

    def evaluate(individual):
        function = toolbox.compile(expr=individual)
        return (math.fsum((function(x) - value) ** 2 for x, value in pairs) / len(pairs),)

    def texts_of(trees):
        return [str(gp.PrimitiveTree(tree)) for tree in trees]

    def evolve():
        random.seed(318)
        population = toolbox.population(n=size)
        algorithms.eaSimple(population, toolbox, 0.5, 0.1, generations, verbose=False)
        return [str(individual) for individual in population]

    evaluator = srjit.deap.Evaluator(pset, points.reshape(-1, 1), y, primitives={"protected_div": "zdiv"},
                                     engine=srjit.Engine(options.device, options.precision, options.math))
    toolbox.register("evaluate", evaluator.evaluate)
    evaluations, bred, bred_by_own = [], [], []

    def timed_map(function, individuals):
        individuals = list(individuals)
        bred.append([list(individual) for individual in individuals])
        seconds, values = seconds_of(evaluator.map, function, individuals)
        evaluations.append(seconds)
        return values

    def own_map(function, individuals):
        individuals = list(individuals)
        bred_by_own.append([list(individual) for individual in individuals])
        return list(map(function, individuals))

    toolbox.register("map", timed_map)
    ours_seconds, ours = seconds_of(evolve)
    figures = {"rows": len(points), "individuals": size, "generations": generations, "srjit_seconds": ours_seconds,
               "srjit_evaluation_seconds": sum(evaluations)}
    if not options.only_ours:
        toolbox.register("evaluate", evaluate)
        toolbox.register("map", own_map)
        seconds, theirs = seconds_of(evolve)
        same = [texts_of(a) == texts_of(b) for a, b in zip(bred, bred_by_own)]
        figures |= {"own_seconds": seconds, "ratio": seconds / ours_seconds,
                    "same_individuals": sum(a == b for a, b in zip(ours, theirs)),
                    "same_generations": (same + [False]).index(False), "best_own": min(
                        evaluate(gp.PrimitiveTree(tree))[0] for tree in bred_by_own[(same + [False]).index(False) - 1])}
    return figures


def bench_bingo(options):
    """One evaluation of a random population of Bingo, constants included."""
    from bingo.evaluation.evaluation import Evaluation
    from bingo.local_optimizers.local_opt_fitness import LocalOptFitnessFunction
    from bingo.local_optimizers.scipy_optimizer import ScipyOptimizer
    from bingo.symbolic_regression.agraph.component_generator import ComponentGenerator
    from bingo.symbolic_regression.agraph.generator import AGraphGenerator
    from bingo.symbolic_regression.explicit_regression import ExplicitRegression, ExplicitTrainingData

    import srjit.bingo

    X = np.random.default_rng(0).uniform(0.5, 2, (options.rows or 10_000, 2))
    regression = ExplicitRegression(ExplicitTrainingData(X, 2.5 * target(X) + np.sin(3 * X[:, 0])), metric="mse")
    function = LocalOptFitnessFunction(regression, ScipyOptimizer(regression, method="lm", param_init_bounds=[-1, 1]))
    components = ComponentGenerator(2)
    for name in ("+", "-", "*", "/", "sin", "exp"):
        components.add_operator(name)
    np.random.seed(1)
    generate = AGraphGenerator(24, components)
    individuals = [generate() for _ in range(options.population or 1000)]
    copies = [individual.copy() for individual in individuals]
    evaluation = srjit.bingo.Evaluation(function, engine=srjit.Engine(options.device, options.precision))
    evaluation([generate() for _ in range(10)])  # the upload
    seconds, _ = seconds_of(evaluation, individuals)
    figures = {"rows": len(X), "individuals": len(individuals), "srjit_seconds": seconds}
    if not options.only_ours:
        np.random.seed(2)
        own_seconds, _ = seconds_of(Evaluation(function), copies)
        ours, theirs = (np.array([individual.fitness for individual in some]) for some in (individuals, copies))
        both = np.isfinite(ours) & np.isfinite(theirs)
        figures |= {"own_seconds": own_seconds, "ratio": own_seconds / seconds,
                    "not_worse": float((ours[both] <= theirs[both] * (1 + 1e-6) + 1e-12).mean())}
    return figures


def median_ns_per_token(convert, trees, tokens):
    return statistics.median(seconds_of(convert, trees)[0] for _ in range(15)) / tokens * 1e9


def bench_conversion(options):
    """Individuals to token arrays."""
    from deap import gp
    from gplearn.genetic import SymbolicRegressor

    import srjit.deap
    import srjit.gplearn

    pset = gp.PrimitiveSet("MAIN", 3)
    for function, arity in ((operator.add, 2), (operator.sub, 2), (operator.mul, 2), (operator.neg, 1), (math.cos, 1)):
        pset.addPrimitive(function, arity)
    pset.addEphemeralConstant("rand", partial(random.uniform, -1, 1))
    random.seed(1)
    trees = [gp.PrimitiveTree(gp.genHalfAndHalf(pset, 3, 6)) for _ in range(20_000)]
    evaluator = srjit.deap.Evaluator(pset, np.ones((10, 3)), np.ones(10), engine=srjit.Engine("cpu"))
    estimator = SymbolicRegressor(population_size=20_000, generations=1, random_state=1,
                                  function_set=("add", "sub", "mul", "div", "sqrt", "log", "sin"))
    estimator.fit(np.random.default_rng(1).normal(size=(10, 3)), np.ones(10))
    programs = [program.program for program in estimator._programs[-1]]
    nodes = srjit._core.NodeCodes(srjit.gplearn._node_of, True)
    for function in estimator._function_set:
        nodes.add(function, srjit.gplearn._CODES[id(function)], 0.0)
    return {"deap_ns_per_token": median_ns_per_token(evaluator._nodes.arrays, trees, sum(map(len, trees))),
            "gplearn_ns_per_token": median_ns_per_token(nodes.arrays, programs, sum(map(len, programs)))}


def random_arrays(count, seed):
    """Small trees as token arrays."""
    generator = np.random.default_rng(seed)
    binary = [srjit.ops[name].code for name in ("add", "sub", "mul", "div")]
    unary = [srjit.ops[name].code for name in ("sin", "cos", "exp")]
    codes, constants, offsets = [], [], [0]

    def grow(depth):
        draw = generator.random()
        if depth == 0 or draw < 0.15:
            if generator.random() < 0.3:
                codes.append(srjit.CONSTANT)
                constants.append(generator.normal())
            else:
                codes.append(srjit.VARIABLE - int(generator.integers(5)))
                constants.append(0.0)
            return
        if draw < 0.75:
            grow(depth - 1)
            grow(depth - 1)
            codes.append(binary[int(generator.integers(4))])
        else:
            grow(depth - 1)
            codes.append(unary[int(generator.integers(3))])
        constants.append(0.0)

    for _ in range(count):
        grow(4)
        offsets.append(len(codes))
    return np.array(codes, np.int32), np.array(constants), np.array(offsets)


class Library:
    """The calls of libsrjit.so that take token arrays to losses (docs/embedding.md)."""

    def __init__(self, path):
        self.calls = ctypes.CDLL(path)

    def engine(self, device, precision):
        class Options(ctypes.Structure):
            _fields_ = [("size", ctypes.c_uint64), ("device", ctypes.c_char_p), ("cache", ctypes.c_char_p),
                        ("precision", ctypes.c_int32), ("math", ctypes.c_int32), ("tier", ctypes.c_int32),
                        ("threads", ctypes.c_uint32), ("device_bytes", ctypes.c_uint64),
                        ("subtree_bytes", ctypes.c_uint64)]

        options = Options(ctypes.sizeof(Options), device.encode(), None, {"f32": 0, "f64": 1}[precision])
        engine = ctypes.c_void_p()
        self.check(self.calls.srjit_engine_create(ctypes.byref(options), ctypes.byref(engine), None))
        return engine

    def data(self, engine, X, y):
        class Matrix(ctypes.Structure):
            _fields_ = [("size", ctypes.c_uint64), ("data", ctypes.c_void_p), ("rows", ctypes.c_uint64),
                        ("columns", ctypes.c_uint64), ("row_stride", ctypes.c_int64), ("column_stride", ctypes.c_int64),
                        ("type", ctypes.c_int32), ("on_device", ctypes.c_int32)]

        class Data(ctypes.Structure):
            _fields_ = [("size", ctypes.c_uint64), ("columns", ctypes.POINTER(Matrix)),
                        ("target", ctypes.POINTER(Matrix)), ("weights", ctypes.c_void_p), ("names", ctypes.c_void_p),
                        ("stream", ctypes.c_uint64)]

        columns, target_column = (
            Matrix(ctypes.sizeof(Matrix), array.ctypes.data, array.shape[0], array.shape[1], array.strides[0],
                   array.strides[1], 1, 0) for array in (X, y.reshape(-1, 1)))
        view = Data(ctypes.sizeof(Data), ctypes.pointer(columns), ctypes.pointer(target_column), None, None, 0)
        data = ctypes.c_void_p()
        self.check(self.calls.srjit_dataset_create(engine, ctypes.byref(view), ctypes.byref(data), None))
        return data

    def losses(self, engine, data, arrays):
        class Population(ctypes.Structure):
            _fields_ = [("size", ctypes.c_uint64), ("expressions", ctypes.c_uint64), ("codes", ctypes.c_void_p),
                        ("constants", ctypes.c_void_p), ("offsets", ctypes.c_void_p), ("notation", ctypes.c_int32),
                        ("reserved", ctypes.c_int32)]

        class Losses(ctypes.Structure):
            _fields_ = [("size", ctypes.c_uint64), ("count", ctypes.c_uint64), ("values", ctypes.c_void_p),
                        ("valid_rows", ctypes.c_void_p), ("derivative_count", ctypes.c_uint64),
                        ("derivatives", ctypes.c_void_p), ("failures", ctypes.c_void_p)]

        codes, constants, offsets = arrays
        count = len(offsets) - 1
        values = np.empty(count)
        population = Population(ctypes.sizeof(Population), count, codes.ctypes.data, constants.ctypes.data,
                                offsets.ctypes.data)
        losses = Losses(ctypes.sizeof(Losses), count, values.ctypes.data)
        pending = ctypes.c_void_p()
        self.check(self.calls.srjit_submit_population_loss(engine, ctypes.byref(population), data, None,
                                                           ctypes.c_uint64(0), None, None, ctypes.byref(pending), None))
        self.check(self.calls.srjit_pending_losses(pending, ctypes.byref(losses), None))
        self.calls.srjit_pending_free(pending)
        return values

    @staticmethod
    def check(status):
        if status:
            raise RuntimeError(f"libsrjit.so gives {status}")


def bench_tokens(options):
    """Token arrays to losses: fresh expressions each time."""
    rows = options.rows or 362
    count = options.population or (250_000 if options.device != "cpu" else 20_000)
    X = np.random.default_rng(0).uniform(0.5, 2, (rows, 5))
    y = target(X)
    engine = srjit.Engine(options.device, options.precision)
    data = engine.upload(X, y)
    populations = [random_arrays(count // 10, seed) for seed in range(12)]
    populations = [(np.tile(codes, 10), np.tile(constants, 10) + seed * 1e-3 * (np.tile(codes, 10) == srjit.CONSTANT),
                    np.concatenate([[0], *(offsets[1:] + i * offsets[-1] for i in range(10))]))
                   for seed, (codes, constants, offsets) in enumerate(populations)]

    def ours(arrays):
        return engine.loss(arrays, data).values

    figures = {"rows": rows, "expressions": count, "tokens": len(populations[0][0])}
    runs = {"python_seconds": ours}
    if options.library:
        library = Library(options.library)
        handle = library.engine(options.device, options.precision)
        held = library.data(handle, X, y)
        runs["library_seconds"] = lambda arrays: library.losses(handle, held, arrays)
        np.testing.assert_array_equal(ours(populations[0]), runs["library_seconds"](populations[0]))
    seconds = {name: [] for name in runs}
    for arrays in populations * 2:
        for name, run in runs.items():
            seconds[name].append(seconds_of(run, arrays)[0])
    figures |= {name: statistics.median(values[2:]) for name, values in seconds.items()}
    if options.library:
        figures["ratio"] = figures["python_seconds"] / figures["library_seconds"]
    return figures


BENCHES = {"conversion": bench_conversion, "tokens": bench_tokens, "gplearn": bench_gplearn, "deap": bench_deap,
           "bingo": bench_bingo}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", nargs="*", choices=[*BENCHES, []], help="which; all by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="f64")
    parser.add_argument("--math", default="strict", help="of deap")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of gplearn")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--population", type=int)
    parser.add_argument("--generations", type=int)
    parser.add_argument("--only-ours", action="store_true", help="without the systems' own evaluation")
    parser.add_argument("--library", help="path of libsrjit.so")
    parser.add_argument("--commit", default="")
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()
    engine = srjit.Engine(options.device, options.precision)
    report = {"date": time.strftime("%Y-%m-%d"), "device": engine.device, "precision": options.precision,
              "processor": platform.processor() or platform.machine(), "cores": os.cpu_count(),
              "commit": options.commit or subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True,
                                                         text=True).stdout.strip(),
              "command": " ".join(sys.argv)}
    for name in options.bench or BENCHES:
        report[name] = BENCHES[name](options)
        print(name, json.dumps(report[name]), flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
