#!/usr/bin/env bash
# Runs a small study on 2 ranks under valgrind's memcheck, and prints what that finds; the exit code is 1 if it finds anything.
# Takes some minutes. Needs valgrind (jobs/packages.sh soak).
#
#   bash tests/memcheck.sh [HEADSPAN]
#
#       HEADSPAN: the program, built without sanitizers [build/release/headspan]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(realpath "${1:-build/release/headspan}")
folder=$(mktemp -d "${TMPDIR:-/tmp}/headspan_memcheck.XXXXXX")
trap 'rm -rf "$folder"' EXIT

suppressions=(--suppressions=tests/faults/valgrind.supp)
of_openmpi=/usr/share/openmpi/openmpi-valgrind.supp  # Debian's; other systems' Open MPI is reported
[[ ! -r $of_openmpi ]] || suppressions+=("--suppressions=$of_openmpi")
# Valgrind 3.19 knows no AVX-512: OpenBLAS must not choose it. PMIx's default store maps files that valgrind cannot follow.
export OPENBLAS_CORETYPE=Haswell PMIX_MCA_gds=hash OMP_NUM_THREADS=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
mpiexec -n 2 valgrind --quiet --num-callers=20 "${suppressions[@]}" --log-file="$folder/%p.log" \
  "$program" study --model.path checkpoints/tiny-olmo2/step30 --model.dtype float32 --run.heartbeat_seconds 0 \
  --tokens.path checkpoints/tiny-olmo2/tokens/docs.fit.bin --tokens.sequence_length 60 --tokens.limit 300 \
  --predict.references 2 --output.directory "$folder/out" >&2

found=$(cat "$folder"/*.log | grep -c '^==[0-9]*==    at ' || true)
cat "$folder"/*.log
echo "memcheck: $found found in a study on 2 ranks"
((found == 0))
