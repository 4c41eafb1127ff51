"""Seconds of GP systems with and without srjit, on the same problem with the same seed, and what their loops leave to it.

    python python/bench/adapters.py                          # everything, on the CPU
    python python/bench/adapters.py --device cuda:0 --json figures.json
    python python/bench/adapters.py gplearn --population 500 --generations 4 --rows 10000

Each of `gplearn`, `deap` and `bingo` needs the package of its name. Sizes default to those of docs/history/measurements.md.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import os
import platform
import random
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

    def evolve():
        random.seed(318)
        population = toolbox.population(n=size)
        algorithms.eaSimple(population, toolbox, 0.5, 0.1, generations, verbose=False)
        return [str(individual) for individual in population]

    evaluator = srjit.deap.Evaluator(pset, points.reshape(-1, 1), y, primitives={"protected_div": "zdiv"},
                                     engine=srjit.Engine(options.device, options.precision, options.math))
    toolbox.register("evaluate", evaluator.evaluate)
    evaluations = []

    def timed_map(function, individuals):
        seconds, values = seconds_of(evaluator.map, function, individuals)
        evaluations.append(seconds)
        return values

    toolbox.register("map", timed_map)
    ours_seconds, ours = seconds_of(evolve)
    figures = {"rows": len(points), "individuals": size, "generations": generations, "srjit_seconds": ours_seconds,
               "srjit_evaluation_seconds": sum(evaluations)}
    if not options.only_ours:
        toolbox.register("evaluate", evaluate)
        toolbox.register("map", map)
        seconds, theirs = seconds_of(evolve)
        figures |= {"own_seconds": seconds, "ratio": seconds / ours_seconds,
                    "same_individuals": sum(a == b for a, b in zip(ours, theirs))}
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


BENCHES = {"gplearn": bench_gplearn, "deap": bench_deap, "bingo": bench_bingo}


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
