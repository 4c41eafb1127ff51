"""SymPy both ways: values of what comes back equal those of what went there."""

import numpy as np
import pytest
import srjit

sympy = pytest.importorskip("sympy")
x0, x1, p0 = sympy.symbols("x0 x1 p0")

VALUES = {
    "sums": (x0 + x1 - 3, "x0 + x1 - 3"),
    "reciprocals": (x0 / x1, "x0 / x1"),
    "roots": (sympy.sqrt(x0) + 1 / sympy.sqrt(x1), "sqrt(x0) + inv(sqrt(x1))"),
    "negation": (-x0, "-x0"),
    "powers": (x0**2 + x0**3 + x0**x1, "square(x0) + cube(x0) + x0^x1"),
    "exponential": (sympy.exp(-x0), "exp(-x0)"),
    "cotangent": (sympy.cot(x0), "inv(tan(x0))"),
    "minimum of three": (sympy.Min(x0, x1, 1), "min(min(1, x0), x1)"),
    "pieces": (sympy.Piecewise((x0, x0 > 1), (x1, True)), "if(gt(x0, 1), x0, x1)"),
    "no piece": (sympy.Piecewise((x0, x0 > 1)), "if(gt(x0, 1), x0, nan)"),
    "both": (sympy.Piecewise((1, (x0 > 1) & (x1 < 1)), (0, True)), "if(gt(x0, 1)*lt(x1, 1), 1, 0)"),
    "one of two": (sympy.Piecewise((1, (x0 > 1) | (x1 < 1)), (0, True)), "if(max(gt(x0, 1), lt(x1, 1)), 1, 0)"),
    "equal": (sympy.Piecewise((1, sympy.Eq(x0, x1)), (0, True)), "if(le(x0, x1)*ge(x0, x1), 1, 0)"),
    "unequal": (sympy.Piecewise((1, sympy.Ne(x0, x1)), (0, True)), "if(1 - le(x0, x1)*ge(x0, x1), 1, 0)"),
    "a function of ours": (sympy.Function("pdiv")(x0, x1), "pdiv(x0, x1)"),
    "rational and pi": (x0 * sympy.Rational(1, 3) + sympy.pi, "x0*0.3333333333333333 + pi"),
    "parameter": (x0 * p0, "x0*p0"),
    "remainder": (sympy.Mod(x0, x1), "mod(x0, x1)"),
    "infinity": (sympy.Max(x0, sympy.S.NegativeInfinity, evaluate=False), "max(-inf, x0)"),
}


@pytest.fixture(scope="module")
def rows(engine):
    grid = np.concatenate([np.random.default_rng(3).uniform(-3, 3, (500, 2)),
                           [[0, 1], [1, 0], [1, 1], [-2, 2], [0.0005, -0.0005], [2, -2], [0, 0]]])
    return engine.upload(grid)


def values(engine, rows, expression):
    program = engine.compile(expression)
    return engine.predict(program, rows, np.full(program.parameter_count, 1.7))


@pytest.mark.parametrize("name", VALUES)
def test_from_sympy(engine, rows, name):
    expression, text = VALUES[name]
    np.testing.assert_allclose(values(engine, rows, expression), values(engine, rows, text), rtol=1e-14)


@pytest.mark.parametrize("op", srjit.ops)
def test_every_operator_comes_back(engine, rows, op):
    arity = srjit.ops[op].arity
    text = f"{op}({', '.join(['x0', 'x1', 'x0 - x1'][:arity])})"
    back = srjit.from_sympy(srjit.to_sympy(text))
    ours, theirs = values(engine, rows, text)[0], values(engine, rows, back)[0]
    # SymPy works with real numbers: where IEEE 754 gives infinities or NaN, it may have something else.
    finite = np.isfinite(ours)
    np.testing.assert_allclose(theirs[finite], ours[finite], rtol=1e-9, atol=1e-12)


def random_text(random, depth):
    if depth == 0 or random.random() < 0.2:
        return random.choice(["x0", "x1", "p0", f"{random.normal():.3g}", "2"])
    name = random.choice(["add", "sub", "mul", "div", "sin", "exp", "min", "if", "abs", "square", "sqrt", "neg"])
    arity = srjit.ops[name].arity
    return f"{name}({', '.join(random_text(random, depth - 1) for _ in range(arity))})"


class Choices:
    def __init__(self, seed):
        generator = np.random.default_rng(seed)
        self.random, self.normal = generator.random, generator.normal
        self.choice = lambda items: items[int(generator.integers(len(items)))]


@pytest.mark.parametrize("seed", range(40))
def test_random_expressions_come_back(engine, rows, seed):
    text = random_text(Choices(seed), 4)
    try:
        expression = srjit.to_sympy(text)
    except ValueError as problem:
        assert "no real value" in str(problem)
        pytest.skip("SymPy has found that it is no real number")
    if expression.has(sympy.zoo, sympy.nan, sympy.I):
        pytest.skip("SymPy has found that it is no real number")
    ours, theirs = values(engine, rows, text)[0], values(engine, rows, srjit.from_sympy(expression))[0]
    both = np.isfinite(ours) & np.isfinite(theirs)
    # Sums in another order lose up to the largest term's rounding.
    np.testing.assert_allclose(theirs[both], ours[both], rtol=1e-6, atol=1e-6)
    # SymPy writes products of powers as one power, so another one may be finite.
    assert (np.isfinite(ours) != np.isfinite(theirs)).mean() < 0.6


