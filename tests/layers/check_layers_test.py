"""Plants violations, one at a time, in a small repository and expects that check_layers reports each, and nothing else."""

import contextlib
import pathlib
import tempfile
import unittest
from unittest import mock

import check_code_sources
import check_loss_readers
from check_layers import check, unused_rows
from rooms import ROOMS

CLEAN = {
    "ir/ops.h": "#include <vector>\n",
    "ir/ops.cpp": '#include "ir/ops.h"\n#include <fmt/format.h>\n',
    "passes/llvm_passes.cpp": '#include <llvm/IR/Module.h>\n#include "ir/ops.h"\n',
    "compiler/jit.h": "#include <llvm/ExecutionEngine/Orc/LLJIT.h>\n#include <tbb/parallel_for.h>\n",
    "compiler/sass/encode.h": "",
    "compiler/direct/emitter.h": '#include "compiler/sass/encode.h"\n',
    "runtime/dataset.h": "",
    "runtime/engine.h": '#include "ir/ops.h"\n#include "runtime/dataset.h"\n',
    "runtime/engine.cpp": '#include "runtime/parts.h"\n#include "runtime/host/run.h"\n',
    "runtime/parts.h": '#include "runtime/cuda/driver.h"\n',
    "runtime/cuda/driver.h": "",
    "runtime/host/run.h": '#include "runtime/dataset.h"\n',
    "tools/main.cpp": '#include "runtime/engine.h"\n#include <CLI/CLI.hpp>\n',
    "tools/bench/main.cpp": '#include "tests/generators/data.h"\n',
    "tests/generators/data.h": "",
    "tests/generators/data.cpp": "",
    "tests/generators/CMakeLists.txt": "file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)\n",
    "CMakeLists.txt": "add_subdirectory(tests/generators)\n",
    "tests/ir/ops.cpp": '#include "ir/ops.h"\n',
}
INSTALLED = ["ir/ops.h", "runtime/dataset.h", "runtime/engine.h"]


