# Golden tests over the command's output. A test may use %sr-jit, %s, %S, %t, FileCheck, not, and `REQUIRES:` with ptxas,
# nvdisasm or the processor's name.
import os
import pathlib
import platform
import shutil

import lit.formats

config.name = "sr-jit"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".test"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = lit_config.params["output"]

config.substitutions.append(("%sr-jit", lit_config.params["sr_jit"]))
config.environment["PATH"] = os.pathsep.join([lit_config.params["llvm_tools"], os.environ.get("PATH", "")])
# Tests use a cache directory of their own, not the user's.
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "cache")
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "SRJIT_CUDA_HOME", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

# Searched here, independently of the command, so that a fault in the command's search does not skip the tests.
variables = (os.environ.get(name) for name in ("SRJIT_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"))
toolkits = [pathlib.Path(root) for root in (*variables, "/usr/local/cuda", "/opt/cuda", "/usr/lib/nvidia-cuda-toolkit") if root]
for tool in ("ptxas", "nvdisasm"):
    if shutil.which(tool) or any((root / "bin" / tool).is_file() for root in toolkits):
        config.available_features.add(tool)
config.available_features.add(platform.machine())
