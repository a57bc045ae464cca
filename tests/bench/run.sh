#!/usr/bin/env bash
# Measures the machine, headspan, its limits and its peers on two cores, and prints tables (Markdown) on standard output.
# Takes forty minutes; keep the machine quiet. The exit code is 0 if every requirement is met. On four cores or more, Grams are
# also summed by two ranks with two threads each.
#
#   bash tests/bench/run.sh [PYTHON [PROGRAM]]
#
# PYTHON runs the peers and has numpy, scipy, torch and transformers (default: python3). PROGRAM is a headspan-bench that is
# already built, in the same folder as headspan (default: builds build/release/headspan-bench). Caches are measured on the
# model of checkpoints/smollm2, and left out if it has not been fetched.
set -euo pipefail
python=${1:-python3} program=${2:-}
if (($# > 2)); then
  echo "tests/bench/run.sh: takes PYTHON and PROGRAM at most; got $*" >&2
  exit 2
fi
[[ -n $program ]] && program=$(realpath "$program")
[[ $python == */* ]] && python=$(realpath --no-symlinks "$python")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ -z $program ]]; then
  bash jobs/build.sh headspan-bench headspan >&2
  program=$PWD/build/release/headspan-bench
fi
read -r first second third fourth _ <<< "$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))')"
if [[ -z $second ]]; then
  echo "tests/bench/run.sh: needs two cores, and this process may use one" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failures=()

# Open MPI: root may run it, and does not bind ranks; taskset chooses the cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none

four_cores="2 ranks x 2 threads"

# measure RUN ROUND COMMAND...: runs the command on the cores of RUN and keeps its machine-readable lines.
measure() {
  local run=$1 round=$2 cores=$first,$second status=0
  shift 2
  [[ $run == "1 core" ]] && cores=$first
  [[ $run == "$four_cores" ]] && cores=$cores,$third,$fourth
  taskset -c "$cores" "$@" > "$work/output" || status=$?  # 1: a requirement is missed, which the table shows
  grep -v ^bench= "$work/output" >&2 || true
  grep -q ^bench= "$work/output" || failures+=("$* ($run)")
  sed -n "s/^bench=/run=\"$run\" round=$round bench=/p" "$work/output" >> "$work/lines"
  ((status <= 1)) || exit "$status"
}

# ours RUN ROUND NAME OPTION...
ours() {
  local run=$1 round=$2 threads=1 launcher=()
  shift 2
  [[ $run == *"2 threads" ]] && threads=2
  [[ $run == "2 ranks"* ]] && launcher=(mpirun -n 2)
  echo "== headspan-bench $* ($run)" >&2
  OMP_NUM_THREADS=$threads measure "$run" "$round" "${launcher[@]}" "$program" "$@"
}

# peer RUN ROUND PEER OPTION...: with as many threads as RUN has cores
peer() {
  local run=$1 round=$2
  shift 2
  echo "== peers.py $* ($run)" >&2
  local kernels=()
  [[ $core == - ]] || kernels=("OPENBLAS_CORETYPE=$core")
  measure "$run" "$round" env "${kernels[@]}" "$python" tests/bench/peers.py "$@" --threads "${run%% *}"
}

smollm2=checkpoints/smollm2

# Every BLAS at its best: headspan chooses its kernels itself, numpy gets those that are the fastest here. (torch has other
# kernels.)
unset OPENBLAS_CORETYPE
read -r _ _ ours_handicapped <<< "$(bash tests/bench/best_core.sh "$program" --blas-speed)"
read -r core _ peers_handicapped <<< "$(bash tests/bench/best_core.sh "$python" tests/bench/peers.py blas)"

# plan NAME OPTION...: a compression of SmolLM2
plan() {
  local name=$1
  shift
  OMP_NUM_THREADS=2 "${program%-bench}" calibrate --model.path "$smollm2/model" --compress.plan "$work/$name.h5" \
    --tokens.path "$smollm2/tokens/docs.fit.bin" --tokens.limit 20000 "$@" >&2
}

# Decoding of SmolLM2: the full cache against transformers, and compressed caches against the full one.
caches() {
  local batch context name round
  plan latent --compress.stored 0.25
  plan headspan --compress.stored 0.5 --compress.algorithm headspan --compress.scope layer
  for round in 1 2 3; do
    for batch in 1 8; do
      local shape=(--folder "$smollm2/model" --sequence-length 512 --batch "$batch" --repeats 16)
      ours "2 threads" "$round" cache "${shape[@]}"
      peer "2 threads" "$round" decode "${shape[@]}"
    done
  done
  for round in 1 2 3; do
    for name in latent headspan; do
      for context in 512 4096; do
        ours "2 threads" "$round" cache --folder "$smollm2/model" --plan "$work/$name.h5" --sequence-length "$context" \
          --batch 8 --repeats 8
      done
    done
  done
}

make_model() {
  "$python" tests/bench/peers.py make --folder "$work/$1" "${@:2}" >&2
}

machine() {
  local run
  for run in "1 core" "2 threads" "2 ranks"; do
    ours "$run" 1 machine --folder "$work/large"
  done
}

against_limits() {
  local run precision name
  local middle=(--layers 16 --heads 8 --head-size 64 --tokens 10000 --repeats 1)
  local wide=(--layers 32 --heads 8 --head-size 64 --repeats 1)
  local runs=("1 core" "2 threads" "2 ranks")
  [[ -n $fourth ]] && runs+=("$four_cores")
  for run in "${runs[@]}"; do
    for precision in float64 float32 split; do
      ours "$run" 1 gram --precision "$precision" --repeats 3
      ours "$run" 1 gram --precision "$precision" "${middle[@]}"
    done
    ours "$run" 1 statistics "${wide[@]}"
  done
  for name in pairwise topn selection; do
    ours "2 ranks" 1 "$name"
  done
  ours "1 core" 1 overlap --layers 4 --heads 16 --head-size 128 --repeats 1
  for run in "1 core" "2 ranks"; do
    ours "$run" 1 load --folder "$work/large" --repeats 3
  done
  for run in "2 threads" "2 ranks"; do
    ours "$run" 1 memory --folder "$work/middle" --tokens 8192
  done
}

# One round: headspan and its peers in turn, so that a ratio compares runs that follow each other.
against_peers() {
  local round=$1 run
  local model=(--folder "$work/small" --tokens 2048 --sequence-length 256 --repeats 2)
  local layer=(--layers 1 --heads 16 --head-size 128 --repeats 1)
  ours "1 core" "$round" eigenvalues "${layer[@]}"
  ours "1 core" "$round" singular "${layer[@]}"
  peer "1 core" "$round" spectra "${layer[@]}"
  for run in "1 core" "2 threads" "2 ranks"; do
    for precision in float64 float32; do
      ours "$run" "$round" study --repeats 1 --precision "$precision"
      [[ $run == "2 ranks" ]] || peer "$run" "$round" numpy --repeats 1 --precision "$precision"
    done
    [[ $run == "2 ranks" ]] || peer "$run" "$round" selection --repeats 1
    ours "$run" "$round" forward "${model[@]}"
    [[ $run == "2 ranks" ]] || peer "$run" "$round" transformers "${model[@]}"
  done
}

versions=$("$python" tests/bench/peers.py versions)
make_model small --layers 8 --heads 8 --hidden-size 512 --mlp-size 2048 --vocab-size 8192
make_model middle --layers 8 --heads 16 --hidden-size 1024 --mlp-size 4096 --vocab-size 8192 --config-only
make_model large --layers 12 --heads 12 --hidden-size 1536 --mlp-size 6144 --vocab-size 16384 \
  --dtype bfloat16 --shard-size 200MB
machine
against_limits
peer "1 core" 1 paper --repeats 1
peer "2 threads" 1 paper --repeats 1
for round in 1 2 3; do
  against_peers "$round"
done

[[ -d $smollm2/model ]] && caches

lscpu | sed -n 's/^Model name: */Machine: /p'
echo "Cores: 2 of $(nproc)"
echo "Date: $(date -u +%Y-%m-%d)"
echo "Program: $("$program" --version)"
echo "Peers: $versions; OpenBLAS's kernels: ${core/#-/its own choice}${peers_handicapped:+, the best that work, without AVX-512}"
echo "Command: bash tests/bench/run.sh PYTHON"
echo
status=0
python3 tests/bench/table.py "$work/lines" ${ours_handicapped:+--limits-handicapped} \
  ${peers_handicapped:+--peers-handicapped} || status=$?
if ((${#failures[@]} > 0)); then
  printf '\nfailed: %s\n' "${failures[@]}"
  status=1
fi
exit "$status"
