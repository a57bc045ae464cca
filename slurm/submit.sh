#!/usr/bin/env bash
# Submits a study to Slurm: jobs for the checkpoints that have no finished result and are not in the queue already, and a
# job that aggregates the results afterwards. Prints what it submits; for a finished sweep it submits nothing.
#
#   slurm/submit.sh JOB.ini [--site FILE] [--mode array|groups] [--dry-run] [-- --section.key value ...]
#
#   --site     settings of the cluster [slurm/site.env]; made from slurm/site.env.example
#   --mode     array: one task of a job array for each row of the manifest; groups: one large allocation, whose groups of
#              ranks take checkpoints in turn if all checkpoints are valid [array]
#   --dry-run  prints the commands, submits nothing
#
# Keys after -- go to headspan study, which also lists what there is to do (--units). Exit codes: 0 submitted, or nothing
# to submit; 1 Slurm refused, or the program cannot run here; 2 the input is at fault.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

refuse() {
  echo "submit: $*" >&2
  exit 2
}

# --- the command line ---

job='' site=$here/site.env mode=array dry_run=no keys=()
while (($# > 0)); do
  case $1 in
    --site | --mode)
      (($# > 1)) || refuse "command line: $1: has no value; $1 VALUE"
      [[ $1 == --site ]] && site=$2 || mode=$2
      shift 2 ;;
    --dry-run) dry_run=yes; shift ;;
    --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) keys=("${@:2}"); break ;;
    -*) refuse "command line: $1: is not an option; --site, --mode, --dry-run, or -- before the keys of a job" ;;
    *)
      [[ -z $job ]] || refuse "command line: $1: is one argument too many; give one job file"
      job=$1
      shift ;;
  esac
done
[[ -n $job ]] || refuse "command line: names no job; slurm/submit.sh JOB.ini"
[[ $mode == array || $mode == groups ]] || refuse "command line: --mode = $mode: is no mode; array or groups"

# --- settings of the cluster ---

[[ -r $site ]] || refuse "$site: cannot be read; copy $here/site.env.example to it and edit the copy"
site=$(realpath "$site")
# shellcheck source=/dev/null
source "$site"
while IFS='=' read -r setting _; do
  [[ $setting != HEADSPAN_* ]] || declare -p "$setting" &> /dev/null ||
    refuse "$site: $setting: is missing; see $here/site.env.example"
done < "$here/site.env.example"
declare -F headspan_environment > /dev/null ||
  refuse "$site: headspan_environment: is missing; see $here/site.env.example"
[[ $HEADSPAN_AT_A_TIME =~ ^[1-9][0-9]*$ ]] ||
  refuse "$site: HEADSPAN_AT_A_TIME = $HEADSPAN_AT_A_TIME: is no number of checkpoints; an integer from 1"
