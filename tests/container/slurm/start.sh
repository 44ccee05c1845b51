# The daemons of a cluster whose nodes are all here; /cfg/slurm.conf says which.
set -e
mkdir -p /run/munge /var/spool/slurmctld /etc/slurm /shared
[ -f /etc/munge/munge.key ] || /usr/sbin/mungekey -c -f
chown munge:munge /run/munge /etc/munge/munge.key
su munge -s /bin/sh -c /usr/sbin/munged
cp /cfg/slurm.conf /etc/slurm/
slurmctld
for node in $(sed -n 's/^NodeName=\([^ ]*\).*/\1/p' /etc/slurm/slurm.conf); do
  mkdir -p "/var/spool/slurmd-$node"
  slurmd -N "$node"
done
exec sleep infinity
