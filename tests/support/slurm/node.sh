# Becomes a virtual node; runs as the first process of its namespaces. The further arguments
# are folders below /tmp that stay shared: the private /tmp would hide them.
set -eu
base=$1 name=$2 address=$3
shift 3
hostname "$name"
mount --bind "$base/hosts" /etc/hosts
private="$base/tmp/$name"
for folder; do
  mkdir -p "$private${folder#/tmp}"
  mount --bind "$folder" "$private${folder#/tmp}"
done
mount --rbind "$private" /tmp
mount -t tmpfs tmpfs /dev/shm
if [ -n "$address" ]; then
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
  ip link set lo up
  ip address add "$address/16" dev eth0
  ip link set eth0 up
fi
. "$base/node_setup.sh"
# No exec: a pid namespace needs a first process that reaps orphans, and slurmd doesn't.
slurmd -D -N "$name" ${SLURMD_OPTIONS:-} -f "$base/slurm.conf"
exit $?
