#!/usr/bin/env bats
# The README's installation of the control plane, on a real API server with the real policy server behind the
# webhook, and a recorded failover sent through it. One API server stands for Karmada's and for its host cluster's.
# What a kubelet, a token controller and cluster DNS would do is done here. Needs etcd, kube-apiserver, kubectl, policy-server.

bats_require_minimum_version 1.5.0

TOOLS=(etcd kube-apiserver kubectl policy-server openssl jq)
API=https://127.0.0.1:26443

missing_tool() {
  for tool in "${TOOLS[@]}"; do command -v "$tool" >/dev/null || { echo "$tool"; return 0; }; done
  return 1
}

setup() {
  if tool="$(missing_tool)"; then skip "$tool is not on the PATH"; fi
  cd "$BATS_FILE_TMPDIR"
  export KUBECONFIG="$BATS_FILE_TMPDIR/karmada.config" KARMADA="$BATS_FILE_TMPDIR/karmada.config"
}

setup_file() {
  if missing_tool; then return 0; fi
  cd "$BATS_FILE_TMPDIR"
  local tests="$BATS_TEST_DIRNAME"
  etcd --data-dir etcd --log-level error --listen-client-urls http://127.0.0.1:22379 \
    --advertise-client-urls http://127.0.0.1:22379 --listen-peer-urls http://127.0.0.1:22380 >etcd.log 2>&1 3>&- &
  echo $! >etcd.pid
  openssl genrsa -out sa.key 2048 2>openssl.log
  echo 'admin-token,admin,admin,system:masters' >tokens.csv
  kube-apiserver --etcd-servers http://127.0.0.1:22379 --bind-address 127.0.0.1 --secure-port 26443 --cert-dir certs \
    --authorization-mode RBAC --token-auth-file tokens.csv --service-cluster-ip-range 10.96.0.0/16 \
    --service-account-key-file sa.key --service-account-signing-key-file sa.key --service-account-issuer https://test \
    --disable-admission-plugins ServiceAccount --audit-policy-file "$tests/control-plane/audit.yaml" \
    --audit-log-path audit.log >kube-apiserver.log 2>&1 3>&- &
  echo $! >kube-apiserver.pid
  export KUBECONFIG="$PWD/karmada.config"
  until curl --silent --fail --insecure "$API/readyz" >/dev/null; do
    kill -0 "$(cat kube-apiserver.pid)" || { tail -n 3 kube-apiserver.log; return 1; }
    sleep 1
  done
  kubectl config set-cluster karmada --server "$API" --certificate-authority certs/apiserver.crt --embed-certs
  kubectl config set-credentials admin --token admin-token
  kubectl config set-context karmada --cluster karmada --user admin
  kubectl config use-context karmada
  for namespace in karmada-system karmada-es-member2; do kubectl create namespace "$namespace"; done
  kubectl apply -f "$tests/control-plane/crds.yaml"
  kubectl wait --for condition=Established --all crd
}

teardown_file() {
  cd "$BATS_FILE_TMPDIR"
  # An API server that stops by itself waits for etcd, and bats for both.
  for process in policy-server kube-apiserver etcd; do
    [ ! -e "$process.pid" ] || kill -KILL "$(cat "$process.pid")" || true
  done
}

# The token that Karmada's kube-controller-manager writes.
fill_token() {
  local token
  token="$(kubectl --namespace karmada-system create token stateful-failover | base64 -w 0)"
  kubectl --namespace karmada-system patch secret stateful-failover-token --patch "{\"data\": {\"token\": \"$token\"}}"
}

