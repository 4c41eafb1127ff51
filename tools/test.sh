#!/usr/bin/env bash
# Installs missing packages, then builds and runs every test. Can be run again at any time.
#
#   tools/test.sh           everything: release, Python package, sanitizers, coverage, fuzzing, format, clang-tidy
#   tools/test.sh --quick   only the format and the release preset's tests
#
# The last line is `N passed, N failed` (and `, N skipped`); the exit status is 0 only if nothing failed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$SRJIT_ROOT"

quick=false
for argument in "$@"; do
  case "$argument" in
    --quick) quick=true ;;
    -h | --help) show_usage; exit ;;
    *) fail "unknown option '$argument'" "usage: tools/test.sh [--quick]" ;;
  esac
done

fuzz_seconds=60
passed=0 failed=0 skipped=0
started=$SECONDS
count() { # count NAME STATUS: adds one check to the totals
  if (($2 == 0)); then
    passed=$((passed + 1))
    note "passed: $1"
  else
    failed=$((failed + 1))
    note "FAILED: $1"
  fi
}

# run_ctest PRESET: runs the preset's tests and adds their numbers, read from the report that ctest writes.
run_ctest() {
  local preset="$1" report="$SRJIT_ROOT/build/$1-tests.xml" numbers
  say "running the tests of the preset '$preset'"
  rm -f "$report"
  ctest --preset "$preset" -j "$(nproc)" --output-junit "$report" --progress >"build/$preset-tests.log" 2>&1 || true
  if ! numbers="$(python3 -B tests/count_tests.py "$report")"; then
    tail -n 30 "build/$preset-tests.log" >&2
    count "tests of the preset '$preset' (see build/$preset-tests.log)" 1
    return
  fi
  read -r new_passed new_failed new_skipped <<<"$numbers"
  passed=$((passed + new_passed)) failed=$((failed + new_failed)) skipped=$((skipped + new_skipped))
  note "$new_passed passed, $new_failed failed, $new_skipped skipped; $((SECONDS - started)) s since the start"
  if ((new_failed)); then
    grep -E -B 2 -A 25 'Failure$|ERROR: |WARNING: ThreadSanitizer|runtime error|\*\*\*Failed' "build/$preset-tests.log" | tail -n 150 >&2 || true
  fi
}

# run_pytest: builds the Python package's wheel, tests it, and adds the numbers of pytest's report.
run_pytest() {
  local report="$SRJIT_ROOT/build/python-tests.xml" numbers
  rm -f "$report"
  tools/python.sh --test || true
  if ! numbers="$(python3 -B tests/count_tests.py "$report")"; then
    count "tests of the Python package" 1
    return
  fi
  read -r new_passed new_failed new_skipped <<<"$numbers"
  passed=$((passed + new_passed)) failed=$((failed + new_failed)) skipped=$((skipped + new_skipped))
  note "$new_passed passed, $new_failed failed, $new_skipped skipped; $((SECONDS - started)) s since the start"
}

sources_of() { find "$@" -type f \( -name '*.cpp' -o -name '*.h' \) | sort; }

check_warnings() {
  ! grep -E '(ir|passes|compiler|runtime|tools|tests)/[^ ]+: warning: ' build/release.log >&2
}

check_format() {
  sources_of ir passes compiler runtime tools tests docs/examples python/core | xargs clang-format-19 --dry-run --Werror
}

# All sources of a target are checked in one run, so that LLVM's headers are read once for each.
check_tidy() {
  cmake --preset tidy >build/tidy.log 2>&1 &&
    run-clang-tidy-19 -p build/tidy -quiet -j "$(nproc)" -warnings-as-errors='*' "^$SRJIT_ROOT/(build/tidy/.*/Unity|ir|passes|compiler|runtime|tools)/" \
      >>build/tidy.log 2>&1 || {
    grep -E 'error: |warning: ' build/tidy.log >&2 || tail -n 30 build/tidy.log >&2
    return 1
  }
}

# check NAME COMMAND...: one counted check.
check() {
  local name="$1" status=0
  shift
  say "checking $name"
  "$@" || status=$?
  count "$name" "$status"
}

install_packages "${SRJIT_BUILD_PACKAGES[@]}" "${SRJIT_TEST_PACKAGES[@]}"
describe_cuda
check "the format of all sources" check_format
build_preset release
check "that the compiler gave no warning" check_warnings
run_ctest release
if ! $quick; then
  run_pytest
  check "that the site of the pages builds" tools/docs.sh
  build_preset asan
  rm -rf build/asan/profiles
  run_ctest asan
  check "that tests run the lines of all layers" tools/coverage.sh
  # All in two rounds on two cores, since CI has little time: longer runs are for campaigns.
  check "all fuzz targets for $fuzz_seconds s each" \
    tools/fuzz.sh --preset asan --seconds "$fuzz_seconds" --jobs "$((7 * $(nproc) / 2))" --no-merge
  # What runs on several threads at once, on the model of a GPU. The command and the other tests are not built.
  build_preset tsan --target test_runtime
  run_ctest tsan
  check "the sources with clang-tidy" check_tidy
fi

say "finished after $((SECONDS - started)) s"
printf '%d passed, %d failed' "$passed" "$failed"
if ((skipped)); then printf ', %d skipped' "$skipped"; fi
printf '\n'
((failed == 0))
