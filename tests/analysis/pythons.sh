#!/usr/bin/env bash
# Tests the distribution of analysis/ with Python 3.9 to 3.13, as far as they are installed: builds its wheel, without the
# network; installs it in a virtual environment in build/pythons, with packages from PyPI; runs the tests that need no PyTorch,
# browser or figures on what is installed. Prints a table. Takes two minutes for each version.
#
#   bash tests/analysis/pythons.sh [PROGRAM]
#
# PROGRAM is a headspan that is already built (default: builds build/release/headspan). Interpreters are python3.9 and so on in
# the PATH, or pyenv's. The exit code is 0 only if all five versions are there and pass.
set -euo pipefail
program=${1:-}
if (($# > 1)); then
  echo "tests/analysis/pythons.sh: takes PROGRAM at most; got $*" >&2
  exit 2
fi
[[ -n $program ]] && program=$(realpath "$program")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ -z $program ]]; then
  bash jobs/build.sh headspan >&2
  program=$PWD/build/release/headspan
fi
tests=(statistics aggregate seeds reference findings opening tokenize)
tests_of_program=(results notebook study_report capture export)

# Open MPI: root may run it, and on any number of cores, as in tests/CMakeLists.txt.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1
export PYTHONWARNINGS=ignore::DeprecationWarning  # of packages about each other: tests read all that is printed
unset PYTHONPATH

# interpreter VERSION: prints the path of a Python of this version. Fails if there is none.
interpreter() {
  local path
  for path in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
    if [[ $("$path" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) == "$1" ]]; then
      echo "$path"
      return
    fi
  done
  return 1
}

# prepare PYTHON FOLDER: makes FOLDER/venv, with the wheel installed, and FOLDER/tree, the tests without the packages.
prepare() {
  local python=$2/venv/bin/python
  rm -rf "$2"
  mkdir -p "$2/tree/analysis" "$2/tree/tests"
  "$1" -m venv "$2/venv" || return 1
  "$python" -m pip install --quiet --disable-pip-version-check --upgrade 'setuptools>=66' wheel || return 1
  cp -r analysis "$2/source"
  rm -rf "$2/source/build"
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index --wheel-dir "$2" "$2/source" &&
    "$python" -m pip install --quiet --disable-pip-version-check "$2"/headspan-*.whl || return 1
  cp -r tests/analysis tests/reference "$2/tree/tests"
  cp analysis/*.md analysis/*.ipynb "$2/tree/analysis"
  ln -s "$PWD/tests/data" "$2/tree/tests/data"
  ln -s "$PWD/checkpoints" "$2/tree/checkpoints"
}

# try FOLDER: runs the tests. Prints how many passed, and the names of those that did not, whose output is FOLDER/NAME.
try() {
  local name passed=0 failed=()
  for name in "${tests[@]}" "${tests_of_program[@]}"; do
    local words=()
    [[ " ${tests_of_program[*]} " == *" $name "* ]] && words=("$program" mpirun)
    if "$1/venv/bin/python" -B "$1/tree/tests/analysis/test_$name.py" "${words[@]}" > "$1/$name" 2>&1; then
      passed=$((passed + 1))
    else
      failed+=("$name")
    fi
  done
  echo "$passed passed${failed[*]:+, failed: ${failed[*]}}"
  ((${#failed[@]} == 0))
}

status=0
row() { printf '%-8s %-8s %-10s %-9s %-32s %s\n' "$@"; }
row Python numpy xarray DataTree wheel tests
for version in 3.9 3.10 3.11 3.12 3.13; do
  folder=$PWD/build/pythons/$version
  if ! python=$(interpreter "$version"); then
    row "$version" - - - - "not installed"
    status=1
  elif ! prepare "$python" "$folder" >&2; then
    row "$version" - - - - "could not be prepared"
    status=1
  else
    read -r -a found < <("$folder/venv/bin/python" -c 'import platform, numpy, xarray
print(platform.python_version(), numpy.__version__, xarray.__version__, "yes" if hasattr(xarray, "DataTree") else "no")')
    told=$(try "$folder") || status=1
    row "${found[@]}" "$(basename "$folder"/headspan-*.whl)" "$told"
  fi
done
exit "$status"