@contextlib.contextmanager
def planted(files):
    """A folder with these files, by name."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        yield root


class CheckLayers(unittest.TestCase):
    def violations(self, violation=None):
        with planted({**CLEAN, **(violation or {})}) as root:
            return check(root, INSTALLED)

    def assert_found(self, violation, *expected):
        found = self.violations(violation)
        self.assertEqual(len(found), 1, found)
        for text in expected:
            self.assertIn(text, found[0])

    def test_clean_repository(self):
        self.assertEqual(self.violations(), [])

    def test_include_of_a_later_layer(self):
        self.assert_found({"ir/a.cpp": '\n#include "passes/dag.h"\n'}, "ir/a.cpp:2:", "to the right of ir/")

    def test_header_of_one_room(self):
        self.assert_found({"compiler/direct/a.cpp": "#include <dlfcn.h>\n"}, "compiler/direct/a.cpp:1:",
                          "by compiler/loader/ alone")
        self.assertEqual(self.violations({"compiler/loader/a.cpp": "#include <dlfcn.h>\n"}), [])

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
        self.assert_found({"ir/private.h": "", "ir/ops.h": '#include "ir/private.h"\n'}, "ir/ops.h:1:", "not installed")

    def test_room_that_is_not_allowed(self):
        self.assert_found({"runtime/host/run.cpp": '#include "runtime/cuda/driver.h"\n'}, "runtime/host/run.cpp:1:",
                          "is not for runtime/host/")

    def test_header_that_is_no_door(self):
        files = {"runtime/subtrees/columns.h": '#include "runtime/subtrees/kept.h"\n', "runtime/subtrees/kept.h": "",
                 "runtime/tiers/a.h": '#include "runtime/subtrees/columns.h"\n'}
        self.assertEqual(self.violations(files), [])
        for source in ["runtime/tiers/a.cpp", "runtime/dataset.cpp", "tools/a.cpp"]:
            self.assert_found({**files, source: '#include "runtime/subtrees/kept.h"\n'}, f"{source}:1:",
                              "no door of runtime/subtrees/", "runtime/subtrees/columns.h alone")

    def test_facade_in_a_room(self):
        self.assert_found({"runtime/host/run.cpp": '#include "runtime/engine.h"\n'}, "runtime/host/run.cpp:1:",
                          "for users of runtime/")
        for installed in [[], ["runtime/engine_parts.h"]]:
            files = {**CLEAN, "runtime/engine_parts.h": "", "runtime/host/a.cpp": '#include "runtime/engine_parts.h"\n'}
            with planted(files) as root:
                found = check(root, [*INSTALLED, *installed])
            self.assertEqual(len(found), 1, found)
            self.assertIn("for users of runtime/", found[0])

    def test_room_that_may_include_the_facade(self):
        with mock.patch.dict("check_layers.FACADE", {"runtime/engine.h": ["runtime/host"]}):
            self.assertEqual(self.violations({"runtime/host/run.cpp": '#include "runtime/engine.h"\n'}), [])
            self.assert_found({"runtime/cuda/a.cpp": '#include "runtime/engine.h"\n'}, "runtime/cuda/a.cpp:1:")

    def test_rooms_that_include_each_other(self):
        rooms = {**ROOMS, "compiler/sass": ("", ["compiler/target", "compiler/direct"])}
        with mock.patch.dict("check_layers.ROOMS", rooms):
            self.assert_found({}, "compiler/sass includes compiler/direct, which is not named before it")
        with mock.patch.dict("check_layers.ROOMS", {**ROOMS, "compiler/sass": ("", ["compiler/sass"])}):
            self.assert_found({}, "compiler/sass includes compiler/sass, which is not named before it")

    def test_rows_that_nobody_uses(self):
        rooms = {"compiler/sass": ("", []), "compiler/direct": ("", ["compiler/sass"])}
        files = {"compiler/direct/a.h": '#include "compiler/sass/encode.h"\n', "compiler/sass/encode.h": "",
                 "compiler/sass/a.h": '#include "compiler/sass/table.h"\n',
                 "tests/compiler/sass/a.cpp": '#include "compiler/direct/a.h"\n'}
        with mock.patch.dict("check_layers.ROOMS", rooms, clear=True), \
             mock.patch.dict("check_layers.DOORS", {"compiler/sass": ["encode.h"]}, clear=True), \
             mock.patch.dict("check_layers.TESTED_WITH", {"compiler/sass": ["compiler/direct"]}, clear=True):
            with planted(files) as root:
                self.assertEqual(list(unused_rows(root)), [])
            with planted({**files, "compiler/direct/a.h": ""}) as root:
                self.assertEqual(list(unused_rows(root)), [
                    "tests/layers/rooms.py:1: compiler/direct may include compiler/sass, and does not",
                    "tests/layers/rooms.py:1: compiler/sass/encode.h is a door that nobody includes"])
            with planted({**files, "tests/compiler/sass/a.cpp": ""}) as root:
                self.assertEqual(list(unused_rows(root)), [
                    "tests/layers/rooms.py:1: tests of compiler/sass are in TESTED_WITH for compiler/direct, and need not be"])
            with mock.patch.dict("check_layers.DOORS", {"compiler/sass": ["encode.h", "table.h"]}), planted(files) as root:
                self.assertEqual(list(unused_rows(root)),
                                 ["tests/layers/rooms.py:1: compiler/sass/table.h is a door that nobody includes"])

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

    def test_test_that_reaches_a_later_layer(self):
        files = {"tests/ir/ops.cpp": '#include "tests/generators/data.h"\n',
                 "tests/generators/data.h": '#include "tests/generators/workload.h"\n',
                 "tests/generators/workload.h": '#include "runtime/engine.h"\n'}
        self.assert_found(files, "tests/ir/ops.cpp:1:", '"runtime/engine.h"', "to the right of tests of ir/")

    def test_test_of_another_room(self):
        name, text = "tests/compiler/sass/a_test.cpp", '#include "compiler/sass/encode.h"\n#include "compiler/direct/emitter.h"\n'
        self.assert_found({name: text}, f"{name}:2:", "is not for tests of compiler/sass/")
        with mock.patch.dict("check_layers.TESTED_WITH", {"compiler/sass": ["compiler/direct"]}):
            self.assertEqual(self.violations({name: text}), [])
        self.assertEqual(self.violations({"tests/compiler/direct/a_test.cpp": text}), [])

    def test_header_that_reads_the_operator_table(self):
        files = {"ir/table.h": '#include "ir/ops.def"\n', "ir/ops.def": "", "runtime/parts.h": '#include "ir/table.h"\n'}
        self.assert_found(files, "runtime/parts.h:1:", "reads ir/ops.def")

    def test_list_of_sources_without_folders(self):
        for text in ["\nfile(GLOB sources CONFIGURE_DEPENDS *.cpp)\n", "\nfile(GLOB sources\n  a/*.h b/*.cpp)\n"]:
            self.assert_found({"tools/CMakeLists.txt": text}, "tools/CMakeLists.txt:2:", "use GLOB_RECURSE")
        self.assert_found({"tools/cmake/Layer.cmake": "file(GLOB sources *.cpp)\n"}, "tools/cmake/Layer.cmake:1:")
        self.assertEqual(self.violations({"tools/CMakeLists.txt": "file(GLOB texts *.txt)\n"}), [])

    def test_folder_of_tests_in_no_target(self):
        self.assert_found({"CMakeLists.txt": ""}, "tests/generators:1:", "no CMakeLists.txt adds it")
        self.assertEqual(self.violations({"CMakeLists.txt": "", "tests/CMakeLists.txt": "add_subdirectory(generators)\n"}), [])

    def test_folder_name(self):
        self.assert_found({"ir/utils/a.h": ""}, "ir/utils:1:")

    def test_top_level(self):
        self.assert_found({"scripts/a.sh": ""}, "scripts:1:")


class CheckCodeSources(unittest.TestCase):
    SOURCES = {
        "ir/ops.def": "",
        "compiler/sass/encode.h": "",
        "runtime/engine.cpp": "",
        "runtime/launch/run.h": "DirectGrid grid;\n",
        "runtime/launch/run.cpp": "",
    }
    HASHED = {"ir/ops.def", "compiler/sass/encode.h", "runtime/launch/run.h", "runtime/launch/run.cpp"}

    def faults(self, hashed):
        with planted(self.SOURCES) as root:
            return list(check_code_sources.faults(root, {root / name for name in hashed}))

    def test_all_that_decides_code(self):
        self.assertEqual(self.faults(self.HASHED), [])

    def test_each_missing_file(self):
        for name in self.HASHED:
            found = self.faults(self.HASHED - {name})
            self.assertEqual(len(found), 1, found)
            self.assertIn(f"{name} decides", found[0])

    def test_moved_file(self):
        self.assertEqual(self.faults(self.HASHED | {"runtime/gpu/launch.cpp"}),
                         ["runtime/gpu/launch.cpp is in the hash of kernels' keys, but does not exist"])

    def test_file_that_decides_nothing(self):
        self.assertIn("decides no code", self.faults(self.HASHED | {"runtime/engine.cpp"})[0])


class CheckLossReaders(unittest.TestCase):
    SOURCES = {
        "ir/losses.h": '#include "ir/losses.def"\nT lossTerm();\n',
        "ir/losses.def": "",
        "ir/losses.cpp": '#include "ir/losses.h"\n#include "ir/losses.def"\n',
        "compiler/host/kernels.cpp": '#include "ir/losses.h"\nlossTerm(x);\n',
        "runtime/engine.cpp": '#include "ir/losses.h"\n// lossTerm() is called elsewhere\n',
        "tests/gpu_model/memory.h": "withLossFormula(x);\n",
        "tests/gpu_model/kernels.cpp": '#include "tests/gpu_model/memory.h"\n',
    }
    READERS = ["ir/losses.cpp", "compiler/host/kernels.cpp", "tests/gpu_model/kernels.cpp"]

    def faults(self, listed):
        listing = {"tests/more_losses/CMakeLists.txt": f"set(readers {' '.join(listed)})\n"}
        with planted({**self.SOURCES, **listing}) as root:
            return list(check_loss_readers.faults(root))

    def test_all_readers(self):
        self.assertEqual(self.faults(self.READERS), [])

    def test_each_missing_reader(self):
        for name in self.READERS:
            found = self.faults([other for other in self.READERS if other != name])
            self.assertEqual(found, [f"{name} reads the table of losses, but tests/more_losses/CMakeLists.txt does not list it"])

    def test_file_that_reads_nothing(self):
        self.assertIn("does not read", self.faults([*self.READERS, "runtime/engine.cpp"])[0])


if __name__ == "__main__":
    unittest.main()
