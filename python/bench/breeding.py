"""Generations that EvoGP breeds on a GPU, evaluated by EvoGP and by sr-jit in one run.

    python python/bench/breeding.py [--json FILE] [--quick]

Needs EvoGP and its torch, and a GPU. Random trees of four variables with + - * / sin cos, and a generation that EvoGP's
default selection, crossover and mutation breed of them. Of EvoGP the quickest of its modes counts. Times are medians, in ms, from the call
until the device is done.
"""

import argparse
import json
import statistics
import time

import numpy as np
import srjit.evogp
import torch
from evogp.algorithm import DefaultCrossover, DefaultMutation, DefaultSelection, GeneticProgramming
from evogp.problem import SymbolicRegression
from evogp.tree import Forest, GenerateDescriptor

FUNCTIONS = ["+", "-", "*", "/", "sin", "cos"]
MODES = ["hybrid parallel", "tree parallel"]  # "data parallel" takes 10 s for 500,000 trees


def milliseconds(body, count):
    times = []
    for _ in range(count + 2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        body()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[2:])


def table(rows):
    random = torch.Generator(device="cuda").manual_seed(rows)
    X = torch.rand((rows, 4), generator=random, device="cuda") * 4 - 2
    return X, (X[:, 0] * X[:, 1] + torch.sin(X[:, 2]) - X[:, 3])[:, None]


def algorithm_of(trees, max_len, functions=FUNCTIONS):
    descriptor = GenerateDescriptor(max_tree_len=max_len, input_len=4, output_len=1, using_funcs=functions, max_layer_cnt=6, layer_leaf_prob=0.12,
                                    const_samples=[-1.0, -0.5, 0.5, 1.0, 2.0])
    return GeneticProgramming(
        initial_forest=Forest.random_generate(pop_size=trees, descriptor=descriptor), crossover=DefaultCrossover(),
        mutation=DefaultMutation(mutation_rate=0.2, descriptor=descriptor.update(max_layer_cnt=3)),
        selection=DefaultSelection(survival_rate=0.3, elite_rate=0.01))


def step(algorithm, problem, forest):
    """A generation of EvoGP's pipeline, which begins with this forest."""
    algorithm.forest = forest
    fitness = problem.evaluate(algorithm.forest)
    fitness[torch.isnan(fitness)] = -torch.inf
    algorithm.step(fitness)


def compare(found, of_evogp):
    """Shares of trees whose fitness is finite for both, and close there; and of the best hundredth that both have."""
    found, of_evogp = found.cpu().numpy().astype(np.float64), of_evogp.cpu().numpy().astype(np.float64)
    both = np.isfinite(found) & np.isfinite(of_evogp)
    close = np.isclose(found[both], of_evogp[both], rtol=1e-3, atol=1e-5)
    few = max(len(found) // 100, 1)
    best = [set(np.argsort(-np.where(both, fitness, -np.inf), kind="stable")[:few].tolist()) for fitness in (found, of_evogp)]
    return {"finite of both": both.mean(), "close": close.mean(), "same best hundredth": len(best[0] & best[1]) / few}


def measure(trees, rows, count, max_len=64):
    torch.manual_seed(trees + rows)
    X, y = table(rows)
    problem = srjit.evogp.SymbolicRegression(datapoints=X, labels=y)
    algorithm = algorithm_of(trees, max_len)
    forest = algorithm.forest
    sizes = forest.batch_subtree_size[:, 0].float()
    row = {"trees": trees, "rows": rows, "nodes": sizes.mean().item(), "most nodes": sizes.max().item()}
    theirs = {mode: SymbolicRegression(datapoints=X, labels=y, execute_mode=mode) for mode in MODES}
    for mode, by in theirs.items():
        row[f"EvoGP, {mode}"] = milliseconds(lambda by=by: by.evaluate(forest), count)
    mode = min(MODES, key=lambda mode: row[f"EvoGP, {mode}"])
    row["EvoGP"] = row[f"EvoGP, {mode}"]
    row["sr-jit"] = milliseconds(lambda: problem.evaluate(forest), count)
    codes = srjit.evogp.codes_of(forest.batch_node_type, forest.batch_node_value, problem._table)
    losses, out = problem._losses["mse", max_len], torch.empty(trees, device="cuda")
    row["sr-jit, codes to losses"] = milliseconds(
        lambda: losses(codes, forest.batch_node_value, prefix=True, out=out), 2 * count)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        losses(codes, forest.batch_node_value, prefix=True, out=out)
    row["sr-jit, codes to losses, a graph"] = milliseconds(graph.replay, 2 * count)
    row |= compare(problem.evaluate(forest), theirs[mode].evaluate(forest))
    for name, by in (("EvoGP", theirs[mode]), ("sr-jit", problem)):
        row[f"a generation, {name}"] = milliseconds(lambda by=by: step(algorithm, by, forest), count)
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    shapes = [(1_000, 100, 3)] if options.quick else [(10_000, 100, 30), (10_000, 1_000, 20), (100_000, 1_000, 10),
                                                     (500_000, 1_000, 7), (500_000, 10_000, 3)]
    rows = []
    for trees, count_of_rows, count in shapes:
        rows.append(measure(trees, count_of_rows, count))
        for what, value in rows[-1].items():
            print(f"{what:36} {value:12.4f}" if isinstance(value, float) else f"{what:36} {value}", flush=True)
        print(flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"device": torch.cuda.get_device_name(), "functions": FUNCTIONS, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
