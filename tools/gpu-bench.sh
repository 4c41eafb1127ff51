#!/usr/bin/env bash
# Runs the benchmark's scenarios (docs/performance.md) on this machine and draws their figures. Needs nothing but the
# programs of the preset `static` (docs/internals/contributing.md), which may have been built elsewhere; the figures need python3
# with matplotlib, and can be drawn from the JSON on any machine: tools/bench/plot OUT/scenarios.json --out FOLDER
#
#   tools/gpu-bench.sh [DIR] [SCENARIO...]     DIR holds sr-jit-gpu-bench (build/static); without names, all scenarios
#
#   --out DIR          where table.txt, scenarios.json and figures/ go (build/gpu-bench); what is kept with figures
#                      is their scenarios.json, from which they can be drawn again and with which a later run can be
#                      compared (tools/bench/compare)
#   --quick            small sizes: one minute
#   --device NAME      cuda:0; cpu; or auto, a GPU if there is one (auto)
#   --seconds S        limit for all of it (600; quick 60)
#   --commit NAME      what was built, for the report (git's description of this folder)
#
# The exit status is that of sr-jit-gpu-bench: 0 if all ran, 2 for wrong usage, 3 without the device or if one failed.
set -uo pipefail

fail() { # fail STATUS MESSAGE...
  local status="$1"
  shift
  printf 'error: %s\n' "$@" >&2
  exit "$status"
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
programs='' out='' commit='' scenarios=() options=() device=auto
while (($#)); do
  case "$1" in
    --out | --commit | --device | --seconds)
      (($# > 1)) || fail 2 "$1 needs a value"
      case "$1" in
        --out) out="$2" ;;
        --commit) commit="$2" ;;
        --device) device="$2" ;;
        --seconds) options+=("$1" "$2") ;;
      esac
      shift
      ;;
    --quick) options+=(--quick) ;;
    --help | -h)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    -*) fail 2 "unknown option '$1'; $(basename "$0") --help tells" ;;
    *)
      if [[ -z "$programs" && -d "$1" ]]; then programs="$1"; else scenarios+=("$1"); fi
      ;;
  esac
  shift
done
programs="${programs:-$here/../build/static}"
out="${out:-$here/../build/gpu-bench}"
[[ -x "$programs/sr-jit-gpu-bench" ]] ||
  fail 2 "no program $programs/sr-jit-gpu-bench; docs/internals/contributing.md says how to build it"
mkdir -p "$out" || fail 2 "cannot make the directory $out"
if [[ -z "$commit" ]]; then
  commit="$(git -C "$here" describe --always --dirty 2>/dev/null)" || commit=''
fi
[[ -z "$commit" ]] || options+=(--commit "$commit")
((${#scenarios[@]})) || scenarios=(all)

# That of an earlier run must not be drawn for this one.
rm -f "$out/scenarios.json"
status=0
"$programs/sr-jit-gpu-bench" "${scenarios[@]}" --device "$device" --json "$out/scenarios.json" \
  ${options[@]+"${options[@]}"} | tee "$out/table.txt" || status=$?
if ((status != 2)) && [[ -s "$out/scenarios.json" ]] && command -v python3 >/dev/null; then
  drawn=0
  python3 "$here/bench/plot" "$out/scenarios.json" --out "$out/figures" || drawn=$?
  # 3: without matplotlib.
  ((drawn == 0 || drawn == 3)) || status=3
fi
exit "$status"