[[ $HEADSPAN_PROGRAM != */* || -x $HEADSPAN_PROGRAM ]] ||
  refuse "$site: HEADSPAN_PROGRAM = $HEADSPAN_PROGRAM: is no program here; build it, or give its path"

# --- what is left to do ---

directory='' manifest='' whole='' units=0 open=()
listed=$(
  headspan_environment >&2 || refuse "headspan_environment of $site failed"
  "$HEADSPAN_PROGRAM" study "$job" --units "${keys[@]}"
) || exit $(($? == 2 ? 2 : 1))
while IFS=$'\t' read -r what first second state _; do
  case $what in
    directory) directory=$first ;;
    manifest) manifest=$first whole=$second ;;
    unit)
      units=$((units + 1))
      [[ $state == finished ]] || open+=("$first") ;;
  esac
done <<< "$listed"
((units > 0)) || refuse "command line: ${keys[*]}: asks for no study; --section.key value"
if ((${#open[@]} == 0)); then
  echo "submit: all $units checkpoints are finished; nothing to submit"
  exit 0
fi
mapfile -t open < <(printf '%s\n' "${open[@]}" | sort -nu)

# In the queue a job of this sweep has the folder of its results as its comment.
sweep=$(realpath -m "$directory")
if ! queued=$(squeue --me --array --noheader --format='%K %k'); then
  [[ $dry_run == yes ]] || exit 1
  echo "submit: no answer from squeue: what is in the queue already is not known" >&2
fi
left=()
for row in "${open[@]}"; do
  grep -qxF -e "$row $sweep" -e "N/A $sweep" <<< "$queued" || left+=("$row")
done
if ((${#left[@]} == 0)); then
  echo "submit: all checkpoints that are not finished are in the queue already; nothing to submit"
  exit 0
fi

# --- submission ---

# 0 1 2 5 -> 0-2,5
ranges() {
  local text=$1 last=$1 row
  for row in "${@:2}"; do
    if ((row == last + 1)); then text=${text%"-$last"}-$row; else text+=,$row; fi
    last=$row
  done
  echo "$text"
}

# Prints the command, runs it and sets `submitted` to the new job's id.
submit() {
  printf '%q ' sbatch --parsable "$@"
  echo
  submitted=JOB
  [[ $dry_run == yes ]] || submitted=$(sbatch --parsable "$@") || exit 1
  submitted=${submitted%%;*}
}

log=$directory/log
[[ $dry_run == yes ]] || mkdir -p "$log"
name=headspan-$(basename "$job" .ini)
anywhere=(--export=ALL ${HEADSPAN_PARTITION:+"--partition=$HEADSPAN_PARTITION"}
  ${HEADSPAN_ACCOUNT:+"--account=$HEADSPAN_ACCOUNT"})
ranks=("${anywhere[@]}" "${HEADSPAN_OPTIONS[@]}" "--job-name=$name" "--comment=$sweep" "--time=$HEADSPAN_TIME"
  "--ntasks-per-node=$HEADSPAN_RANKS_PER_NODE" "--cpus-per-task=$HEADSPAN_CPUS_PER_RANK" "--mem=$HEADSPAN_MEMORY"
  "--signal=B:USR1@$HEADSPAN_SAVE_SECONDS" --requeue --open-mode=append)

if [[ $mode == groups ]]; then
  ((${#left[@]} == ${#open[@]})) ||
    refuse "command line: --mode = groups: would compute what is in the queue already; wait for it, or use array"
  groups=$((HEADSPAN_AT_A_TIME < ${#left[@]} ? HEADSPAN_AT_A_TIME : ${#left[@]}))
  [[ " ${keys[*]}" != *" --run.groups"* ]] ||
    refuse "command line: --run.groups: is chosen by --mode groups; set HEADSPAN_AT_A_TIME of $site"
  submit "${ranks[@]}" "--nodes=$((groups * HEADSPAN_NODES))" "--output=$log/%j.log" \
    "$here/study.sbatch" "$site" "$job" "${keys[@]}" --run.groups "$groups"
elif [[ -z $manifest ]]; then
  submit "${ranks[@]}" "--nodes=$HEADSPAN_NODES" "--output=$log/%j.log" \
    "$here/study.sbatch" "$site" "$job" "${keys[@]}"
else
  own_keys=()  # a task selects its own row
  for ((i = 0; i < ${#keys[@]}; ++i)); do
    case ${keys[i]} in
      --model.select) i=$((i + 1)) ;;
      --model.select=*) ;;
      *) own_keys+=("${keys[i]}") ;;
    esac
  done
  submit "${ranks[@]}" "--nodes=$HEADSPAN_NODES" "--output=$log/%A_%a.log" \
    "--array=$(ranges "${left[@]}")%$HEADSPAN_AT_A_TIME" \
    "$here/study.sbatch" "$site" "$job" "${own_keys[@]}"
fi
study=$submitted

# afterany: the aggregation names what failed. It can name missing rows only if all rows are studied.
[[ $whole == all ]] || manifest=''
submit "${anywhere[@]}" "${HEADSPAN_REPORT_OPTIONS[@]}" "--job-name=$name-report" "--dependency=afterany:$study" \
  --nodes=1 --ntasks=1 "--output=$log/%j.report.log" \
  "$here/aggregate.sbatch" "$site" "$directory" ${manifest:+"$manifest"}
if [[ $dry_run == no ]]; then
  echo "submit: study job $study (${#left[@]} of $units checkpoints), aggregation job $submitted, logs in $log"
fi
