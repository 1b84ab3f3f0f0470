#!/bin/sh
# Prints the size of policy.wasm and what its crates and largest parts cost, from a build with names.
set -eu
cd "$(dirname "$0")/.."
if [ ! -x target/tools/bin/twiggy ]; then
    echo "size: installing twiggy" >&2
    cargo install --quiet --locked --root target/tools twiggy@0.8.0
fi
echo "policy.wasm: $(wc -c <policy.wasm) bytes, $(gzip -9 -c policy.wasm | wc -c) gzipped"
CARGO_PROFILE_POLICY_STRIP=false CARGO_TARGET_DIR=target/size tools/build-policy.sh >/dev/null
named="target/size/wasm32-unknown-unknown/policy/stateful_failover.wasm"
echo
echo "By crate (code that is inlined or generic counts where it was used):"
# A name such as <serde_json[0a1b]::de::Deserializer<..> as ..>::parse belongs to the first crate in it.
target/tools/bin/twiggy top --format csv -n 100000 "$named" | python3 -c '
import collections, csv, re, sys
sizes = collections.Counter()
for row in csv.DictReader(sys.stdin):
    name = row["Name"]
    crate = re.search(r"([a-z_0-9]+)\[[0-9a-f]+\]", name)
    part = crate.group(1) if crate else "data" if name.startswith("data segment") else "names, dropped from policy.wasm" if "subsection" in name else "other"
    sizes[part] += int(row["ShallowSize"])
for part, size in sizes.most_common(20):
    print(f"{size:9}  {part}")
'
echo
target/tools/bin/twiggy top -n 25 "$named" | cut -c1-150
