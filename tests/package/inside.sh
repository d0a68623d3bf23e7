#!/usr/bin/env bash
# Runs in the root that chroot_test.sh made; /source is the tree.
set -euo pipefail
cd "$(dirname "$0")"
for tool in cc gcc g++ clang ld; do
  if type "$tool" 2>/dev/null; then exit 4; fi
done
if ls /usr/lib/*/libgomp* 2>/dev/null; then exit 4; fi
grep PRETTY_NAME /etc/os-release
getconf GNU_LIBC_VERSION

tar -xJf ./*.tar.xz
program=$(echo shadowgraph-*-linux-*/bin/shadowgraph)
"$program" --version
"$program" list targets

python3 -m venv venv
venv/bin/python3 -m pip install --quiet --no-index ./*.whl
venv/bin/python3 - <<'PY'
import shadowgraph as sg

batch = sg.Batch.from_slots("decode", keys=[[8, 9, 10], [4]], page_size=2, pool_pages=8)
report = sg.check(batch, kv_lens=[3, 1], page_table=[[8, 9], [4, 0]], slots=[10, 4])
print(report)
assert [f.id for f in report.findings] == ["table.unit"]
PY

for typed in "$program" venv/bin/shadowgraph; do
  start=$SECONDS
  "$typed" fuzz --seconds 10 --quiet >verdict
  grep '^clean: ' verdict
  echo "$typed: a verdict after $((SECONDS - start)) s"
  ((SECONDS - start <= 30))
done

PYTHONDONTWRITEBYTECODE=1 python3 /source/tests/package/release_test.py "$(echo ./*.tar.xz)" Action
