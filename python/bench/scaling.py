"""How srjit.mpi scales: measured with mpirun, and modelled to many GPUs. docs/scaling.md has the results.

    mpirun -n 2 python python/bench/scaling.py measure --threads 1     # generations on these ranks
    python python/bench/scaling.py model                               # the tables of the page
    python python/bench/scaling.py model --plot docs/figures/many-gpus.svg
"""

import argparse
import time
from typing import NamedTuple

import numpy as np

RANKS = [1, 2, 4, 8, 16, 64, 256, 1000]


class Workload(NamedTuple):
    """A generation on one GPU, in milliseconds: docs/history/measurements.md, "Fresh populations", one H200, 37e16b2, 2026-11-24."""

    name: str
    expressions: int
    tokens: float  # per expression
    prepare: float  # passes and encoding, on 16 threads of the host
    device: float  # the rest


WORKLOADS = [
    Workload("250,000 small x 362 rows", 250_000, 7.6, 15.4, 20.0 - 15.4),
    Workload("10,000 random trees x 10,860 rows", 10_000, 30, 3.2, 4.3 - 3.2),
    Workload("2,000 mutated formulas x 1,000,000 rows", 2_000, 44, 2.3, 4.7 - 2.3),
]


def bytes_of(expressions, tokens):
    """What a generation sends as token arrays, and gets back as losses."""
    return expressions * (12 * tokens + 8), expressions * 16


def seconds_of(workload, times, ranks, options):
    """Parts of a generation of `times` as many expressions, in seconds: breeding, sending, evaluating, gathering."""
    expressions = workload.expressions * times
    out, back = bytes_of(expressions, workload.tokens)
    elsewhere = (ranks - 1) / ranks
    messages = options.overhead * (ranks - 1)
    bandwidth = options.bandwidth / 8 * 1e9
    hops = options.latency * np.ceil(np.log2(ranks)) if ranks > 1 else 0
    breed = options.breed * 1e-6 * expressions
    # Three arrays to each, and two broadcasts; two arrays and a length from each.
    send = (out * elsewhere / bandwidth + (3 * messages + 2 * hops) * 1e-6) if ranks > 1 else 0
    work = max((workload.prepare + workload.device) * 1e-3 * times / ranks, options.least * 1e-6)
    gather = (back * elsewhere / bandwidth + 3 * messages * 1e-6) if ranks > 1 else 0
    divide = options.divide * 1e-9 * expressions + options.call * 1e-6 if ranks > 1 else 0
    return breed, divide + send, work, gather


def totals_of(workload, times, options):
    """Seconds of a generation on 1, 2, ... GPUs."""
    return [sum(seconds_of(workload, times, ranks, options)) for ranks in range(1, RANKS[-1] + 1)]


def last_efficient(total):
    """The last number of GPUs that are at least half as efficient as one."""
    return max(ranks for ranks, seconds in enumerate(total, 1) if total[0] / seconds >= ranks / 2)