# The pod of the Deployment, with its volumes and its environment.
start_policy_server() {
  local get="kubectl --namespace karmada-system get" name
  mkdir -p config certs kubeconfig tmp
  $get "$($get configmap -o name | grep stateful-failover-policies)" -o json | jq -r '.data["policies.yml"]' >config/policies.yml
  for name in tls.crt tls.key; do
    $get secret stateful-failover-tls -o json | jq -r ".data[\"$name\"]" | base64 -d >"certs/$name"
  done
  $get secret stateful-failover-kubeconfig -o jsonpath='{.data.kubeconfig}' | base64 -d >kubeconfig/kubeconfig
  mapfile -t environment < <($get deployment stateful-failover -o json |
    jq -r --arg root "$PWD" '.spec.template.spec.containers[0].env[] | "\(.name)=\(.value | sub("^/"; $root + "/"))"')
  env -i "${environment[@]}" KUBEWARDEN_BIND_ADDRESS=127.0.0.1 "$(command -v policy-server)" >policy-server.log 2>&1 3>&- &
  echo $! >policy-server.pid
  until curl --silent --fail http://127.0.0.1:8081/readiness >/dev/null; do
    kill -0 "$(cat policy-server.pid)" || { tail -n 3 policy-server.log; return 1; }
    sleep 1
  done
}

# The README's commands for the control plane. The module is this one; names that only a cluster resolves are loopback's.
commands() {
  sed -n '/^## Install$/,/^## Known limitations$/{/^kubectl /p; /^deploy\//p}' "$BATS_TEST_DIRNAME/../README.md" | sed \
    -e "s|^deploy/control-plane/make-kubeconfig.sh \"\$KARMADA\"|fill_token; & $API|" \
    -e 's|make-certificates.sh|& localhost|' \
    -e 's|^kubectl .* rollout status .*|start_policy_server|' \
    -e 's#make-webhook.sh |#& sed "s,//stateful-failover.karmada-system.svc:443/,//localhost:8443/," |#'
}

# request N: the object of a recorded request, as a client sends it.
request() {
  sed -n "$(($1 + 1))p" "$BATS_TEST_DIRNAME/../testdata/recordings/application-failover.jsonl" |
    jq ".request.${2:-object} | del(.metadata.uid, .metadata.resourceVersion, .metadata.creationTimestamp, .metadata.generation, .metadata.managedFields)"
}

binding() {
  kubectl get resourcebinding s1-appfailover-flinkdeployment -o json | jq -er "$1"
}

@test "the README's commands install it" {
  cp -r "$BATS_TEST_DIRNAME/../deploy" .
  sed -i "s|registry://.*|file://$(realpath "$BATS_TEST_DIRNAME/../annotated-policy.wasm")|" deploy/control-plane/policy-server/policies.yml
  commands >commands.sh
  cat commands.sh
  [ "$(wc -l <commands.sh)" -eq 6 ]
  set -o pipefail
  source commands.sh
  kubectl get mutatingwebhookconfiguration stateful-failover
}

@test "a webhook without a CA is rejected" {
  run kubectl apply -f deploy/control-plane/karmada/webhook.yaml
  echo "$output"
  [ "$status" -ne 0 ] && [[ "$output" == *"illegal base64"* ]]
}

@test "lint: an unsound state rule is denied" {
  request 0 | sed 's/{ .jobStatus.jobId }/.jobStatus.jobId/' >policy.json
  run kubectl apply -f policy.json
  echo "$output"
  [ "$status" -ne 0 ] && [[ "$output" == *"statePreservation"* ]]
  request 0 | kubectl apply -f -
}

@test "preserve: an eviction stores the state of the failed cluster" {
  request 1 | kubectl create -f -
  request 5 oldObject >binding.json
  kubectl replace -f binding.json
  kubectl replace --subresource status -f binding.json
  request 5 >evicted.json
  kubectl replace -f evicted.json
  binding '.spec.gracefulEvictionTasks[0].preservedLabelState["resourcebinding.karmada.io/failover-jobid"]' | grep -x "$(jq -r '.status.aggregatedStatus[0].status.jobStatus.jobId' binding.json)"
}

