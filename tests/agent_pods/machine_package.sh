#!/bin/sh
# Installs the Debian package on a machine, and runs its service until SIGTERM comes.
#
#   machine_package.sh PACKAGE FOLDER ENVOY
#
# It runs in a mount namespace of its own. The machine's root is an overlay, so that what is installed goes with the namespace. FOLDER
# has the files of `istioctl x workload entry configure`, and gets the folders `log` and `certs` of the machine.
set -eu
package=$1 folder=$2 envoy=$3
root=$folder/disk/root

mount -t tmpfs tmpfs "$folder/disk"
mkdir "$folder/disk/upper" "$folder/disk/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/disk/upper,workdir=$folder/disk/work" "$root"
for shared in proc sys dev; do mount --rbind "/$shared" "$root/$shared"; done
mkdir -p "$root/var/log/istio" "$root/etc/certs" "$root/tmp"
mount --bind "$folder/log" "$root/var/log/istio"
mount --bind "$folder/certs" "$root/etc/certs"

# The commands of docs/installation.md. What the package depends on is there, if not as packages.
export DEBIAN_FRONTEND=noninteractive
cp "$package" "$root/tmp/navarch-agent.deb"
chroot "$root" dpkg --force-depends --install /tmp/navarch-agent.deb
install -D -m 644 "$folder/cluster.env" "$root/var/lib/istio/envoy/cluster.env"
cp "$folder/mesh.yaml" "$root/var/lib/istio/config/mesh"
install -D -m 644 "$folder/root-cert.pem" "$root/etc/certs/root-cert.pem"
chroot "$root" install -d /var/run/secrets/tokens
cp "$folder/istio-token" "$root/tmp/istio-token"
chroot "$root" install -D -m 600 -o istio-proxy /tmp/istio-token /var/run/secrets/tokens/istio-token
cat "$folder/hosts" >"$root/etc/hosts"
cat "$folder/resolv.conf" >"$root/etc/resolv.conf"
# There is no metadata server of a cloud.
echo CLOUD_PLATFORM=none >>"$root/var/lib/istio/envoy/sidecar.env"
# The package was made with a small program in Envoy's place, since compressing Envoy takes a minute.
mount --bind "$envoy" "$root/usr/local/bin/envoy"

# What systemd does with the unit, but for restarts.
unit=$root/lib/systemd/system/istio.service
in_unit() { sed -n "s/^$1=//p" "$unit"; }
chroot "$root" sh -c "$(in_unit ExecStartPre)"
# shellcheck disable=SC2046 # words of a command
chroot "$root" $(in_unit ExecStart) &
service=$!
trap 'kill -TERM $service' TERM
wait $service || wait $service || true
chroot "$root" sh -c "$(in_unit ExecStopPost)"
