#!/usr/bin/env bash
# Checks a machine with a GPU: tests, compute-sanitizer where it is found, and the benchmark of docs/history/measurements.md.
# Needs nothing but the programs of the preset `static` (docs/internals/contributing.md), which may have been built elsewhere.
#
#   tools/gpu-check.sh [DIR]     DIR holds sr-jit, test_gpu and sr-jit-bench (build/static)
#
#   --out DIR          where logs and JSON go (build/gpu-check)
#   --quick            few tests, a short benchmark
#   --skip-sanitizer   no compute-sanitizer
#   --wheels DIR       also tests the Python package: DIR has its wheel and those that it and its tests need and the
#                      machine's python3 lacks
#   --only-bench       only the benchmark
#   --time-limit S     seconds for all of it (1500); later steps count as failed
#   --commit NAME      the commit that was built, for the report
#   --rehearse         without a GPU: the tests that can on the processor, and a quick benchmark of it
#
# The exit status is 0 if all passed, 1 if something failed, 2 for wrong usage, 3 without a GPU.
set -uo pipefail

fail() { # fail STATUS MESSAGE...
  local status="$1"
  shift
  printf 'error: %s\n' "$@" >&2
  exit "$status"
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
programs='' wheels='' out='' limit=1500 commit='' quick=false sanitizer=true bench_only=false device=cuda:0
while (($#)); do
  case "$1" in
    --out | --time-limit | --commit | --wheels)
      (($# > 1)) || fail 2 "$1 needs a value"
      case "$1" in
        --out) out="$2" ;;
        --time-limit) limit="$2" ;;
        --commit) commit="$2" ;;
        --wheels) wheels="$2" ;;
      esac
      shift
      ;;
    --quick) quick=true ;;
    --skip-sanitizer) sanitizer=false ;;
    --only-bench) bench_only=true ;;
    --rehearse) device=cpu ;;
    --help | -h)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    -*) fail 2 "unknown option '$1'; $(basename "$0") --help tells" ;;
    *)
      [[ -z "$programs" ]] || fail 2 "two directories: '$programs' and '$1'"
      programs="$1"
      ;;
  esac
  shift
done
[[ "$limit" =~ ^[1-9][0-9]*$ ]] || fail 2 "--time-limit $limit: expected seconds"
[[ "$device" == cpu ]] && quick=true sanitizer=false
programs="${programs:-$here/../build/static}"
out="${out:-$here/../build/gpu-check}"
for program in sr-jit test_gpu sr-jit-bench; do
  [[ -x "$programs/$program" ]] || fail 2 "no program $programs/$program; docs/internals/contributing.md says how to build it"
done
programs="$(cd "$programs" && pwd)"
if [[ -n "$wheels" ]]; then
  compgen -G "$wheels/srjit-*.whl" >/dev/null || fail 2 "no srjit-*.whl in $wheels"
  wheels="$(cd "$wheels" && pwd)"
