#!/usr/bin/env bash
# Runs fuzz targets (tests/fuzz) with libFuzzer, several at once, and counts their executions.
#
#   tools/fuzz.sh [OPTION...] [TARGET...]
#
#   --seconds N     how long each target runs (60)
#   --jobs N        how many processes run at once (one per core)
#   --copies N      processes of each target (1), each with random numbers of its own
#   --preset NAME   whose programs are built and run: fuzz, the optimised ones, or asan
#   --programs DIR  runs the programs in DIR, which may have been built elsewhere, and builds nothing
#   --no-merge      new inputs stay as they are; else those that add nothing are removed
#   TARGET...       all, if none is named
#
# Inputs that reach new code are kept in build/fuzzing/corpus/TARGET, and each run begins with them and with
# tests/fuzz/corpus/TARGET. build/fuzzing/counts.tsv has a line for each run, and the sum of executions over all runs is
# printed. If a target fails, the input and the command that repeats the failure are printed, and the exit status is 1.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
caller="$PWD"
cd "$SRJIT_ROOT"

seconds=60 jobs="$(nproc)" copies=1 preset=fuzz programs='' merges=true targets=()
while (($#)); do
  case "$1" in
    --seconds | --jobs | --copies | --preset | --programs)
      [[ -n "${2-}" ]] || fail "$1 needs a value"
      declare "${1#--}=$2"
      shift
      ;;
    --no-merge) merges=false ;;
    -h | --help) show_usage; exit ;;
    -*) fail "unknown option '$1'" "the first lines of tools/fuzz.sh name all" ;;
    *) targets+=("$1") ;;
  esac
  shift
done
for number in "$seconds" "$jobs" "$copies"; do
  [[ "$number" =~ ^[1-9][0-9]*$ ]] || fail "--seconds, --jobs and --copies are numbers from 1 on"
done
if ((${#targets[@]} == 0)); then
  for source in tests/fuzz/*.cpp; do targets+=("$(basename "$source" .cpp)"); done
fi
mapfile -t targets < <(printf '%s\n' "${targets[@]}" | sort -u)
for target in "${targets[@]}"; do
  [[ -f "tests/fuzz/$target.cpp" ]] || fail "there is no target '$target'" "tests/fuzz has a source for each"
done

if [[ -n "$programs" ]]; then
  programs="$(cd "$caller" && realpath -m "$programs")"
  [[ -x "$programs/fuzz_dictionary" ]] || fail "there is no program $programs/fuzz_dictionary"
fi

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
# Of programs that count lines, too: only the tests are counted.
export LLVM_PROFILE_FILE=/dev/null

folder="$SRJIT_ROOT/build/fuzzing" commit=unknown
if [[ -z "$programs" ]]; then
  build_preset "$preset" --target fuzz_targets
  programs="build/$preset/tests"
  commit="$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
fi
mkdir -p "$folder/logs"
dictionary="$folder/words.dict"
"$programs/fuzz_dictionary" >"$dictionary"

# run_copy TARGET COPY: one process; its log has the statistics, and a file beside it the status of the program.
run_copy() {
  local target="$1" log="$folder/logs/$1.$2.log" status=0
  mkdir -p "$folder/corpus/$target" "$folder/failures/$target"
  "$programs/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -reload=0 -print_final_stats=1 \
    -dict="$dictionary" -artifact_prefix="$folder/failures/$target/" "$folder/corpus/$target" "tests/fuzz/corpus/$target" \
    >"$log" 2>&1 || status=$?
  echo "$status" >"$log.status"
}

# merge_corpus TARGET: keeps of the new inputs those that reach code that no other does.
merge_corpus() {
  local target="$1" corpus="$folder/corpus/$1"
  rm -rf "$corpus.merged"
  mkdir "$corpus.merged"
  if "$programs/fuzz_$target" -merge=1 -timeout=20 -rss_limit_mb=3000 "$corpus.merged" "tests/fuzz/corpus/$target" \
    "$corpus" >"$folder/logs/$target.merge.log" 2>&1; then
    rm -rf "$corpus"
    mv "$corpus.merged" "$corpus"
  else
    rm -rf "$corpus.merged"
    note "the inputs of $target stay as they are: merging failed (log: build/fuzzing/logs/$target.merge.log)"
  fi
}

# at_once COMMAND...: in the background, when fewer than $jobs run there.
at_once() {
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
  "$@" &
}

say "running ${#targets[@]} targets for $seconds s each, $copies processes of each, $jobs at once"
for target in "${targets[@]}"; do
  rm -f "$folder/logs/$target".*  # of an earlier run
  for ((copy = 1; copy <= copies; ++copy)); do at_once run_copy "$target" "$copy"; done
done
wait

statistics="$folder/counts.tsv" failed=() passed=()
[[ -f "$statistics" ]] || printf 'date\tcommit\ttarget\texecutions\tseconds\n' >"$statistics"
printf '%-12s %14s %10s %8s %8s  %s\n' target executions per_second inputs edges result
for target in "${targets[@]}"; do
  executions=0 edges=0 result=passed
  for ((copy = 1; copy <= copies; ++copy)); do
    log="$folder/logs/$target.$copy.log"
    [[ -f "$log" ]] || : >"$log"
    executed="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)"
    executions=$((executions + ${executed:-0}))
    reached="$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)"
    ((${reached:-0} <= edges)) || edges="$reached"
    if [[ ! -f "$log.status" || "$(cat "$log.status")" != 0 ]]; then
      result=FAILED
      failed+=("$target.$copy")
    fi
  done
  [[ "$result" == FAILED ]] || passed+=("$target")
  spent=$((seconds * copies))
  printf '%-12s %14s %10s %8s %8s  %s\n' "$target" "$executions" "$((executions / spent))" \
    "$(find "$folder/corpus/$target" -type f | wc -l)" "$edges" "$result"
  printf '%s\t%s\t%s\t%s\t%s\n' "$(date -u +%F)" "$commit" "$target" "$executions" "$spent" >>"$statistics"
done
say "$(awk -F '\t' 'NR > 1 {all += $4} END {printf "%d", all}' "$statistics") executions in all runs (${statistics#"$SRJIT_ROOT/"})"

for run in ${failed[@]+"${failed[@]}"}; do
  target="${run%.*}" log="$folder/logs/$run.log"
  input="$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)"
  say "FAILED: $run (log: ${log#"$SRJIT_ROOT/"})"
  { grep -a -m 1 -A 8 -E 'broken rule|runtime error|terminate called|ERROR: ' "$log" || tail -n 8 "$log"; } | cut -c 1-200
  if [[ -n "$input" ]]; then note "again: ASAN_OPTIONS=$ASAN_OPTIONS $programs/fuzz_$target $input"; fi
done
if $merges; then
  for target in ${passed[@]+"${passed[@]}"}; do at_once merge_corpus "$target"; done
  wait
fi
((${#failed[@]} == 0))