def test_names(engine):
    mass, speed = sympy.symbols("mass speed")
    population = srjit.from_sympy([mass * speed, speed**2], names=["mass", "speed"])
    assert list(population) == ["mass * speed", "square(speed)"]
    assert srjit.to_sympy(population)[1].free_symbols == {sympy.Symbol("speed")}
    assert srjit.to_sympy("mass/2", names=np.array(["mass"])) == mass / 2
    assert srjit.latex(mass / speed, names=["mass", "speed"]) == r"\frac{\mathrm{mass}}{\mathrm{speed}}"
    assert srjit.latex([mass, speed], names=["mass", "speed"]) == [r"\mathrm{mass}", r"\mathrm{speed}"]


def test_a_column_that_is_called_like_a_parameter():
    population = srjit.parse("p[0]*p0", names=["p0"])
    with pytest.raises(ValueError, match="p0 is a column"):
        srjit.to_sympy(population)
    assert srjit.to_sympy(population, parameters=[[3.0]])[0] == 3.0 * sympy.Symbol("p0")


def test_symbols_are_plain_unless_real_ones_are_asked_for():
    assert sympy.diff(srjit.to_sympy("x0^2 + p0"), x0) == 2 * x0
    real = sympy.Symbol("x0", real=True)
    assert srjit.to_sympy("sqrt(x0^2)", real=True) == sympy.Abs(real)
    assert sympy.diff(srjit.to_sympy("abs(x0)", real=True), real) == sympy.sign(real)
    assert sympy.diff(srjit.to_sympy("x0^2", real=True), x0) == 0


@pytest.mark.parametrize("text, written", [
    ("1.7*sqrt(112/w)", "1.7*sqrt(112/w)"), ("sqrt(112/w)", "sqrt(112/w)"), ("1/(2*sqrt(112/w))", "1/(2*sqrt(112/w))"),
    ("sqrt(8)*w", "sqrt(8)*w"), ("-3*cbrt(54*w)", "-3*Abs(54*w)**(1/3)*sign(54*w)"), ("psqrt(12*w)", "sqrt(Abs(12*w))"),
    ("2*(sqrt(12*w) + 1)", "2*(sqrt(12*w) + 1)"), ("square(sqrt(112*w))", "112*w"), ("sqrt(2)*w", "sqrt(2)*w"),
    ("sqrt(4*w)", "2*sqrt(w)"), ("w*sqrt(3)*2", "2*sqrt(3)*w"),
])
def test_no_number_leaves_a_root(engine, text, written):
    made = srjit.to_sympy(text, names=["w"])
    assert str(made) == written
    rows = engine.upload(np.linspace(0.5, 4, 20))
    np.testing.assert_allclose(values(engine, rows, srjit.from_sympy(made, ["w"])),
                               values(engine, rows, srjit.parse(text, names=["w"])), rtol=1e-14)
    w = sympy.Symbol("w", positive=True)
    slope = sympy.diff(made.subs(sympy.Symbol("w"), w), w)
    step = 1e-6
    difference = values(engine, engine.upload([2 + step, 2 - step]), srjit.parse(text, names=["w"]))[0]
    assert float(slope.subs(w, 2)) == pytest.approx((difference[0] - difference[1]) / (2 * step), rel=1e-6)


def test_lambdify_has_no_other_arguments():
    with pytest.raises(ValueError, match="no arguments: x0"):
        srjit.lambdify(x1, x1 + x0)


def test_what_has_no_operator_is_an_error():
    for expression, message in ((sympy.gamma(x0), "no operator for gamma"), (sympy.Symbol("a"), "symbol a is neither"),
                                (sympy.I * x0, "not real"), (sympy.Function("foo")(x0), "foo"),
                                (sympy.Function("pdiv")(x0), "pdiv has 1 operands, expected 2"),
                                (sympy.Integral(x0, x0), "Integral")):
        with pytest.raises(ValueError, match=message):
            srjit.from_sympy(expression)


def test_deep_expressions_do_not_recurse():
    text = "x0"
    for _ in range(300):
        text = f"sin({text})"
    assert srjit.from_sympy(srjit.to_sympy(text))[0] == text


def test_lambdify_is_sympys():
    expression = [sympy.sin(x0) * x1 + 2, x0**2]
    ours, theirs = srjit.lambdify((x0, x1), expression), sympy.lambdify((x0, x1), expression, "numpy")
    for arguments in ((1.0, 2.0), (np.linspace(0, 1, 7), 2.0), (np.ones((3, 1)), np.arange(4.0))):
        for our, their in zip(ours(*arguments), theirs(*arguments)):
            np.testing.assert_allclose(our, np.broadcast_to(their, np.shape(our)), rtol=1e-14)
    assert isinstance(srjit.lambdify(x0, x0 + 1)(2.0), float)
    assert srjit.lambdify(x0 - x1)(5.0, 3.0) == 2.0
    assert srjit.lambdify(x0, x0)(np.empty(0)).shape == (0,)
    assert srjit.lambdify((), sympy.pi)() == np.pi
    with pytest.raises(TypeError, match="1 arguments, expected 2"):
        ours(1.0)


@pytest.mark.parametrize("nan", ["propagate", "skip"])
def test_pieces_are_fitted(engine, nan):
    p1 = sympy.symbols("p1", real=True)
    rows = np.stack([np.linspace(-2, 2, 101), np.random.default_rng(5).uniform(1, 5, 101)], axis=1)
    x, z = rows.T
    data = engine.upload(rows, np.where(x > 0, 2 * np.sqrt(np.abs(x)), 3 * z))
    program = engine.compile(sympy.Piecewise((p0 * sympy.sqrt(x0), x0 > 0), (p1 * x1, True)))
    fits = engine.fit(program, data, nan=nan)
    assert fits.status == ["converged"] and fits.valid_rows[0] == 101
    np.testing.assert_allclose(fits.parameters, [2, 3], rtol=1e-9)
