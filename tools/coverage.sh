#!/usr/bin/env bash
# Prints which part of the lines of each layer the tests of the preset `asan` have run, and how much of each source that
# is below the limit. Fails if it is less than the limit of all lines. Run the tests first: ctest --preset asan.
#
#   tools/coverage.sh [--lines]    --lines: also the lines that never ran, source by source
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$SRJIT_ROOT"

if [[ "${1-}" == -h || "${1-}" == --help ]]; then
  show_usage
  exit
fi
build=build/asan profiles=(build/asan/profiles/*.profraw)
[[ -e "${profiles[0]}" ]] || fail "no test has run" "ctest --preset asan writes $build/profiles"
llvm-profdata-19 merge -sparse -o "$build/tests.profdata" "${profiles[@]}"
# Functions of all layers are in these programs; what others ran of them is in the profiles.
programs=("$build/sr-jit")
for layer in ir passes compiler runtime tools; do programs+=(-object "$build/tests/test_$layer"); done
llvm-cov-19 export "${programs[@]}" -instr-profile="$build/tests.profdata" -format=lcov \
  -ignore-filename-regex='^/usr/|/build/' >"$build/coverage.lcov" 2>"$build/coverage.log"
python3 -B tools/coverage.py "$SRJIT_ROOT" "$build/coverage.lcov" "$@"
