#!/bin/sh
# Prints the Secret with a CA and the policy server's certificate, for host clusters without cert-manager.
# Usage: make-certificates.sh [HOST] | kubectl apply -f -
# HOST is the name in the webhook's url, by default the one of the Service.
# Both are valid for ten years, and the CA's key is not kept. To renew them: docs/operations.md.
set -eu
name="${1:-stateful-failover.karmada-system.svc}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
openssl req -x509 -newkey rsa:3072 -nodes -days 3650 -subj "/CN=stateful-failover CA" \
    -addext "basicConstraints=critical,CA:TRUE" -keyout "$folder/ca.key" -out "$folder/ca.crt" 2>/dev/null
openssl req -newkey rsa:3072 -nodes -subj "/CN=$name" -keyout "$folder/tls.key" -out "$folder/tls.csr" 2>/dev/null
printf 'subjectAltName=DNS:%s\nextendedKeyUsage=serverAuth\n' "$name" >"$folder/extensions"
openssl x509 -req -in "$folder/tls.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial -days 3650 \
    -extfile "$folder/extensions" -out "$folder/tls.crt" 2>/dev/null
cat <<END
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: stateful-failover-tls, namespace: karmada-system}
data:
  ca.crt: $(base64 -w 0 <"$folder/ca.crt")
  tls.crt: $(base64 -w 0 <"$folder/tls.crt")
  tls.key: $(base64 -w 0 <"$folder/tls.key")
END
