#!/usr/bin/env bash
# Finds the kernels of OpenBLAS (the value of OPENBLAS_CORETYPE) with which a command multiplies fastest: each is tried in a
# process of its own, because some crash. Prints the value, or - if OpenBLAS's own choice is the best, then GF/s; and, if the
# processor has AVX-512 and no kernels for it work, the word handicapped.
#
#   bash tests/bench/best_core.sh COMMAND...      COMMAND prints GF/s as its last word
set -euo pipefail
(($# > 0)) || { echo "tests/bench/best_core.sh: takes a command" >&2; exit 2; }
unset OPENBLAS_CORETYPE

speed_with() {
  local variables=()
  [[ $1 == - ]] || variables=("OPENBLAS_CORETYPE=$1")
  shift
  (ulimit -c 0; env "${variables[@]}" "$@") 2> /dev/null | awk 'END { if (NF) print $NF }' || true
}

best=- most=$(speed_with - "$@")
[[ -n $most ]] || most=0
wide=no
for core in Haswell Zen SkylakeX Cooperlake SapphireRapids; do
  case $core in
    SkylakeX | Cooperlake | SapphireRapids)
      grep -qw avx512bw /proc/cpuinfo || continue ;;
  esac
  speed=$(speed_with "$core" "$@")
  echo "best_core.sh: $core: ${speed:-does not work}" >&2
  [[ -n $speed ]] || continue
  [[ $core == Haswell || $core == Zen ]] || wide=yes
  # as in src/dist/blas_core.cpp: less than a tenth could be noise
  if awk "BEGIN { exit !($speed > 1.1 * $most) }"; then best=$core most=$speed; fi
done
[[ $most == 0 ]] && { echo "tests/bench/best_core.sh: $* prints no speed" >&2; exit 1; }
echo "$best $most$(grep -qw avx512bw /proc/cpuinfo && [[ $wide == no ]] && echo " handicapped")"
