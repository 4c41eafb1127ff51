"""Plants violations, one at a time, in a small repository and expects that check_layers reports each, and nothing else."""

import pathlib
import tempfile
import unittest

import check_code_sources
from check_layers import check

CLEAN = {
    "ir/ops.h": "#include <vector>\n",
    "ir/ops.cpp": '#include "ir/ops.h"\n#include <fmt/format.h>\n',
    "passes/llvm_passes.cpp": '#include <llvm/IR/Module.h>\n#include "ir/ops.h"\n',
    "compiler/jit.h": "#include <llvm/ExecutionEngine/Orc/LLJIT.h>\n#include <tbb/parallel_for.h>\n",
    "compiler/sass/encode.h": "",
    "compiler/direct/emitter.h": '#include "compiler/sass/encode.h"\n',
    "runtime/engine.h": '#include "ir/ops.h"\n',
    "runtime/engine.cpp": '#include "runtime/parts.h"\n#include "runtime/host/run.h"\n',
    "runtime/parts.h": '#include "runtime/cuda/driver.h"\n',
    "runtime/cuda/driver.h": "",
    "runtime/host/run.h": '#include "runtime/engine.h"\n',
    "tools/main.cpp": '#include "runtime/engine.h"\n#include <CLI/CLI.hpp>\n',
    "tools/bench/main.cpp": '#include "tests/generators/data.h"\n',
    "tests/generators/data.h": "",
    "tests/ir/ops.cpp": '#include "ir/ops.h"\n',
}
INSTALLED = ["ir/ops.h", "runtime/engine.h"]


class CheckLayers(unittest.TestCase):
    def violations(self, planted=None):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**CLEAN, **(planted or {})}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return check(root, INSTALLED)

    def assert_found(self, planted, *expected):
        found = self.violations(planted)
        self.assertEqual(len(found), 1, found)
        for text in expected:
            self.assertIn(text, found[0])

    def test_clean_repository(self):
        self.assertEqual(self.violations(), [])

    def test_include_of_a_later_layer(self):
        self.assert_found({"ir/a.cpp": '\n#include "passes/dag.h"\n'}, "ir/a.cpp:2:", "to the right of ir/")

    def test_include_not_from_the_root(self):
        self.assert_found({"ir/a.cpp": '#include "ops.h"\n'}, "ir/a.cpp:1:", "from the root")

    def test_missing_header(self):
        self.assert_found({"ir/a.cpp": '#include "ir/nothing.h"\n'}, "does not exist")

    def test_installed_spelling(self):
        self.assert_found({"tools/a.cpp": "#include <srjit/ir/ops.h>\n"}, "installed spelling")

    def test_llvm_in_ir(self):
        self.assert_found({"ir/a.cpp": "#include <llvm/IR/Module.h>\n"}, "of LLVM", "from passes/ on")

    def test_llvm_targets_in_passes(self):
        self.assert_found({"passes/a.cpp": "#include <llvm/MC/TargetRegistry.h>\n"}, "LLVM targets", "from compiler/ on")

    def test_tbb_in_passes(self):
        self.assert_found({"passes/a.cpp": "#include <tbb/parallel_for.h>\n"}, "oneTBB")

    def test_cuda_in_compiler(self):
        self.assert_found({"compiler/a.cpp": "#include <cuda.h>\n"}, "CUDA", "from runtime/ on")

    def test_foreign_type_in_installed_header(self):
        self.assert_found({"runtime/engine.h": "#include <fmt/format.h>\n"}, "runtime/engine.h:1:", "installed header")

    def test_installed_header_that_needs_a_private_one(self):
        planted = {"ir/private.h": "", "ir/ops.h": '#include "ir/private.h"\n'}
        self.assert_found(planted, "ir/ops.h:1:", "not installed")

    def test_room_without_a_door(self):
        self.assert_found({"runtime/host/run.cpp": '#include "runtime/cuda/driver.h"\n'}, "runtime/host/run.cpp:1:", "door")

    def test_rooms_in_the_wrong_order(self):
        self.assert_found({"compiler/sass/encode.cpp": '#include "compiler/direct/emitter.h"\n'}, "which may include compiler/target")

    def test_room_of_an_earlier_layer(self):
        self.assert_found({"runtime/cuda/driver.cpp": '#include "compiler/sass/encode.h"\n'}, "compiler/kernels")

    def test_internal_header_of_the_root(self):
        self.assert_found({"runtime/host/run.cpp": '#include "runtime/parts.h"\n'}, "no room's to include")

    def test_folder_that_is_no_room(self):
        self.assert_found({"compiler/attic/a.h": ""}, "compiler/attic is no room")

    def test_name_that_repeats_its_folder(self):
        self.assert_found({"compiler/sass/sass_print.h": ""}, "repeats")

    def test_tools_in_a_benchmark_alone(self):
        self.assert_found({"tools/main.cpp": '#include "tests/generators/data.h"\n'}, "tools/main.cpp:1:")

    def test_test_of_an_earlier_layer(self):
        self.assert_found({"tests/ir/ops.cpp": '#include "runtime/engine.h"\n'}, "to the right of tests of ir/")

    def test_folder_name(self):
        self.assert_found({"ir/utils/a.h": ""}, "ir/utils:1:")

    def test_top_level(self):
        self.assert_found({"scripts/a.sh": ""}, "scripts:1:")


class CheckCodeSources(unittest.TestCase):
    def test_moved_file(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for name in ["ir/ops.def", "compiler/sass/encode.h", "runtime/engine.cpp"]:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text("", encoding="utf-8")
            listed = {root / "ir/ops.def"}
            self.assertEqual(check_code_sources.missing(root, listed), [root / "compiler/sass/encode.h"])
            self.assertEqual(check_code_sources.missing(root, {*listed, root / "compiler/sass/encode.h"}), [])


if __name__ == "__main__":
    unittest.main()
