#!/bin/bash
# Starts the agent on a machine outside of the cluster. Files, variables and arguments are those of Istio's package for machines.
#
#   istio-start.sh          redirects the machine's traffic to Envoy, and runs the agent
#   istio-start.sh init     redirects the traffic alone; flags of istio-iptables may follow
#   istio-start.sh run      runs the agent alone
#   istio-start.sh clean    redirects nothing any more
set -euo pipefail
cd /

load() { # FILE
  # shellcheck disable=SC1090
  [ ! -r "$1" ] || . "$1"
}

# The settings of this machine, then those of its WorkloadGroup, which `istioctl x workload entry configure` wrote.
set -a
load "${ISTIO_SIDECAR_CONFIG:-/var/lib/istio/envoy/sidecar.env}"
load "${ISTIO_CLUSTER_CONFIG:-/var/lib/istio/envoy/cluster.env}"
set +a
agent=${ISTIO_BIN_BASE:-/usr/local/bin}/pilot-agent
user=${EXEC_USER:-istio-proxy}
# Its own traffic is not redirected.
export ENVOY_USER=${ENVOY_USER:-$user}

release_traffic() { [ "${ISTIO_CUSTOM_IP_TABLES:-}" = true ] || "$agent" istio-iptables "$@" --cleanup-only; }

redirect_traffic() { # FLAG...
  [ "${ISTIO_CUSTOM_IP_TABLES:-}" != true ] || return 0
  # What an agent left that was killed.
  release_traffic "$@"
  "$agent" istio-iptables "$@"
}

# Prints the address of the control plane, if it is not the usual one.
own_address() {
  if [ -n "${PILOT_ADDRESS:-}" ]; then
    printf '%s\n' "$PILOT_ADDRESS"
  elif [ -n "${ISTIO_PILOT_PORT:-}" ]; then
    printf 'istiod.%s.svc:%s\n' "${ISTIO_SYSTEM_NAMESPACE:-istio-system}" "$ISTIO_PILOT_PORT"
  fi
}

run_agent() {
  local address config flags rights=()
  address=$(own_address)
  config="serviceCluster: ${ISTIO_SERVICE:-rawvm}"$'\n'"controlPlaneAuthPolicy: ${ISTIO_CP_AUTH:-MUTUAL_TLS}"
  export CA_ADDR=${CA_ADDR:-${address:-istiod.${ISTIO_SYSTEM_NAMESPACE:-istio-system}.svc:15012}}
  export PROXY_CONFIG=${PROXY_CONFIG:-$config${address:+$'\n'discoveryAddress: $address}}
  export PROV_CERT=${PROV_CERT-./etc/certs} OUTPUT_CERTS=${OUTPUT_CERTS-./etc/certs}
  export INSTANCE_IP=${ISTIO_SVC_IP:-$(hostname --all-ip-addresses | cut -d ' ' -f 1)}
  export POD_NAME=${POD_NAME:-$(hostname -s)} POD_NAMESPACE=${ISTIO_NAMESPACE:-default}

  # Envoy's listeners are transparent then.
  if [ "${ISTIO_INBOUND_INTERCEPTION_MODE:-}" = TPROXY ]; then rights=(--inh-caps +net_admin --ambient-caps +net_admin); fi
  read -r -a flags <<<"${ISTIO_AGENT_FLAGS:-}"
  # The user opens the files: Envoy opens /dev/stdout again.
  # shellcheck disable=SC2016
  exec setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups "${rights[@]}" -- \
    bash -c 'exec "$@" >>"$0/istio.log" 2>>"$0/istio.err.log"' "${ISTIO_LOG_DIR:-/var/log/istio}" "$agent" proxy "${flags[@]}"
}

case ${1:-} in
  init | -p)
    shift
    redirect_traffic "$@"
    ;;
  run) run_agent ;;
  clean) release_traffic ;;
  '')
    redirect_traffic
    run_agent
    ;;
  *)
    echo "istio-start.sh: unknown argument $1" >&2
    exit 1
    ;;
esac
