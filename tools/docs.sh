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
install_packages python3 python3-venv
pages=build/docs-pages venv=build/docs-venv
if [[ ! -x "$venv/bin/mkdocs" ]]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check 'mkdocs >=1.6, <2' 'mkdocstrings[python] >=1, <2'
fi

# The README is the first page. Links to sources, which the site does not have, become text.
rm -rf "$pages"
cp -r docs "$pages"
sed -E 's#\]\(docs/#](#g' README.md >"$pages/index.md"
sed -i -E 's#\]\(\.\./README\.md#](index.md#g; s#\[([^]]*)\]\(\.\./[^)]*\)#\1#g' "$pages"/*.md
sed -i -E 's#\]\(\.\./\.\./README\.md#](../index.md#g; s#\[([^]]*)\]\(\.\./\.\./[^)]*\)#\1#g' "$pages"/*/*.md
sed -i -E 's#\[([^]]*)\]\((SECURITY\.md|CITATION\.cff|LICENSE|examples)\)#\1#g' "$pages/index.md"
{
  printf '# Python reference\n\n[python](python.md) shows how the parts are used.\n\n::: srjit\n'
  for module in sklearn deap gplearn bingo operon torch mpi; do printf '\n::: srjit.%s\n' "$module"; done
} >"$pages/reference.md"
"$venv/bin/mkdocs" build --strict --quiet --config-file tools/mkdocs.yml
note "build/docs/index.html"
