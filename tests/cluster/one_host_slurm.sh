# one_host_slurm.sh: read with `.` after lab.sh: a cluster of this one host, without systemd. Everything is under $lab and
# ends with the script. until_done COMMAND... waits for it.
for command in munged slurmctld slurmd srun sinfo; do
    command -v $command >/dev/null || skip_all "there is no $command"
done

stop() {
    for f in "$lab"/*.pid; do
        [ -s "$f" ] && kill "$(cat "$f")" 2>/dev/null
    done
    sleep 1
    rm -rf "$lab"
}
trap stop EXIT

# until COMMAND...: 30 s at most
until_done() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 150 ] || return 1
        sleep 0.2
    done
}

make_lab
chmod 755 "$lab"
mkdir -p state spool munge
dd if=/dev/urandom of=munge/key bs=128 count=1 2>/dev/null
chmod 600 munge/key
chmod 700 munge
munged --force --key-file="$lab/munge/key" --socket="$lab/munge/socket" --pid-file="$lab/munged.pid" \
    --log-file="$lab/munge/log" --seed-file="$lab/munge/seed" || die 'munged did not start'
host=$(hostname -s)
cat >slurm.conf <<CONF
ClusterName=switchyard
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=17817
SlurmdPort=17818
AuthType=auth/munge
AuthInfo=socket=$lab/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$lab/state
SlurmdSpoolDir=$lab/spool
SlurmctldPidFile=$lab/slurmctld.pid
SlurmdPidFile=$lab/slurmd.pid
SlurmctldLogFile=$lab/slurmctld.log
SlurmdLogFile=$lab/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SlurmdParameters=config_overrides
MpiDefault=pmix
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
export SLURM_CONF="$lab/slurm.conf"
slurmctld -f slurm.conf && slurmd -f slurm.conf -N "$host" || die 'Slurm did not start'
idle() { sinfo -h -o %T | grep -qx idle; }
until_done idle || die "the host is not idle: $(sinfo -h; tail -n 5 slurmd.log slurmctld.log)"