@test "flink-checkpoints: its identity applies the ConfigMap, and what did not change is not written" {
  job="$(jq -r '.status.aggregatedStatus[0].status.jobStatus.jobId' binding.json)"
  kubectl apply -f deploy/flink-checkpoints/karmada/rbac.yaml
  cat >latest-checkpoints.yaml <<END
apiVersion: v1
kind: ConfigMap
metadata: {name: latest-checkpoints, namespace: flink-dr}
data:
  "$job": chk-42
END
  token="$(kubectl --namespace karmada-system create token flink-checkpoints)"
  apply="kubectl --token $token apply --server-side --force-conflicts --field-manager=flink-checkpoints --validate=false"
  get="kubectl --namespace flink-dr get configmap latest-checkpoints -o jsonpath={.metadata.resourceVersion}"
  $apply --filename latest-checkpoints.yaml
  before="$($get)"
  $apply --filename latest-checkpoints.yaml
  [ "$($get)" = "$before" ]
  run kubectl --token "$token" --namespace flink-dr delete configmap latest-checkpoints
  [ "$status" -ne 0 ]
}

@test "feed, restore: the Work for the new cluster carries it, and the server may look the binding and the ConfigMap up" {
  job="$(jq -r '.status.aggregatedStatus[0].status.jobStatus.jobId' binding.json)"
  uid="$(binding '.metadata.labels["resourcebinding.karmada.io/permanent-id"]')"
  kubectl patch resourcebinding s1-appfailover-flinkdeployment --type merge --patch '{"spec": {"clusters": [{"name": "member2"}]}}'
  request 10 | jq --arg id "$uid" '.metadata.labels["resourcebinding.karmada.io/permanent-id"] = $id' | kubectl create -f -
  kubectl --namespace karmada-es-member2 get works -o json | jq -e '.items[0].spec.workload.manifests[0].metadata.labels["stateful-failover/from"] == "member1"'
  kubectl --namespace karmada-es-member2 get works -o json | jq -e --arg path "s3p://flink-state/default/checkpoints/$job/chk-42" '.items[0].spec.workload.manifests[0].spec.job.initialSavepointPath == $path'
}

@test "rehearse and history: their identity reads what they need" {
  kubectl apply -f deploy/rehearse/karmada/rbac.yaml
  kubectl create -f - <<END
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: member3}
END
  # What `make test` and `cargo build --workspace` leave; an absolute path may be given.
  tool="${STATEFUL_FAILOVER:-$(realpath "$BATS_TEST_DIRNAME/../target/debug/stateful-failover")}"
  token="$(kubectl --namespace karmada-system create token stateful-failover-rehearse)"
  kubectl config view --raw --minify -o json | jq --arg token "$token" '.users[0].user = {$token}' >rehearse.config
  run "$tool" rehearse --kubeconfig rehearse.config -A -o json --settings deploy/control-plane/policy-server/policies.yml
  echo "$output"
  # Its kind has no CRD here, so that there is no template: blocked, with the reason.
  [ "$status" -eq 1 ]
  jq -e '.[0].binding == "s1-appfailover-flinkdeployment" and .[0].verdict == "blocked"' <<<"$output"
  "$tool" history --kubeconfig rehearse.config -A | grep "member1 *member2"
}

@test "the API server's audit log says what was done" {
  jq -r '.annotations // {} | to_entries[] | select(.key | startswith("stateful-failover.karmada.io/")) | .value' audit.log >audit.txt
  cat audit.txt
  grep "preserved resourcebinding.karmada.io/failover-jobid from member1" audit.txt
  grep "fed FlinkDeployment" audit.txt
  grep "set /spec/job/initialSavepointPath" audit.txt
}

@test "without the policy server, Karmada's writes wait" {
  kill "$(cat policy-server.pid)"
  run kubectl annotate resourcebinding s1-appfailover-flinkdeployment note=1
  echo "$output"
  [ "$status" -ne 0 ] && [[ "$output" == *"failed calling webhook"* ]]
  kubectl create configmap anything-else
  start_policy_server
  kubectl annotate resourcebinding s1-appfailover-flinkdeployment note=1
}
