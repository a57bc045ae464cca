#!/usr/bin/env bash
# Makes a Python environment with the packages of requirements.txt in build/fetch, unless it is there, and prints the path
# of its interpreter. Downloads with pip.
#
#   python=$(bash checkpoints/environment.sh)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
environment=$here/../build/fetch
python=$environment/bin/python
installed=$environment/requirements.txt  # a copy, written last

mkdir -p "$here/../build"
exec 9> "$environment.lock"
flock 9  # of several processes one installs, the others wait
if ! { cmp -s "$here/requirements.txt" "$installed" && "$python" -c ""; }; then
  bash "$here/../jobs/packages.sh" fetch >&2
  echo "environment: installing $(sed '/^#/d' "$here/requirements.txt" | paste -sd ' ') in build/fetch" >&2
  rm -rf "$environment"
  python3 -m venv "$environment" >&2
  "$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
  cp "$here/requirements.txt" "$installed"
fi
echo "$(cd "$environment/bin" && pwd)/python"
