# Sourced by the scripts of this folder: what this project needs from Debian 12, and how missing packages are installed.
# The list of packages stands here and nowhere else.

SRJIT_BUILD_PACKAGES=(
  g++ cmake ninja-build python3
  llvm-19-dev llvm-19-tools       # the compiler's library; FileCheck and lit for the golden tests
  clang-19                        # compiles what encodes populations in a GPU's memory; sanitizers and libFuzzer
  libfmt-dev libtbb-dev nlohmann-json3-dev libcli11-dev
  libboost-iostreams-dev libcsv-dev zlib1g-dev libbz2-dev liblzma-dev libzstd-dev
)
SRJIT_TEST_PACKAGES=(
  libgtest-dev libgmock-dev libmpfr-dev
  ccache                          # the Python package's objects are those of the preset release
  pkgconf                         # finds the installed libraries, as programs do
  sollya                          # writes the polynomials of ir/functions again
  libclang-rt-19-dev              # sanitizers and libFuzzer
  lld-19                          # links what clang compiles: quickly, and fuzz targets without unused functions
  llvm-19                         # llvm-profdata and llvm-cov, for coverage
  clang-format-19 clang-tidy-19
  chromium                        # shows the pages of sr-jit explain and search
)
# For the Python package (tools/python.sh), and for its tests.
SRJIT_WHEEL_PACKAGES=(python3-dev python3-venv)
SRJIT_PYTHON_TEST_PACKAGES=(openmpi-bin libopenmpi3)
# Not needed to build or test: the benchmark's figures (tools/bench/plot), whose test is skipped without it.
SRJIT_BENCH_PACKAGES=(python3-matplotlib)

say() { printf '== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  if (($#)); then printf '       %s\n' "$@" >&2; fi
  exit 1
}

# show_usage: prints the comment that a script begins with.
show_usage() { sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$SRJIT_ROOT/tools/${0##*/}"; }

# missing_packages NAME...: prints those that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    [[ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || printf '%s\n' "$package"
  done
}

# install_packages NAME...: installs the missing ones; touches neither the network nor root when nothing is.
install_packages() {
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
    fail "this script installs with apt-get, and this system has none" \
      "It is written for Debian 12. Elsewhere, install the counterparts of these packages and build with" \
      "'cmake --preset release && cmake --build --preset release':" "$*"
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then
    say "all $# packages are installed"
    return
  fi
  say "installing ${#missing[@]} of $# packages: ${missing[*]}"
  local root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      fail "packages are missing, and installing them needs root" \
        "Run this script as root, install sudo, or have an administrator run:" "apt-get install ${missing[*]}"
    root=(sudo --)
  fi
  local log
  log="$(mktemp)"
  "${root[@]}" apt-get update -qq -o APT::Update::Error-Mode=any >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    fail "apt-get could not fetch the package lists (its own words are above)" \
      "Is there a network, and does /etc/apt name a Debian archive?"
  }
  local package unknown=()
  for package in "${missing[@]}"; do
    apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || unknown+=("$package")
  done
  ((${#unknown[@]} == 0)) ||
    fail "this system's archive has no ${unknown[*]}" "The packages named here are those of Debian 12 (bookworm)."
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1 || {
    tail -n 15 "$log" >&2
    fail "apt-get could not install ${missing[*]}" "Its own words are above."
  }
  rm -f "$log"
}

# describe_cuda: names the parts of NVIDIA's software that it finds, and what cannot be done without them.
describe_cuda() {
  local root found=()
  for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/lib/cuda; do
    [[ -n "$root" && -d "$root" ]] && found+=("$root")
  done
  if ((${#found[@]})) || command -v ptxas >/dev/null; then
    note "CUDA toolkit: ${found[0]:-$(command -v ptxas)}"
  else
    note "no CUDA toolkit found (looked at CUDA_HOME, CUDA_PATH, /usr/local/cuda, /usr/lib/cuda and for ptxas)."
    note "It is optional. Without it LLVM's kernels are not assembled to machine code here; everything on the CPU works. 'sr-jit doctor' lists what is missing for what."
  fi
}

# Jobs of a build: one per core, but not more than the memory bears (up to 1.6 GiB per job).
build_jobs() {
  local cores memory
  cores="$(nproc)"
  memory="$(awk '/MemAvailable/ {print int($2 / 1677722)}' /proc/meminfo)"
  ((memory < 1)) && memory=1
  echo $((cores < memory ? cores : memory))
}

# build_preset PRESET [cmake --build arguments...]: configures and builds, quietly unless it fails.
build_preset() {
  local preset="$1" log="$SRJIT_ROOT/build/$1.log"
  shift
  mkdir -p "$SRJIT_ROOT/build"
  say "building the preset '$preset' with $(build_jobs) jobs (log: build/$preset.log)"
  (
    cd "$SRJIT_ROOT"
    cmake --preset "$preset" && cmake --build --preset "$preset" -j "$(build_jobs)" "$@"
  ) >"$log" 2>&1 || {
    grep -E 'error|Error|FAILED' -A 6 "$log" | head -n 60 >&2
    fail "building the preset '$preset' failed" "The whole log is in build/$preset.log."
  }
}

SRJIT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
