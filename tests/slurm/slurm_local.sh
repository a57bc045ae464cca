#!/usr/bin/env bash
# Starts and stops a real Slurm of several nodes on this machine, as root and without systemd: munged, slurmctld and a
# slurmd for each node. For tests of batch scripts.
#
#   slurm_local.sh start FOLDER NODES CPUS    NODES: 2 or more; CPUS per node, which need not exist. Prints the
#                                             "export ..." lines that its users need
#   slurm_local.sh boot FOLDER NODE           starts the slurmd of a node again, which was killed
#   slurm_local.sh stop FOLDER                cancels jobs, ends the processes that start and the jobs left, removes FOLDER
#
# If unshare is allowed (CAP_SYS_ADMIN) each node has its own hostname, /etc/hosts and /dev/shm. Otherwise the nodes share
# those of this machine, and Open MPI does not use shared memory, whose files it names by hostname.
# Packages: group test of jobs/packages.sh.
set -uo pipefail
export PATH=$PATH:/usr/sbin:/sbin

say() { echo "slurm_local: $*" >&2; }
die() {
  say "$*"
  exit 1
}

# --- processes: ids are used again, so the start time is kept too ---

# Prints the start time of a live process; fails for a dead one and for a zombie (a container's PID 1 may not reap it).
stamp() {
  local stat fields
  { stat=$(cat "/proc/$1/stat"); } 2> /dev/null || return 1
  read -ra fields <<< "${stat##*) }"
  [[ ${fields[0]} != [ZX] ]] && echo "${fields[19]}"
}
alive() { [[ $(stamp "$1") == "$2" ]]; }
remember() { # NAME PROCESS
  local start
  start=$(stamp "$2") && echo "$1 $2 $start" >> "$folder/processes"
}
all_alive() {
  local name id start
  while read -r name id start; do
    alive "$id" "$start" || { say "$name ended"; return 1; }
  done < "$folder/processes"
}
# Sends TERM to the processes whose name matches, and KILL after 10 s.
end() { # PATTERN
  local name id start try
  while read -r name id start; do
    # shellcheck disable=SC2053  # a pattern
    if [[ $name != $1 ]] || ! alive "$id" "$start"; then continue; fi
    kill -TERM "$id" 2> /dev/null
    for ((try = 0; try < 200; ++try)); do
      alive "$id" "$start" || continue 2
      sleep 0.05
    done
    say "$name ($id) did not end on TERM"
    kill -KILL "$id" 2> /dev/null
  done < "$folder/processes"
}
wait_for() { # SECONDS COMMAND...
  local deadline=$((SECONDS + $1))
  until "${@:2}" &> /dev/null; do
    ((SECONDS < deadline)) || return 1
    sleep 0.05
  done
}
holds_or_one_ended() { "$@" || ! all_alive; }
wait_for_daemons() { wait_for "$1" holds_or_one_ended "${@:2}" && all_alive; }

# --- start ---

