"""Stages of the compiler as texts."""

import pytest
import srjit


def test_each_stage_that_needs_no_toolkit_is_there():
    stages = srjit.stages("x0*x1 + 2", precision="f64")
    assert "fma" in stages["passes"]
    assert ".entry" in stages["ptx"] and "fma.rn.f64" in stages["ptx"]
    assert "define" in stages["llvm"] and "define" in stages["llvm_host"]
    assert "vfmadd" in stages["asm"] or "fma" in stages["asm"]
    assert stages["bytecode"] and stages["bytecode_host"]
    assert "DFMA" in stages["sass_direct"]
    assert set(stages) == {"passes", "bytecode", "bytecode_host", "llvm", "llvm_host", "asm", "ptx", "sass", "sass_direct"}


def test_bad_text_is_an_error_with_a_caret():
    with pytest.raises(srjit.InvalidError, match=r"\^"):
        srjit.stages("x0 +")["ptx"]
    with pytest.raises(KeyError):
        srjit.stages("x0")["hologram"]
