#!/usr/bin/env bash
# Fig. 1 (right): makes a plan and a summary for each of 10, 20, .. 90 % of the heads predicted. The full cache, with no head
# predicted, is measured in every summary. Skips what is there already.
#
#   bash jobs/figure1-right.sh OUT [JOB.ini] [--section.key value ...]
#   headspan-report compression OUT
#
# OUT      folder for the results
# JOB.ini  model, tokens and algorithm, with sections [compress] and [evaluate] [jobs/figure1-right-llama-3.1-8b.ini]
#
# Further keys go to every command. The variable HEADSPAN names the program [build/release/headspan].
set -euo pipefail
if (($# < 1)); then
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
out=$1 job=jobs/figure1-right-llama-3.1-8b.ini
shift
if (($# > 0)) && [[ $1 != --* ]]; then
  job=$1
  shift
fi
program=${HEADSPAN:-build/release/headspan}
mkdir -p "$out"
for stored in 0.9 0.8 0.7 0.6 0.5 0.4 0.3 0.2 0.1; do
  name=stored-$stored
  [[ -f $out/$name.json ]] && continue
  echo "== $name" >&2
  "$program" calibrate "$job" "$@" --compress.stored "$stored" --compress.plan "$out/$name.h5"
  "$program" evaluate "$job" "$@" --evaluate.plan "$out/$name.h5" --evaluate.summary "$out/$name.json"
done