check_tools() {
  local tool missing=()
  for tool in munged slurmctld slurmd sbatch srun; do command -v "$tool" > /dev/null || missing+=("$tool"); done
  # Slurm's mpi/pmix plugin opens the unversioned library, which its package does not depend on.
  compgen -G '/usr/lib/*/pmix2/lib/libpmix.so' > /dev/null || missing+=(libpmix.so)
  ((${#missing[@]} == 0)) || die "missing: ${missing[*]}; bash jobs/packages.sh test installs them"
  ((EUID == 0)) || die "must be root: slurmd and munged run as root here"
}

port_is_free() { ! (exec 3<> "/dev/tcp/$address/$1") 2> /dev/null; }
# The first of consecutive free ports.
free_ports() { # COUNT
  local base try i
  for ((try = 0; try < 50; ++try)); do
    base=$((15000 + RANDOM % 15000))
    for ((i = 0; i < $1; ++i)); do port_is_free $((base + i)) || continue 2; done
    echo "$base"
    return
  done
  return 1
}

# With NoInAddrAny daemons bind to the address of this machine's name, otherwise to all addresses. Debian's default for
# that name, 127.0.1.1, would cut off srun, whose connections come from 127.0.0.1.
choose_address() {
  getent ahostsv4 localhost > /dev/null || die "no network address but 127.0.0.1: Slurm cannot look names up"
  address=$(getent ahostsv4 "$(hostname)" | awk 'NR == 1 { print $1 }')
  binding=CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
  [[ ${address:-127.0.1.1} != 127.* || $address == 127.0.0.1 ]] || address=127.0.0.1 binding=
}

write_configuration() {
  local port memory i
  port=$(free_ports $((nodes + 1))) || die "no free ports"
  memory=$(awk -v nodes="$nodes" '$1 == "MemTotal:" { print int($2 / 1024 / nodes) }' /proc/meminfo)
  cat > "$folder/slurm.conf" << END
ClusterName=local
SlurmctldHost=$(hostname)($address)
SlurmctldPort=$port
$binding
NodeName=node[1-$nodes] NodeHostname=$(hostname) NodeAddr=$address Port=[$((port + 1))-$((port + nodes))] CPUs=$cpus RealMemory=$memory
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefMemPerCPU=$((memory / cpus)) State=UP
AuthType=auth/munge
CredType=cred/munge
# cred_expire is also how long a requeued job is held back: 5 s is the least, 120 s the default.
AuthInfo=socket=$folder/munge/socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
# The PMIx plugin makes TmpFS/spmix_appdir_UID_JOB.STEP on every node.
TmpFS=$folder/tmp/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/%n.log
# No control groups, so that it runs in any container.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
# The CPUs are those above, whether they exist or not.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
MpiDefault=pmix
PropagateResourceLimits=NONE
KillWait=5
MinJobAge=3600
ReturnToService=2
MailProg=/bin/true
Epilog=$folder/epilog
EnforcePartLimits=ALL
END
  # slurmd loads a plugin for control groups even if nothing uses it; v1's touches nothing until then.
  echo "CgroupPlugin=cgroup/v1" > "$folder/cgroup.conf"
  { cat /etc/hosts; for ((i = 1; i <= nodes; ++i)); do echo "$address node$i"; done; } > "$folder/hosts"
}

# Does what a control group would do: ends the processes of a job on its node when the job ends.
write_epilog() {
  cat > "$folder/epilog" << 'END'
#!/bin/bash
[[ -n ${J:-} ]] || exec env -i PATH=/usr/bin:/bin J="$SLURM_JOB_ID" N="$SLURMD_NODENAME" C="$SLURM_CONF" /bin/bash "$0"
grep -lzxF "SLURM_CONF=$C" /proc/[0-9]*/environ 2> /dev/null |
  xargs -r grep -lzxF "SLURMD_NODENAME=$N" 2> /dev/null |
  xargs -r grep -lzxF "SLURM_JOB_ID=$J" 2> /dev/null |
  while IFS=/ read -r _ _ id _; do kill -KILL "$id"; done
exit 0
END
  chmod 755 "$folder/epilog"
}

start_daemon() { # NAME COMMAND...
  setsid "${@:2}" < /dev/null > "$folder/log/$1.out" 2>&1 &
  remember "$1" $! || { say "$1 did not start"; return 1; }
}

start_munged() {
  mkdir -m 0711 "$folder/munge" # so that clients reach the socket
  (umask 077 && head -c 1024 /dev/urandom > "$folder/munge/key")
  start_daemon munged munged --foreground --num-threads=4 --socket="$folder/munge/socket" \
    --key-file="$folder/munge/key" --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" \
    --log-file="$folder/munge/log" &&
    wait_for_daemons 30 test -S "$folder/munge/socket"
}

# shellcheck disable=SC2016  # for another shell
node_init='
hostname "$2" && mount --bind "$1/hosts" /etc/hosts && mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 1
exec slurmd -D -N "$2"
'
start_node() { # NAME
  if [[ $separate == yes ]]; then
    start_daemon "$1" unshare -u -m --propagation private bash -c "$node_init" _ "$folder" "$1"
  else
    start_daemon "$1" slurmd -D -N "$1"
  fi
}

idle() { [[ $(timeout 5 sinfo -h -N -o '%N %T' | sort -u | grep -c ' idle$') == "$nodes" ]]; }

start_all() {
  local i
  start_munged && start_daemon slurmctld slurmctld -D || return 1
  for ((i = 1; i <= nodes; ++i)); do start_node "node$i" || return 1; done
  wait_for_daemons 60 idle
}

# The environment of users: root may run Open MPI; ranks that share cores yield, and are not all bound to the first one.
print_environment() {
  local line variables=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
    OMPI_MCA_hwloc_base_binding_policy=none)
  [[ $separate == yes ]] || variables+=("OMPI_MCA_btl=self,tcp")
  for line in "SLURM_CONF=$folder/slurm.conf" "${variables[@]}"; do printf 'export %s\n' "$line"; done
}

choose_separate() {
  separate=no
  unshare -u -m true 2> /dev/null && separate=yes
}

start() {
  local i
  check_tools
  choose_address
  umask 022
  if ! mkdir -p "$folder" || ! folder=$(cd "$folder" && pwd -P); then exit 1; fi
  [[ -z $(ls -A "$folder") ]] || die "$folder is not empty"
  ((${#folder} <= 60)) || die "$folder: longer than 60 characters, which the paths of sockets below cannot hold"
  chmod 0755 "$folder" # munged insists that everyone can reach its socket
  mkdir -p "$folder"/{log,state,spool,tmp}
  for ((i = 1; i <= nodes; ++i)); do mkdir -p "$folder/spool/node$i" "$folder/tmp/node$i"; done
  choose_separate
  write_configuration
  write_epilog
  : > "$folder/processes"
  export SLURM_CONF=$folder/slurm.conf
  if ! start_all; then
    tail -n 15 "$folder"/log/*.out "$folder/munge/log" >&2
    stop
    die "did not start"
  fi
  print_environment
  say "$nodes nodes of $cpus CPUs; hostnames and shared memory of their own: $separate"
}

# --- stop ---

# Prints what outlived its slurmd: each slurmstepd, recognised by its open log, and processes of jobs.
leftovers() {
  local process
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe" 2> /dev/null) != */slurmstepd* ]] ||
      [[ -z $(find "$process/fd" -lname "$folder/*" 2> /dev/null) ]] || echo "$process/"
  done
  grep -lzxF "SLURM_CONF=$folder/slurm.conf" /proc/[0-9]*/environ 2> /dev/null |
    xargs -r grep -lz '^SLURMD_NODENAME=' 2> /dev/null
}
no_jobs() { [[ -z $(timeout 5 squeue -h -o %A) ]]; }

stop() {
  [[ -z ${SLURMD_NODENAME:-} ]] || die "stop from within a job would end itself"
  local jobs id
  if jobs=$(timeout 5 squeue -h -o %A 2> /dev/null | sort -u) && [[ -n $jobs ]]; then
    # shellcheck disable=SC2086  # a list
    timeout 5 scancel $jobs
    wait_for 10 no_jobs
  fi
  end 'node*'
  end slurmctld
  while IFS=/ read -r _ _ id _; do
    stamp "$id" > /dev/null && kill -KILL "$id" 2> /dev/null && say "ended process $id, which a job left"
  done < <(leftovers)
  end munged
  rm -rf "${folder:?}"
}

find_cluster() {
  [[ -f $folder/processes ]] || die "$folder: no cluster of this script is there"
  folder=$(cd "$folder" && pwd -P)
  export SLURM_CONF=$folder/slurm.conf
}

command=${1:-} folder=${2:-} nodes=${3:-} cpus=${4:-}
case $command,$# in
  start,4) start ;;
  boot,3)
    find_cluster
    choose_separate
    start_node "$3" ;;
  stop,2)
    find_cluster
    stop ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
