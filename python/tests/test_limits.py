"""Limits of calls, for expressions from elsewhere."""

import numpy as np
import pytest
import srjit

from conftest import DEVICE


def limited(**limits):
    return srjit.Engine(DEVICE, precision="f64", **limits)


def test_an_expression_with_too_many_nodes_fails_alone(table):
    engine = limited(max_nodes=3)
    data = engine.upload(*table)
    program = engine.compile(["x0 + x1", "x0 + x1 + x2", "x2"])
    (failure,) = program.failures
    assert failure.expression == 1
    assert failure.error.code == "limit"
    assert failure.error.where.column == 11
    assert "at most 3; a larger max_nodes" in str(failure.error)
    assert np.isnan(engine.loss(program, data).values).tolist() == [False, True, False]
    with pytest.raises(srjit.Error, match="max_nodes"):
        engine.compile("x0 + x1 + x2")
    arrays = np.array([-1, -1, 3, -1, 3]), np.zeros(5), np.array([0, 5])
    assert engine.loss(arrays, data).failures[0].error.code == "limit"


def test_a_call_with_too_many_nodes_or_seconds_is_an_error(table):
    engine = limited(max_call_nodes=5)
    with pytest.raises(srjit.Error, match="6 nodes in all expressions") as refused:
        engine.compile(["x0 + x1", "x0 + x2"])
    assert refused.value.code == "limit"
    late = limited(max_seconds=1e-9)
    data = late.upload(*table)
    with pytest.raises(srjit.Error, match="max_seconds") as stopped:
        late.compile(["x0"])
    assert stopped.value.code == "limit"
    with pytest.raises(srjit.Error, match="max_seconds"):
        late.loss((np.array([-1]), np.zeros(1), np.array([0, 1])), data)


def test_limits_are_no_other_numbers():
    with pytest.raises(ValueError, match="max_seconds is -1"):
        limited(max_seconds=-1)
    with pytest.raises(ValueError):
        limited(max_nodes=-1)
    with pytest.raises(TypeError):
        limited(max_nodes=1.5)


def test_parse_reads_no_more(engine):
    assert len(srjit.parse("x0 + x1", max_nodes=3)) == 1
    with pytest.raises(srjit.Error) as refused:
        srjit.parse("x0 + x1 + x2 + nonsense(", max_nodes=3)
    assert refused.value.code == "limit"
    assert [f.expression for f in srjit.parse(["x0", "x0*x1"], max_nodes=1).failures] == [1]
