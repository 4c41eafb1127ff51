#!/usr/bin/env bash
# Installs missing packages, builds the sr-jit command and the libraries (`cmake --install build/release` installs them), and
# evaluates a few formulas on the planets of the solar system, and finds Kepler's third law in their table.
# Can be run again at any time: nothing is installed or built twice.
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

export PATH="$SRJIT_ROOT/build/release:$PATH"
say "which formula tells a planet's year from its distance to the sun? (docs/examples/planets.sh)"
docs/examples/planets.sh
say "one of the formulas as a GPU would run it"
sr-jit ptx 'x0 * sqrt(x0)'
example=docs/examples/planets.py
for python in python3 build/python-test/bin/python; do
  "$python" -c 'import srjit' 2>/dev/null || continue
  say "in Python"
  "$python" "$example"
  example=''
  break
done
if [[ -n "$example" ]]; then
  say "in Python ('tools/python.sh' builds the package, and docs/python.md installs it)"
  tail -n +2 "$example"
fi
say "done; 'sr-jit --help' lists everything, and 'sr-jit doctor' what this machine has"