def plot(options):
    """Writes the generations as lines over the number of GPUs."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for workload, colour in zip(WORKLOADS, ["#0072B2", "#E69F00", "#009E73"]):
        for times in options.times:
            total = totals_of(workload, times, options)
            efficient = last_efficient(total)
            name = workload.name if times == 1 else f"{times:,} times as many"
            axes.loglog(range(1, RANKS[-1] + 1), total, color=colour, linewidth=2 if times == 1 else 1.2, label=name)
            axes.plot(efficient, total[efficient - 1], "o", color=colour)
    axes.set(xlabel="GPUs (model; one GPU is measured)", ylabel="seconds", title="Time of a generation by srjit.mpi; "
             "a dot: the last number of GPUs that are half as efficient as one")
    figure.legend(loc="outside right upper")
    figure.savefig(options.plot, metadata={"Date": None})


def model(options):
    if options.plot:
        plot(options)
        return
    print("| generation | " + " | ".join(f"{ranks:,}" for ranks in RANKS) + " | least time | half as efficient |")
    print("|---" * (len(RANKS) + 3) + "|")
    for workload in WORKLOADS:
        for times in options.times:
            total = totals_of(workload, times, options)
            cells = [f"{total[ranks - 1] * 1e3:,.3g}" if total[ranks - 1] < 1 else f"{total[ranks - 1] * 1e3:,.0f}" for ranks in RANKS]
            efficient = last_efficient(total)
            last = f"{efficient:,}" if efficient < RANKS[-1] else f"beyond {RANKS[-1]:,}"
            name = workload.name if times == 1 else f"{times:,} times as many"
            print(f"| {name} | {' | '.join(cells)} | {int(np.argmin(total)) + 1:,} GPUs | {last} GPUs |")


def generation_of(expressions, random):
    """New random trees in postfix over 3 variables and constants, as token arrays."""
    import srjit

    binary, unary = ([srjit.ops[name].code for name in names] for names in (("add", "sub", "mul", "div"), ("sin", "exp", "sqrt")))

    def grow(leaves):
        if leaves == 1:
            return [srjit.CONSTANT if random.random() < 0.4 else srjit.VARIABLE - int(random.integers(3))]
        left = int(random.integers(1, leaves))
        nodes = grow(left) + grow(leaves - left) + [binary[random.integers(4)]]
        return nodes + [unary[random.integers(3)]] if random.random() < 0.2 else nodes

    # Trees of a pool with new constants, since growing a tree takes longer than evaluating it.
    pool = [np.array(grow(int(random.integers(2, 16))), np.int32) for _ in range(min(expressions, 2_000))]
    trees = [pool[tree] for tree in random.integers(len(pool), size=expressions)]
    codes = np.concatenate(trees)
    constants = np.where(codes == srjit.CONSTANT, random.uniform(-2, 2, len(codes)), 0)
    return codes, constants, np.concatenate([[0], np.cumsum([len(tree) for tree in trees])])


def counted(engine):
    """Bytes that the root sends and gets, counted as they are handed to MPI."""
    bytes_sent, channel = [0, 0], engine._channel
    send, replies = channel.send, channel.replies

    def sending(command, arrays=()):
        bytes_sent[0] += sum(array.nbytes for array, _ in arrays)
        return send(command, arrays)

    def gathering(wholes):
        bytes_sent[1] += sum(whole.nbytes for whole, _, _ in wholes)
        return replies(wholes)

    channel.send, channel.replies = sending, gathering
    return bytes_sent


def report(what, engine, data, few, random, options):
    whole, small = [], []
    for _ in range(options.generations + 1):
        population = generation_of(options.expressions, random)
        begin = time.perf_counter()
        engine.loss(population, data)
        whole.append(time.perf_counter() - begin)
    rows = data.rows(0, min(options.rows, 128))
    for _ in range(200):
        begin = time.perf_counter()
        engine.loss(few, rows)
        small.append(time.perf_counter() - begin)
    print(f"  {what}: a generation {np.median(whole[1:]) * 1e3:.1f} ms, "
          f"a call of 8 expressions x 128 rows {np.median(small) * 1e6:.0f} us")


def measure(options):
    import srjit.mpi
    from srjit._ranks import bounds_by_cost

    with srjit.mpi.Engine(options.device, options.precision, threads=options.threads) as engine:
        if not engine.is_root:
            return
        random = np.random.default_rng(1)
        X = random.uniform(0.5, 2, (options.rows, 3))
        data = engine.upload(X, X[:, 0] ** 2)
        few, population = (generation_of(count, random) for count in (8, options.expressions))
        tokens = len(population[0]) / options.expressions
        formula = bytes_of(options.expressions, tokens)
        print(f"{engine.size} ranks, {engine.threads} threads each, on {', '.join(sorted(set(engine.devices)))}: "
              f"{options.expressions:,} expressions of {tokens:.1f} tokens x {options.rows:,} rows, {options.precision}")
        report("srjit.mpi", engine, data, few, random, options)
        if engine.size == 1:
            one = srjit.Engine(engine.device, options.precision, threads=engine.threads)
            report("srjit.Engine", one, one.upload(X, X[:, 0] ** 2), few, random, options)
        bytes_sent = counted(engine)
        engine.loss(population, data)
        print(f"  bytes out {bytes_sent[0]:,} (formula {formula[0]:,.0f}), back {bytes_sent[1]:,} (formula {formula[1]:,.0f})")
        begin = time.perf_counter()
        for _ in range(20):
            bounds_by_cost(population[2], 1000)
        seconds = (time.perf_counter() - begin) / 20
        print(f"  dividing it among 1,000 ranks: {seconds * 1e9 / options.expressions:.1f} ns per expression")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    modelled = commands.add_parser("model", help="the tables of docs/scaling.md, in milliseconds per generation")
    modelled.add_argument("--bandwidth", type=float, default=100, help="of the root's network, in Gbit/s")
    modelled.add_argument("--latency", type=float, default=2, help="of a hop of a broadcast, in microseconds")
    modelled.add_argument("--overhead", type=float, default=1, help="of the root for a message, in microseconds")
    modelled.add_argument("--least", type=float, default=60, help="that a call takes on a GPU, in microseconds")
    modelled.add_argument("--divide", type=float, default=3, help="nanoseconds per expression to divide a population")
    modelled.add_argument("--call", type=float, default=140, help="microseconds that a call of srjit.mpi adds on the root")
    modelled.add_argument("--breed", type=float, default=0, help="microseconds per expression to breed it, on the root")
    modelled.add_argument("--times", type=int, nargs="+", default=[1, 100], help="multiples of the measured populations")
    modelled.add_argument("--plot", metavar="FILE", help="write a figure in place of the tables; needs matplotlib")
    modelled.set_defaults(run=model)
    measured = commands.add_parser("measure", help="generations on the ranks of mpirun")
    measured.add_argument("--device", default="auto")
    measured.add_argument("--precision", default="f32")
    measured.add_argument("--threads", type=int, default=0, help="per rank")
    measured.add_argument("--expressions", type=int, default=20_000)
    measured.add_argument("--rows", type=int, default=2_000)
    measured.add_argument("--generations", type=int, default=15)
    measured.set_defaults(run=measure)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
