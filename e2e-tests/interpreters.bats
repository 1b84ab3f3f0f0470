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
