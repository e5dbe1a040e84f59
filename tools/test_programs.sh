#!/usr/bin/env bash
# Installs the servers and the browser that some tests start, where Debian's packages can be had and are missing.
# Nothing depends on it: without a program, the tests that need it are skipped and say so.
set -euo pipefail

missing=()
for program in redis-server chromium; do
  command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
