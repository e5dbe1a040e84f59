#!/usr/bin/env bash
# Builds what is published into dist/: the source package, and of it a wheel for each machine. Then checks them, and does
# what the README says where nothing is but the wheel of this machine. `make release` calls it; CHECK=slim does so in a
# system without compilers, too (tools/slim_root.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
: "${PYTHON:=python3}"
work=$PWD/build/release
tools=$work/tools/bin
[ "${CHECK:-}" != slim ] || tools/slim_root.sh --check

# Of what is shipped nothing needs a later C library (tests/unit/project/test_packages.py).
platforms=(manylinux_2_17_x86_64 manylinux_2_17_aarch64)

test -x "$tools/python" || "$PYTHON" -m venv "$work/tools"
"$tools/python" -m pip install --quiet --disable-pip-version-check build check-wheel-contents twine
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

rm -rf dist
"$tools/python" -m build --sdist --outdir dist . >"$work/build.log"
for platform in "${platforms[@]}"; do
  "$tools/python" -m build --wheel --outdir dist "-C--build-option=--plat-name=$platform" dist/*.tar.gz >>"$work/build.log"
done
"$tools/twine" --no-color check --strict dist/*
"$tools/check-wheel-contents" dist/*.whl
wheel=$(echo dist/*_"$(uname -m)".whl)

echo "The README, from $wheel alone:"
rm -rf "$work/fresh" "$work/reader"
mkdir -p "$work/reader"
"$PYTHON" -m venv "$work/fresh"
"$work/fresh/bin/pip" install --quiet --disable-pip-version-check "$wheel"
cp README.md tests/support/documented.py "$work/reader"
(cd "$work/reader" && env -i PATH="$work/fresh/bin:/usr/bin:/bin" HOME="$work/reader" LC_ALL=C.UTF-8 COLUMNS=160 PIP_QUIET=1 \
  python documented.py README.md examples/ "make ")

[ "${CHECK:-}" != slim ] || tools/slim_root.sh "$wheel"
ls -l dist
grep -q '^Repository = "https://example.org/' pyproject.toml &&
  echo "pyproject.toml still has a placeholder for the address of the repository" || true
