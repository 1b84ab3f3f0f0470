#!/usr/bin/env bats
# Karmada's own checker on the customizations, which interpreters.rs runs in the same Lua. Needs karmadactl, and no cluster.

setup() {
  command -v karmadactl >/dev/null || skip "karmadactl is not on the PATH"
}

@test "the customizations have a target and scripts that load" {
  for file in "$BATS_TEST_DIRNAME"/../deploy/interpreters/*.yaml; do
    [ "$(basename "$file")" != kustomization.yaml ] || continue
    echo "$file"
    HOME="$BATS_TEST_TMPDIR" karmadactl interpret --check --filename "$file"
  done
}

# `karmadactl interpret` prints the result as YAML with a comment before it, and an error of a script on stderr.
@test "health is what testdata/facts/status-examples.json says" {
  local examples="$BATS_TEST_DIRNAME/../testdata/facts/status-examples.json" object="$BATS_TEST_TMPDIR/object.yaml" count=0
  while read -r index example want; do
    local file="$BATS_TEST_DIRNAME/../deploy/interpreters/$example"
    grep -qs healthInterpretation "$file" || continue
    jq ".[$index].object" "$examples" >"$object"
    grep -qF "apiVersion: $(jq -r .apiVersion "$object")" "$file" || continue
    echo "$index $example $want"
    [ "$(HOME="$BATS_TEST_TMPDIR" karmadactl interpret --filename "$file" --operation InterpretHealth --observed-file "$object" | grep -xE 'true|false')" = "$want" ]
    count=$((count + 1))
  done < <(jq -r 'to_entries[] | select(.value.want | IN("Healthy", "Unhealthy")) | "\(.key) \(.value.example) \(.value.want == "Healthy")"' "$examples")
  [ "$count" -ge 50 ]
}
