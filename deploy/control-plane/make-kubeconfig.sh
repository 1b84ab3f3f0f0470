#!/bin/sh
# Prints the Secret with the policy server's kubeconfig for the Karmada API server, with a token of the ServiceAccount in
# karmada/rbac.yaml. Usage: make-kubeconfig.sh KARMADA_KUBECONFIG [SERVER] | kubectl apply -f -
# SERVER is the address of the Karmada API server as the host cluster's pods see it.
set -eu
karmada="$1"
server="${2:-https://karmada-apiserver.karmada-system.svc:5443}"
token="$(kubectl --kubeconfig "$karmada" -n karmada-system create token stateful-failover --duration 8760h)"
authority="$(kubectl --kubeconfig "$karmada" config view --raw --minify -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}')"
kubeconfig="$(cat <<END
apiVersion: v1
kind: Config
clusters: [{name: karmada, cluster: {server: "$server", certificate-authority-data: $authority}}]
users: [{name: stateful-failover, user: {token: $token}}]
contexts: [{name: karmada, context: {cluster: karmada, user: stateful-failover}}]
current-context: karmada
END
)"
cat <<END
apiVersion: v1
kind: Secret
metadata: {name: stateful-failover-kubeconfig, namespace: karmada-system}
data:
  kubeconfig: $(printf %s "$kubeconfig" | base64 -w 0)
END
