#!/usr/bin/env bash
# Which formula tells a planet's year from its distance to the sun? Needs sr-jit in PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

grep -v '^#' planets.txt | nl -v 0 -w 3
show sr-jit loss --exprs planets.txt --data planets.csv --target period --loss rmse
show sr-jit fit 'p0 * axis ^ p1' --data planets.csv --target period --precision f64
show sr-jit run 'axis * sqrt(axis)' --data planets.csv --target period
# Kepler's third law, found from nothing but the table: the year is the distance to the power 3/2.
show sr-jit search --data planets.csv --target period --ops mul,div,sqrt --generations 8
