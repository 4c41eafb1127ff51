"""Text, token arrays and operators."""

import pickle

import numpy as np
import pytest
import srjit


def test_text_comes_back():
    population = srjit.parse(["x0*2 + sin(x1)", "pow(x0, p0)", "-x0^2"])
    assert list(population) == ["x0 * 2 + sin(x1)", "x0^p0", "-x0^2"]
    for language in ("infix", "postfix", "prefix", "json"):
        texts = [population.text(e, language) for e in range(len(population))]
        again = srjit.parse(texts, language)
        np.testing.assert_array_equal(again.codes, population.codes)
        np.testing.assert_array_equal(again.constants, population.constants)


def test_names():
    population = srjit.parse("mass*2", names=["mass", "speed"])
    assert population[0] == "mass * 2" and population.names == ["mass", "speed"]


def test_arrays_come_back():
    population = srjit.parse(["x0 + 1", "sin(x1)"])
    again = srjit.Population.from_arrays(population.codes, population.constants, population.offsets)
    assert list(again) == list(population) and again.failures == []
    bad = srjit.Population.from_arrays([srjit.ops["add"].code], [0.0], [0, 1])
    assert len(bad.failures) == 1 and bad.failures[0].error.where.column == 1
    with pytest.raises(srjit.Error):
        bad[0]
    with pytest.raises(ValueError, match="beyond the range of int32"):
        srjit.Population.from_arrays([2**40], [0.0], [0, 1])
    with pytest.raises(TypeError, match="expected integers"):
        srjit.Population.from_arrays([0.5], [0.0], [0, 1])


def test_failures_of_texts():
    population = srjit.parse(["x0", "(", "x1"])
    assert [failure.expression for failure in population.failures] == [1]
    assert population[2] == "x1" and population[-1] == "x1"
    with pytest.raises(IndexError):
        population[3]
    with pytest.raises(ValueError, match="language is 'latin'"):
        srjit.parse("x0", "latin")


def test_simplify():
    assert srjit.simplify("x0*1 + 2*3 + (x1 - x1)") == "x0 + 6"
    assert srjit.simplify("x0*1 + 0", math="strict") == "x0 + 0"
    assert list(srjit.parse(["x0 + x0", "1 + 2"]).simplified())[1] == "3"


LATEX = {
    "`a%b` * `c$d` + _": r"\text{a\%b} \, \text{c\$d} + \mathrm{\_}",
    "net_mass / 2": r"\frac{\mathrm{net\_mass}}{2}",
    "1.7*sqrt(112/w)": r"1.7 \, \sqrt{\frac{112}{w}}",
    "`{x}^2 #&~\\\\`": r"\text{\{x\}\textasciicircum{}2 \#\&\textasciitilde{}\textbackslash{}}",
}
LATEX_NAMES = ["a%b", "c$d", "_", "net_mass", "w", "{x}^2 #&~\\"]


@pytest.mark.parametrize("text", LATEX)
def test_latex_is_what_is_written_with_names_escaped(text):
    assert srjit.latex(text, names=LATEX_NAMES) == LATEX[text]
    population = srjit.parse([text, "w"], names=LATEX_NAMES)
    assert srjit.latex(population) == [LATEX[text], "w"]
    assert srjit.latex([text, "w"], LATEX_NAMES) == [LATEX[text], "w"]


def test_latex_takes_other_names_and_refuses_what_is_no_expression():
    assert srjit.latex(srjit.parse("a + b", names=["a", "b"]), names=["alpha", "mass"]) == [r"\alpha + \mathrm{mass}"]
    assert srjit.latex("x0/2 + p1") == r"\frac{x_{0}}{2} + p_{1}"
    with pytest.raises(srjit.InvalidError):
        srjit.latex(["x0", "x0 +"])
    with pytest.raises(TypeError):
        srjit.latex(3)


def test_simplify_takes_one_text():
    with pytest.raises(TypeError, match="list"):
        srjit.simplify(["x0", "x1"])
    with pytest.raises(TypeError, match="slice"):
        srjit.parse(["x0", "x1"])[0:1]


def test_operators():
    assert srjit.ops["add"].text == "+" and srjit.ops["add"].arity == 2 and srjit.ops["sin"].arity == 1
    assert len({op.code for op in srjit.ops.values()}) == len(srjit.ops)
    assert "mse" in srjit.loss_names()


def test_errors_can_be_pickled():
    with pytest.raises(srjit.Error) as problem:
        srjit.parse("x0 + ")
    again = pickle.loads(pickle.dumps(problem.value))
    assert (type(again), str(again), again.code, again.where) == (
        srjit.InvalidError, str(problem.value), "syntax", problem.value.where)
