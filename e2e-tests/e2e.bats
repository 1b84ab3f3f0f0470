#!/usr/bin/env bats
# The annotated module in kwctl. tests/e2e/kwctl.rs makes the same checks in the embedded engine, with the same files.

bats_require_minimum_version 1.5.0

setup() {
  command -v kwctl >/dev/null || skip "kwctl is not on the PATH"
  cd "$BATS_TEST_DIRNAME/.."
}

# evaluate REQUEST [kwctl options]: runs the policy; the answer's JSON is in $output, which bats prints when a test fails.
evaluate() {
  local request="e2e-tests/kwctl/$1"
  shift
  run --separate-stderr kwctl run --request-path "$request" "$@" annotated-policy.wasm
  echo "got: $output" "$stderr"
  [ "$status" -eq 0 ]
}

session() {
  echo --allow-context-aware --replay-host-capabilities-interactions "e2e-tests/kwctl/$1"
}

# patch: the operations of the JSON patch in the answer; it fails if there is no patch.
patch() {
  local encoded
  encoded="$(jq -er .patch <<<"$output")" || return 1
  base64 --decode <<<"$encoded"
}

allowed() {
  jq -e ".allowed == $1" <<<"$output"
}

@test "lint: a policy with sound state rules is accepted without a change" {
  evaluate policy-create.json
  allowed true
  ! patch
}

@test "preserve: an eviction task gets the state of the failed cluster" {
  evaluate binding-eviction.json
  allowed true
  patch | jq -e '.[] | select(.path == "/spec/gracefulEvictionTasks/0/preservedLabelState") | .value
    == {"resourcebinding.karmada.io/failover-jobid": "b8b4ab8cbff349dda3acd97361d7f996"}'
  patch | jq -e '.[] | select(.path == "/metadata/annotations/stateful-failover~1history") | .value | fromjson
    | .[0].phase == "Evicted"'
}

@test "feed: the binding is found, the manifest gets the state" {
  evaluate work-create.json $(session session-found.yml)
  allowed true
  patch | jq -e '.[] | select(.path | endswith("/labels/resourcebinding.karmada.io~1failover-jobid")) | .value
    == "b8b4ab8cbff349dda3acd97361d7f996"'
}

@test "feed: the binding does not exist, the Work is accepted unchanged" {
  evaluate work-create.json $(session session-not-found.yml)
  allowed true
  ! patch
}

@test "feed: the binding may not be read, the Work is denied and the message says what to grant" {
  evaluate work-create.json $(session session-denied.yml)
  allowed false
  jq -r .status.message <<<"$output" | grep -q 'forbidden by the API server; grant `get`'
}

@test "restore: the fed state becomes the field that the job resumes from" {
  kwctl_settings="$BATS_TEST_TMPDIR/settings.yaml"
  cp examples/flinkdeployment/settings.yaml "$kwctl_settings"
  evaluate flinkdeployment-create.json --settings-path "$kwctl_settings"
  allowed true
  patch | jq -e '.[] | select(.path == "/spec/job/initialSavepointPath") | .value
    == "s3://flink-state/default/checkpoints/b8b4ab8cbff349dda3acd97361d7f996/latest"'
}

@test "settings: all errors are reported at once" {
  run kwctl run --request-path e2e-tests/kwctl/policy-create.json \
    --settings-path e2e-tests/kwctl/settings-unknown-keys.json annotated-policy.wasm
  echo "got: $output"
  [ "$status" -ne 0 ]
  grep -q 'unknown field `lnit`, did you mean `lint`?' <<<"$output"
  grep -q 'feed.purgeModes\[0\]: unknown purge mode `Direct`' <<<"$output"
}
