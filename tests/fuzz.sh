#!/usr/bin/env bash
# Fuzzes the readers of files with libFuzzer under the address and undefined-behaviour sanitizers, and prints two tables: what
# was run, and how many lines of the readers the inputs reach. The exit code is 1 if anything was found; the input is then in
# build/fuzz/findings.
#
#   bash tests/fuzz.sh [--seconds N] [--keep] [TARGET...]
#
#       no TARGET:  all of them, as many at once as there are cores
#       --seconds:  for each target [300]
#       --keep:     afterwards replaces tests/data/fuzz.tar.gz by the smallest inputs that reach as much
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=300 keep=false targets=()
while (($# > 0)); do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --keep) keep=true ;;
    --*) echo "tests/fuzz.sh: unknown option '$1'; it takes --seconds N and --keep" >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
all=(folder safetensors index config sidecar npy megatron manifest job requests activations gram plan codec result state)
((${#targets[@]} > 0)) || targets=("${all[@]}")

cores=$(nproc)  # before OMP_NUM_THREADS, which it follows
bash jobs/packages.sh build clang test
bash jobs/build.sh headspan >&2
cmake --preset fuzz > /dev/null
cmake --build build/fuzz --target headspan-fuzz --parallel "$cores" >&2

out=$PWD/build/fuzz fuzzer=$PWD/build/fuzz/headspan-fuzz
mkdir -p "$out/corpora" "$out/findings" "$out/logs"
rm -f "$out"/findings/* "$out"/logs/*
tar -xzf tests/data/fuzz.tar.gz -C "$out/corpora" 2> /dev/null || true
/usr/bin/python3 -B tests/fuzz/seeds.py "$out/corpora"
bash tests/fuzz/make_bases.sh build/release/headspan "$out/bases"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1
export OMPI_MCA_opal_signal=  # Open MPI would take crashes before libFuzzer keeps their inputs
export HEADSPAN_FUZZ_BASES=$out/bases ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1

# fuzz TARGET ARGUMENT...: runs the fuzzer with its inputs.
fuzz() { HEADSPAN_FUZZ_TARGET=$1 LLVM_PROFILE_FILE=$out/logs/$1.profraw "$fuzzer" "$out/corpora/$1" "${@:2}"; }

# Each target in a shell of its own, so that they share the cores.
# shellcheck disable=SC2016
printf '%s\n' "${targets[@]}" | xargs -P "$cores" -I{} env HEADSPAN_FUZZ_TARGET={} LLVM_PROFILE_FILE=/dev/null \
  bash -c '"$1" "$2/corpora/{}" -max_total_time="$3" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$2/findings/{}-" > "$2/logs/{}.log" 2>&1 || true' fuzz "$fuzzer" "$out" "$seconds"

status=0
echo "| target | inputs tried | a second | kept | found |"
echo "| --- | --- | --- | --- | --- |"
for target in "${targets[@]}"; do
  stat() { awk -v name="stat::$1:" '$1 == name { print $2 }' "$out/logs/$target.log"; }
  found=$(find "$out/findings" -name "$target-*" ! -name "*-slow-unit-*" | wc -l)
  if ((found > 0)) || ! grep -q '^stat::' "$out/logs/$target.log"; then
    status=1
    echo "fuzz: $target: see build/fuzz/logs/$target.log" >&2
  fi
  kept=$(find "$out/corpora/$target" -type f | wc -l)
  echo "| $target | $(stat number_of_executed_units) | $(stat average_exec_per_sec) | $kept | $found |"
done

if $keep; then
  for target in "${all[@]}"; do
    rm -rf "$out/smallest/$target" && mkdir -p "$out/smallest/$target"
    HEADSPAN_FUZZ_TARGET=$target LLVM_PROFILE_FILE=/dev/null "$fuzzer" -set_cover_merge=1 -use_counters=0 \
      "$out/smallest/$target" "$out/corpora/$target" > "$out/logs/$target.merge" 2>&1
    rm -rf "$out/corpora/$target"
    mv "$out/smallest/$target" "$out/corpora/$target"
  done
  tar --sort=name --owner=0 --group=0 --mtime=2026-01-01 -C "$out/corpora" -c . | gzip -9n > tests/data/fuzz.tar.gz
fi

# Lines that all inputs reach, of the readers: what only writes or computes is left out.
rm -f "$out"/logs/*.profraw
for target in "${all[@]}"; do
  [[ -d $out/corpora/$target ]] && fuzz "$target" -runs=0 > "$out/logs/$target.replay" 2>&1
done
llvm-profdata merge -o "$out/lines.profdata" "$out"/logs/*.profraw
echo
llvm-cov export -summary-only -instr-profile "$out/lines.profdata" "$fuzzer" | /usr/bin/python3 -B tests/fuzz/lines.py
exit "$status"
