#!/bin/sh
# Prints the Secret with the policy server's kubeconfig for the Karmada API server, with the token of the ServiceAccount in
# karmada/rbac.yaml. Usage: make-kubeconfig.sh KARMADA_KUBECONFIG [SERVER [NAME]] | kubectl apply -f -
# SERVER is the address of the Karmada API server as the host cluster's pods see it, NAME another ServiceAccount.
set -eu
karmada="${1:?usage: make-kubeconfig.sh KARMADA_KUBECONFIG [SERVER [NAME]]}"
name="${3:-stateful-failover}"
server="${2:-https://karmada-apiserver.karmada-system.svc:5443}"
read_token() {
    kubectl --kubeconfig "$karmada" --namespace karmada-system get secret "$name-token" --output 'jsonpath={.data.token}'
}
token="$(read_token)"
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -z "$token" ] || break
    sleep 1
    token="$(read_token)"
done
[ -n "$token" ] || { echo "make-kubeconfig: the Secret karmada-system/$name-token has no token; see whether Karmada's kube-controller-manager runs its controller serviceaccount-token" >&2; exit 1; }
authority="$(kubectl --kubeconfig "$karmada" config view --raw --minify --flatten --output 'jsonpath={.clusters[0].cluster.certificate-authority-data}')"
kubeconfig="$(cat <<END
apiVersion: v1
kind: Config
clusters: [{name: karmada, cluster: {server: "$server", certificate-authority-data: $authority}}]
users: [{name: $name, user: {token: $(echo "$token" | base64 --decode)}}]
contexts: [{name: karmada, context: {cluster: karmada, user: $name}}]
current-context: karmada
END
)"
cat <<END
apiVersion: v1
kind: Secret
metadata: {name: $name-kubeconfig, namespace: karmada-system}
data:
  kubeconfig: $(printf %s "$kubeconfig" | base64 -w 0)
END
