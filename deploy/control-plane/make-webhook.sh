#!/bin/sh
# Prints the webhook configuration for the Karmada API server, with the CA of the policy server's certificate, which it
# reads from the host cluster. Usage: make-webhook.sh | kubectl --kubeconfig KARMADA apply -f -
set -eu
authority="$(kubectl --namespace karmada-system get secret stateful-failover-tls --output 'jsonpath={.data.ca\.crt}')"
[ -n "$authority" ] || { echo "make-webhook: the Secret karmada-system/stateful-failover-tls has no ca.crt; run make-certificates.sh, or wait for cert-manager" >&2; exit 1; }
sed "s|caBundle: .*|caBundle: $authority|" "$(dirname "$0")/karmada/webhook.yaml"
