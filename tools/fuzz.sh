#!/usr/bin/env bash
# Runs fuzz targets (tests/fuzz) with libFuzzer, several at once, and counts their executions.
#
#   tools/fuzz.sh [--seconds N] [--jobs N] [--preset NAME] [--no-merge] [TARGET...]
#
#   --seconds N    how long each target runs (60)
#   --jobs N       how many run at once (one per core)
#   --preset NAME  whose programs run: fuzz, the optimised ones, or asan
#   --no-merge     new inputs stay as they are; else those that add nothing are removed
#   TARGET...      all, if none is named
#
# Inputs that reach new code are kept in build/fuzzing/corpus/TARGET, and each run begins with them and with
# tests/fuzz/corpus/TARGET. build/fuzzing/counts.tsv has a line for each run, and the sum of executions over all runs is
# printed. If a target fails, the input and the command that repeats the failure are printed, and the exit status is 1.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$SRJIT_ROOT"

seconds=60 jobs="$(nproc)" preset=fuzz merges=true targets=()
while (($#)); do
  case "$1" in
    --seconds | --jobs | --preset)
      (($# >= 2)) || fail "$1 needs a value"
      declare "${1#--}=$2"
      shift
      ;;
    --no-merge) merges=false ;;
    -*) fail "unknown option '$1'" "usage: tools/fuzz.sh [--seconds N] [--jobs N] [--preset NAME] [--no-merge] [TARGET...]" ;;
    *) targets+=("$1") ;;
  esac
  shift
done
[[ "$seconds" =~ ^[1-9][0-9]*$ && "$jobs" =~ ^[1-9][0-9]*$ ]] || fail "--seconds and --jobs are numbers from 1 on"
if ((${#targets[@]} == 0)); then
  for source in tests/fuzz/*.cpp; do targets+=("$(basename "$source" .cpp)"); done
fi
mapfile -t targets < <(printf '%s\n' "${targets[@]}" | sort -u)
for target in "${targets[@]}"; do
  [[ -f "tests/fuzz/$target.cpp" ]] || fail "there is no target '$target'" "tests/fuzz has a source for each"
done

# The environment of sanitized tests is written in one place.
eval "$(python3 - <<'PYTHON'
import json, os, shlex
presets = json.load(open("CMakePresets.json"))["testPresets"]
environment = next(preset for preset in presets if preset["name"] == "sanitized")["environment"]
for name, value in environment.items():
    print(f"export {name}={shlex.quote(value.replace('${sourceDir}', os.getcwd()))}")
PYTHON
)"

# Neither slows campaigns down: each allocation keeps few callers, and CI looks for uses of frames that have ended.
[[ "$preset" == asan ]] || ASAN_OPTIONS+=":malloc_context_size=4:detect_stack_use_after_return=0"
# Of programs that count lines, too: the tests alone are counted.
export LLVM_PROFILE_FILE=/dev/null

build_preset "$preset" --target fuzz_targets
folder="$SRJIT_ROOT/build/fuzzing" programs="$SRJIT_ROOT/build/$preset/tests"
mkdir -p "$folder/logs"
dictionary="$folder/words.dict"
"$programs/fuzz_dictionary" >"$dictionary"

# run_target TARGET: one run; its log has the statistics. Gives the status of the program.
run_target() {
  local target="$1" corpus="$folder/corpus/$1" log="$folder/logs/$1.log" status=0
  mkdir -p "$corpus" "$folder/failures/$target"
  "$programs/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -reload=0 -print_final_stats=1 \
    -dict="$dictionary" -artifact_prefix="$folder/failures/$target/" "$corpus" "tests/fuzz/corpus/$target" \
    >"$log" 2>&1 || status=$?
  if ((status == 0)) && $merges; then
    rm -rf "$corpus.merged"
    mkdir "$corpus.merged"
    if "$programs/fuzz_$target" -merge=1 -timeout=20 -rss_limit_mb=3000 "$corpus.merged" "tests/fuzz/corpus/$target" \
      "$corpus" >"$log.merge" 2>&1; then
      rm -rf "$corpus"
      mv "$corpus.merged" "$corpus"
    fi
  fi
  echo "$status" >"$log.status"
}

say "running ${#targets[@]} targets for $seconds s each, $jobs at once"
for target in "${targets[@]}"; do
  rm -f "$folder/logs/$target.log" "$folder/logs/$target.log.status"  # of an earlier run
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
  run_target "$target" &
done
wait

counts="$folder/counts.tsv" commit="$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" failed=()
[[ -f "$counts" ]] || printf 'date\tcommit\ttarget\texecutions\tseconds\n' >"$counts"
printf '%-12s %14s %10s %8s %8s  %s\n' target executions per_second inputs edges result
for target in "${targets[@]}"; do
  log="$folder/logs/$target.log"
  [[ -f "$log" ]] || : >"$log"
  executions="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)"
  edges="$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)"
  result=passed
  if [[ ! -f "$log.status" || "$(cat "$log.status")" != 0 ]]; then
    result=FAILED
    failed+=("$target")
  fi
  printf '%-12s %14s %10s %8s %8s  %s\n' "$target" "${executions:-0}" "$((${executions:-0} / seconds))" \
    "$(find "$folder/corpus/$target" -type f | wc -l)" "${edges:-0}" "$result"
  printf '%s\t%s\t%s\t%s\t%s\n' "$(date -u +%F)" "$commit" "$target" "${executions:-0}" "$seconds" >>"$counts"
done
say "$(awk -F '\t' 'NR > 1 {all += $4} END {printf "%d", all}' "$counts") executions in all runs (${counts#"$SRJIT_ROOT/"})"

for target in ${failed[@]+"${failed[@]}"}; do
  log="$folder/logs/$target.log"
  input="$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)"
  say "FAILED: $target (log: ${log#"$SRJIT_ROOT/"})"
  { grep -a -m 1 -A 8 -E 'broken rule|runtime error|terminate called|ERROR: ' "$log" || tail -n 8 "$log"; } | cut -c 1-200
  if [[ -n "$input" ]]; then note "again: ASAN_OPTIONS=$ASAN_OPTIONS build/$preset/tests/fuzz_$target $input"; fi
done
((${#failed[@]} == 0))
