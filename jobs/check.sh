#!/usr/bin/env bash
# Checks layout and lint of C++, Python and shell, and that Doxygen renders the headers without a warning. Installs the
# tools that are missing, in the system (jobs/packages.sh) and in build/check (jobs/check-requirements.txt). Takes less than
# a minute, plus the first installation; the exit code is 0 only if all checks pass.
#
#   bash jobs/check.sh [--tidy [COMMIT]]    --tidy: also runs clang-tidy, on the C++ files that differ from COMMIT; without
#                                           COMMIT on all files, which takes hours
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'check: %s\n' "$*" >&2; }

tidy=false commit=
if [[ ${1:-} == --tidy && $# -le 2 ]]; then
  tidy=true commit=${2:-}
elif (($# > 0)); then
  say "takes [--tidy [COMMIT]], not $*"
  exit 2
fi

tools=$PWD/build/check
install_tools() {
  bash jobs/packages.sh check report || return 1
  cmp --silent jobs/check-requirements.txt "$tools/installed" && return
  local python=python3 told
  [[ -x /usr/bin/python3 ]] && python=/usr/bin/python3  # mypy reads its numpy
  rm -rf "$tools"
  "$python" -m venv --system-site-packages "$tools" || return 1
  if ! told=$("$tools/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 30 \
    --requirement jobs/check-requirements.txt 2>&1); then
    say "pip: ${told##*$'\n'}"
    return 1
  fi
  cp jobs/check-requirements.txt "$tools/installed"  # written last
}
if ! install_tools; then
  say "the tools could not be installed, as said above; nothing was checked"
  exit 1
fi

# files PATTERN...: the files of the tree with names that match one of find's patterns, whether git tracks them or not,
# without what is built or fetched.
files() {
  local words=()
  for name in "$@"; do words+=(-o -name "$name"); done
  find . \( -name .git -o -name build -o -path ./results -o -path ./.cache -o -path './checkpoints/smollm2/model' \
    -o -path './checkpoints/olmo-2-*/*' -o -path ./shared -o -name __pycache__ \) -prune \
    -o -type f \( "${words[@]:1}" \) -print0
}

check_text() {
  files '*.c' '*.cff' '*.cmake' '*.cpp' '*.css' '*.h' '*.html' '*.ini' '*.js' '*.json' '*.jsonl' '*.md' '*.py' '*.sbatch' \
    '*.sh' '*.toml' '*.tsv' '*.txt' '*.yaml' '*.yml' 'Doxyfile' '.clang-*' '.editorconfig' '.gitignore' 'run' |
    xargs -0 "$tools/bin/python" -B jobs/check_text.py
}

check_cpp_layout() {
  files '*.c' '*.cpp' '*.h' | xargs -0 -P "$(nproc)" -n 50 "$tools/bin/clang-format" --dry-run --Werror
}

check_shell() {
  files '*.sh' '*.sbatch' 'run' | xargs -0 shellcheck
}

check_python() {
  "$tools/bin/ruff" check --quiet --config jobs/ruff.toml --cache-dir "$tools/ruff" .
}

# One folder at a time, because programs import their neighbours by name. Tests are checked less strictly: setUpClass makes
# attributes, a None ends a test as well as any failure, and the rows of a table of cases have no common type.
check_types() {
  local mypy=("$tools/bin/mypy" --config-file jobs/mypy.toml --cache-dir "$tools/mypy" --no-error-summary) in_tests=() folder status=0
  for code in attr-defined union-attr index arg-type call-overload dict-item misc; do
    in_tests+=(--disable-error-code "$code")
  done
  MYPYPATH=analysis "${mypy[@]}" -p headspan -p headspan_report -p headspan_harness || status=1
  for folder in $(find checkpoints jobs slurm -name '*.py' -printf '%h\n' | sort -u); do
    "${mypy[@]}" "$folder"/*.py || status=1
  done
  for folder in $(find tests -name '*.py' -printf '%h\n' | sort -u); do
    MYPYPATH=tests/reference:analysis:checkpoints "${mypy[@]}" "${in_tests[@]}" "$folder"/*.py || status=1
  done
  return "$status"
}

check_headers() {
  mkdir -p build
  doxygen Doxyfile
}

check_cpp() {
  local patterns=() file
  if [[ -n $commit ]]; then
    for file in $(git diff --name-only --diff-filter=d "$commit" -- '*.cpp' '*.h'); do
      patterns+=("/${file%.*}[.]cpp$")
    done
    ((${#patterns[@]} > 0)) || return 0
  fi
  bash jobs/build.sh --tests --clang headspan_git_id && run-clang-tidy -quiet -p build/clang "${patterns[@]}"
}

failed=()
run() {  # NAME FUNCTION
  local start=$SECONDS
  if "$2"; then
    say "$1: passed ($((SECONDS - start)) s)"
  else
    say "$1: FAILED, as said above"
    failed+=("$1")
  fi
}
run "text" check_text
run "clang-format" check_cpp_layout
run "shellcheck" check_shell
run "ruff" check_python
run "mypy" check_types
run "doxygen" check_headers
$tidy && run "clang-tidy" check_cpp
if ((${#failed[@]} > 0)); then
  say "failed: ${failed[*]}"
  exit 1
fi
say "all passed in $SECONDS s"
