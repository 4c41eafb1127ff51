"""Threads, Ctrl-C, fork and the end of the process."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from conftest import DEVICE, command


def run(code, **options):
    """Runs code in a process of its own, whose engine is `engine` and whose work `slow()` takes a second or more."""
    begin = textwrap.dedent(f"""
        import os, signal, sys, threading, time
        import numpy as np, srjit
        engine = srjit.Engine({DEVICE!r}, precision="f64", threads=1)
        X = np.random.default_rng(1).normal(size=(200000, 2))
        data = engine.upload(X, X[:, 0])
        arrays = srjit.parse(["sin(x0)*exp(sin(x1 + %d)) + cos(x0*x1)" % i for i in range(8000)])
        program = engine.compile(arrays)
        def slow():
            return [engine.loss(program, data) for _ in range(1 if engine.device == "cpu" else 100)]
        def interrupt_soon():
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        """)
    return subprocess.run([sys.executable, "-c", begin + textwrap.dedent(code)], capture_output=True, text=True,
                          timeout=120, **options)


def test_ctrl_c_ends_waiting():
    done = run("""
        interrupt_soon()
        begin = time.monotonic()
        try:
            slow()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begin < 1.5)
        print(engine.loss(engine.compile("x0"), data).values[0])
        """)
    assert done.stdout.split() == ["interrupted", "True", "0.0"], done.stderr
    assert done.returncode == 0


def test_ctrl_c_ends_waiting_for_work_in_flight_and_it_can_be_waited_for_again():
    done = run("""
        pending = [engine.submit_loss(program, data) for _ in range(1 if engine.device == "cpu" else 100)]
        interrupt_soon()
        try:
            for work in pending:
                work.result()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", all(len(work.result().values) == 8000 for work in pending))
        """)
    assert done.stdout.split() == ["interrupted", "True"], done.stderr


def test_ctrl_c_stops_a_fit():
    done = run("""
        fits = engine.compile(["sin(x0*p0) + p1*exp(p2*x1)"] * 200)
        interrupt_soon()
        begin = time.monotonic()
        try:
            engine.fit(fits, data, iterations=10**6, loss_tolerance=0, step_tolerance=0)
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begin < 5)
        """)
    assert done.stdout.split() == ["interrupted", "True"], done.stderr
    assert done.returncode == 0


def test_the_gil_is_free_while_an_engine_works():
    done = run("""
        steps = 0
        def count():
            global steps
            while not is_done:
                steps += 1
                time.sleep(0.001)
        is_done = False
        thread = threading.Thread(target=count)
        thread.start()
        slow()
        is_done = True
        thread.join()
        print(steps > 50)
        """)
    assert done.stdout.split() == ["True"], done.stderr


def test_many_threads_have_equal_bits(engine, table):
    data = engine.upload(*table)
    texts = [f"x0*{i} + sin(x1*x2) - {i}/x0" for i in range(50)]
    expected = engine.loss(engine.compile(texts), data).values
    differences = []

    def work(seed):
        for i in range(10):
            program = engine.compile(texts)
            if i % 2:
                values = engine.submit_loss(program, data).result().values
            else:
                values = engine.loss(program, data).values
            if not np.array_equal(values, expected):
                differences.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differences == []


@pytest.mark.skipif(DEVICE != "cpu", reason="a child of a process with a CUDA context has no device")
def test_a_child_process_makes_engines_of_its_own():
    done = run("""
        engine.loss(engine.compile("x0"), data)
        child = os.fork()
        if child == 0:
            try:
                engine.loss(engine.compile("x0"), data)
                print("inherited engines work")
            except srjit.Error as problem:
                print(problem.code, end=" ")
            own = srjit.Engine("cpu", precision="f64")
            print(own.loss(own.compile("x0"), own.upload(X, X[:, 0])).values[0], flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], engine.loss(engine.compile("x0"), data).values[0])
        """)
    assert done.stdout.split() == ["machine", "0.0", "0", "0.0"], done.stderr


@pytest.mark.skipif(DEVICE != "cpu", reason="a child of a process with a CUDA context has no device")
def test_a_child_process_does_not_wait_for_what_its_parent_left_behind():
    done = run("""
        interrupt_soon()
        try:
            slow()
        except KeyboardInterrupt:
            child = os.fork()
            if child == 0:
                sys.exit(0)
            for _ in range(100):
                if os.waitpid(child, os.WNOHANG)[0]:
                    print("ended")
                    break
                time.sleep(0.01)
            else:
                os.kill(child, signal.SIGKILL)
        """)
    assert done.stdout.split() == ["ended"], done.stderr


def test_a_second_ctrl_c_ends_the_process():
    done = run("""
        interrupt_soon()
        begin = time.monotonic()
        try:
            slow()
        except KeyboardInterrupt:
            import subprocess
            subprocess.Popen(["sh", "-c", "sleep 0.7; kill -INT %d" % os.getpid()])
        """)
    # A GPU's work may have ended before.
    assert done.returncode == -signal.SIGINT or DEVICE != "cpu", done.stderr


def test_a_handler_of_a_signal_may_take_what_is_waited_for():
    done = run("""
        pending = engine.submit_loss(program, data)
        signal.signal(signal.SIGALRM, lambda *_: print(len(pending.result().values)))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        print(len(pending.result().values))
        """)
    assert done.stdout.split()[-1] == "8000" and done.returncode == 0, done.stderr


def test_a_process_may_end_while_work_is_in_flight():
    done = run("""
        pending = engine.submit_loss(program, data)
        thread = threading.Thread(target=slow, daemon=True)
        thread.start()
        """)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["srjit", "sr-jit"])
def test_the_command_ends_at_ctrl_c(name, tmp_path):
    np.save(tmp_path / "data.npy", np.random.default_rng(1).normal(size=(1000000, 2)))
    with open(tmp_path / "list.txt", "w") as file:
        file.writelines(f"sin(x0)*exp(sin(x0 + {i}))\n" for i in range(40000))
    process = subprocess.Popen([command(name), "loss", "--exprs", tmp_path / "list.txt", "--data", tmp_path / "data.npy",
                                "--target", "1", "--device", "cpu", "--keep-going"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == -signal.SIGINT
