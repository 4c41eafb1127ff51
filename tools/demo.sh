#!/usr/bin/env bash
# Installs what is missing, builds the sr-jit command and the libraries (`cmake --install build/release` installs them), and
# evaluates a few formulas on the planets of the solar system. In the end it finds Kepler's third law in their table.
# Can be run again at any time: what is there is not installed or built twice.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$SRJIT_ROOT"

case "${1-}" in
  '') ;;
  -h | --help) show_usage; exit ;;
  *) fail "unknown option '$1'" "usage: tools/demo.sh" ;;
esac
install_packages "${SRJIT_BUILD_PACKAGES[@]}"
describe_cuda
build_preset release --target installable

sr_jit=build/release/sr-jit
data=docs/examples/planets.csv
formulas=docs/examples/planets.txt
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

say "which formula tells a planet's year from its distance? (rmse over the eight planets, in years)"
grep -v '^#' "$formulas" | nl -v 0 -w 3
show "$sr_jit" loss --exprs "$formulas" --data "$data" --target period --loss rmse
say "the years that Kepler's law predicts, planet by planet"
show "$sr_jit" run 'axis * sqrt(axis)' --data "$data" --target period
say "the same formula as a GPU would run it"
show "$sr_jit" ptx 'x0 * sqrt(x0)'
example=docs/examples/planets.py
for python in python3 build/python-test/bin/python; do
  "$python" -c 'import srjit' 2>/dev/null || continue
  say "in Python"
  show "$python" "$example"
  example=''
  break
done
if [[ -n "$example" ]]; then
  say "in Python ('tools/python.sh' builds the package, and docs/python.md installs it)"
  tail -n +2 "$example"
fi
say "Kepler's third law, found from nothing but the table: the year is the distance to the power 3/2"
show "$sr_jit" search --data "$data" --target period --ops mul,div,sqrt --generations 8
say "done; 'sr-jit --help' lists everything, and 'sr-jit doctor' what this machine has"
