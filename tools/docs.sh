#!/usr/bin/env bash
# Builds the site of all pages and of the Python reference, with search, into build/docs. Fails on a broken link.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$SRJIT_ROOT"

case "${1-}" in
  '') ;;
  -h | --help) show_usage; exit ;;
  *) fail "unknown option '$1'" "usage: tools/docs.sh" ;;
esac
install_packages "${SRJIT_BUILD_PACKAGES[@]}" python3-venv
build_preset release --target sr-jit
pages=build/docs-pages venv=build/docs-venv
if [[ ! -x "$venv/bin/mkdocs" ]]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check 'mkdocs >=1.6, <2' 'mkdocstrings[python] >=1, <2'
fi

# The page that explain.md describes.
explain="$(grep -o 'build/release/sr-jit explain .*--out' docs/internals/explain.md)"
bash -c "$explain build/explain.html"

# The README is the first page. Links to sources, which the site does not have, become text.
rm -rf "$pages"
cp -r docs "$pages"
mv build/explain.html "$pages"
sed -E 's#\]\(docs/#](#g' README.md >"$pages/index.md"
sed -i -E 's#\]\(\.\./README\.md#](index.md#g; s#\[([^]]*)\]\(\.\./[^)]*\)#\1#g' "$pages"/*.md
sed -i -E 's#\]\(\.\./\.\./README\.md#](../index.md#g; s#\[([^]]*)\]\(\.\./\.\./[^)]*\)#\1#g' "$pages"/*/*.md
sed -i -E 's#\[([^]]*)\]\((SECURITY\.md|CITATION\.cff|LICENSE|examples)\)#\1#g' "$pages/index.md"
{
  printf '# Python reference\n\n[python](python.md) shows how the parts are used.\n\n::: srjit\n'
  for module in sklearn deap gplearn bingo operon evogp torch mpi; do printf '\n::: srjit.%s\n' "$module"; done
} >"$pages/reference.md"
"$venv/bin/mkdocs" build --strict --quiet --config-file tools/mkdocs.yml
note "build/docs/index.html"