fi
mkdir -p "$out" && out="$(cd "$out" && pwd)" || fail 2 "cannot make the directory $out"
rm -f "$out"/*.log "$out"/*.json "$out"/*.xml
if [[ -z "$commit" ]]; then
  commit="$(git -C "$here" describe --always --dirty 2>/dev/null)" || commit=unknown
fi

# Kernels that one step made serve the next. A cache of an earlier run would hide what making them costs, and its
# failures.
export SRJIT_CACHE_DIR="$out/cache" SRJIT_GPU_TEST_CACHE="$out/cache" SRJIT_GPU_TEST_DEVICE="$device"
rm -rf "$SRJIT_CACHE_DIR"

started=$SECONDS
summary="$out/summary.txt"
: >"$summary"
tell() { printf '%s\n' "$*" | tee -a "$summary"; }
failures=0

# step NAME SECONDS COMMAND...: runs it with a log and a limit, within the limit of the whole.
step() {
  local name="$1" seconds="$2" status=0 before=$SECONDS left=$((limit - (SECONDS - started)))
  shift 2
  if ((left < 1)); then
    tell "FAILED  $name: not run, the $limit s were up"
    failures=$((failures + 1))
    return 1
  fi
  timeout --kill-after=10 "$((seconds < left ? seconds : left))" "$@" >"$out/$name.log" 2>&1 || status=$?
  case "$status" in
    0) tell "passed  $name ($((SECONDS - before)) s)" ;;
    124 | 137) tell "FAILED  $name: stopped after $((SECONDS - before)) s (see $out/$name.log)" ;;
    *) tell "FAILED  $name: exit status $status after $((SECONDS - before)) s (see $out/$name.log)" ;;
  esac
  if ((status != 0)); then
    failures=$((failures + 1))
    grep -E 'FAILED|Failure|^error|ERROR SUMMARY|========= [A-Z]' "$out/$name.log" | head -n 20 | sed 's/^/        /' | tee -a "$summary"
  fi
  return "$status"
}

sanitizer_program() {
  command -v compute-sanitizer && return
  local root
  for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    [[ -n "$root" && -x "$root/bin/compute-sanitizer" ]] && printf '%s\n' "$root/bin/compute-sanitizer" && return
  done
  return 1
}

# A case that is skipped everywhere would pass unnoticed.
"$programs/sr-jit" doctor >"$out/doctor.log" 2>&1
probe="$("$programs/test_gpu" --gtest_filter='Async.LossesInFlightEqualSequentialOnes' 2>&1)"
if grep -q 'no GPU to test' <<<"$probe"; then
  grep -m 1 -o 'no GPU to test.*' <<<"$probe" >&2
  fail 3 "this machine has no GPU that can be used, so nothing was checked ('sr-jit doctor' tells more)"
fi

tell "device $device, programs $programs, commit $commit, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
if ! $bench_only; then
  # The direct tier's tests and the soaks are a step of their own.
  filter='-*Direct*:*Soak*'
  $quick && filter+=':*OfAllOperators*:EachOperator*:Modes/EachOperator*:*OfEveryLoss*'
  step test_gpu 400 "$programs/test_gpu" --gtest_filter="$filter" --gtest_output="json:$out/test_gpu.json"
  grep -E '^\[  (PASSED|SKIPPED|FAILED) +\] [0-9]+ tests?|ms of compiling|pipelined' "$out/test_gpu.log" | sed 's/^/        /' | tee -a "$summary"
  export SRJIT_SOAK_SECONDS=10 # in each test
  $quick && SRJIT_SOAK_SECONDS=2
  step direct 300 "$programs/test_gpu" --gtest_filter='*Direct*:*Soak*' --gtest_output="json:$out/direct.json"
  grep -E '^\[  (PASSED|SKIPPED|FAILED) +\] [0-9]+ tests?|soak:' "$out/direct.log" | sed 's/^/        /' | tee -a "$summary"
fi

python_tests() {
  rm -rf "$out/python"
  python3 -m pip install --quiet --no-index --no-deps --target "$out/python" "$wheels"/*.whl &&
    SRJIT_TEST_DEVICE="$device" PYTHONPATH="$out/python" python3 -m pytest -p no:cacheprovider -q \
      --junit-xml="$out/python.xml" "$here/../python/tests"
}
if ! $bench_only && [[ -n "$wheels" ]]; then
  export -f python_tests
  export out wheels device here
  step python 300 bash -c python_tests
  tail -n 1 "$out/python.log" | sed 's/^/        /' | tee -a "$summary"
fi

if ! $bench_only && $sanitizer; then
  if tool="$(sanitizer_program)"; then
    # Refused calls of the driver are the library's to handle, and its tests'.
    for kind in memcheck racecheck initcheck; do
      step "$kind" 300 "$tool" --tool "$kind" --error-exitcode 99 --report-api-errors no \
        "$programs/test_gpu" --gtest_filter='*Sanitize*'
    done
  else
    tell "skipped compute-sanitizer: not found"
  fi
fi

bench=(--device "$device" --json "$out/bench.json" --commit "$commit")
$quick && bench+=(--quick)
$quick || bench+=(--seconds 370)
step bench 400 "$programs/sr-jit-bench" "${bench[@]}"
grep -E ' (reached|MISSED) |^FAILED|samples\]' "$out/bench.log" | tee -a "$summary"

if ((failures)); then
  tell "$failures steps failed; $((SECONDS - started)) s; logs in $out"
  exit 1
fi
tell "all passed; $((SECONDS - started)) s; figures in $out/bench.json"
