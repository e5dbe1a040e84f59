#!/usr/bin/env bash
# Installs a wheel where there is little, and asks it for answers there: in a Debian of Python alone, without compiler,
# linker or binutils, and in a folder of the interpreter and the libraries that it needs, without a shell. Needs root,
# debootstrap, and the network for what the wheel depends on. `make release CHECK=slim` calls it with the new wheel, and
# first with --check: whether it could.
set -euo pipefail
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
  echo "tools/slim_root.sh needs root and debootstrap (apt-get install debootstrap)" >&2
  exit 1
fi
[ "${1:?which wheel}" != --check ] || exit 0
wheel=$(realpath "$1")
cd "$(dirname "$0")/.."
work=$PWD/build/release/slim
slim=$work/slim
bare=$work/bare
nobody=65534:65534
python=/opt/opbuild/bin/python3

# Runs a command in a system's folder, as a container would: enter FOLDER MODE USER [NAME=VALUE...] -- COMMAND...
# MODE is rw, ro (the system is read-only), or tmp (but for a volume at /tmp).
enter() {
  local system=$1 mode=$2 user=$3 variables=()
  shift 3
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  mount --bind "$system" "$system"
  mount -t proc proc "$system/proc"
  mount -t tmpfs tmpfs "$system/dev"
  for device in null zero urandom; do
    touch "$system/dev/$device"
    mount --bind "/dev/$device" "$system/dev/$device"
  done
  mkdir -m 1777 "$system/dev/shm"
  ln -s /proc/self/fd "$system/dev/fd"
  [ "$mode" = rw ] || mount -o remount,bind,ro "$system"
  [ "$mode" != tmp ] || mount -t tmpfs tmpfs "$system/tmp"
  exec env -i PATH=/opt/opbuild/bin:/usr/sbin:/usr/bin:/bin LC_ALL=C.UTF-8 COLUMNS=160 PIP_QUIET=1 \
    "${variables[@]}" chroot --userspec="$user" "$system" "$@"
}
export -f enter
inside() { unshare --mount --pid --fork bash -euc 'enter "$@"' - "$@"; }

# Runs a command inside, shows what it prints, and fails unless it says that nothing was compiled.
answers() {
  echo "== $*"
  inside "$@" 2>&1 | tee "$work/said"
  grep -q "0 operators built" "$work/said"
}

if [ ! -e "$work/base/ready" ]; then
  rm -rf "$work/base"
  debootstrap --variant=minbase --include=python3,python3-venv bookworm "$work/base" >"$work.log"
  touch "$work/base/ready"
fi
rm -rf "$slim" "$bare"
cp -a "$work/base" "$slim"
for program in cc gcc clang as ld nm objdump; do
  ! chroot "$slim" sh -c "command -v $program" || { echo "there is $program" >&2; exit 1; }
done

version=$(chroot "$slim" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
machine=$(uname -m)
"${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --dest "$slim/wheels" --only-binary=:all: \
  --python-version "$version" --platform "manylinux_2_28_$machine" --platform "manylinux_2_27_$machine" \
  --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" "$wheel"
inside "$slim" rw 0:0 -- python3 -m venv /opt/opbuild
inside "$slim" rw 0:0 -- /opt/opbuild/bin/pip install --no-index --find-links /wheels opbuild

for who in root nobody; do
  mkdir -p "$slim/$who"
  cp README.md tests/support/documented.py "$slim/$who"
done
chown -R "$nobody" "$slim/nobody"
read_it='cd "$HOME" && python documented.py README.md examples/ "make "'
echo "== the README, as root"
inside "$slim" rw 0:0 HOME=/root -- bash -c "$read_it"
echo "== the README, as a user without rights who may not compile"
inside "$slim" rw "$nobody" HOME=/nobody OPBUILD_FORBID_COMPILE=1 -- bash -c "$read_it"

mkdir "$slim/models"
cp "$slim/root/resnet50.onnx" "$slim/models"
cat >"$slim/models/call.py" <<'END'
import numpy as np
import opbuild

net = opbuild.compile("/models/resnet50.onnx")
print(net(np.zeros((1, 3, 224, 224), np.float32)).argmax())
print(net.report.built, "operators built,", net.report.reused, "reused")
END
cat >"$slim/models/relu.py" <<'END'
import numpy as np
import opbuild.mindspore as ms

print(ms.ops.ReLU()(ms.Tensor(np.array([-1, 2], np.float32))))
END
for system in "$slim" "$bare"; do
  if [ "$system" = "$bare" ]; then
    mkdir -p "$bare"/{dev,lib64,opt,proc,tmp,usr/bin,usr/lib}
    ln -s usr/lib "$bare/lib"
    cp -a "$slim/models" "$bare"
    cp -a "$slim/opt/opbuild" "$bare/opt"
    cp -a "$slim"/usr/bin/python3* "$bare/usr/bin"
    cp -a "$slim/usr/lib/python$version" "$bare/usr/lib"
    find "$bare" -type f \( -name '*.so*' -o -name 'python3*' \) -printf '/%P\n' >"$slim/files"
    chroot "$slim" sh -c 'xargs ldd </files 2>/dev/null || true' | grep -oP '(?<=\s)/lib(64)?/[^ ]+' | sort -u >"$work/libraries"
    (cd "$slim" && xargs -I '{}' cp -L --parents '.{}' "$bare") <"$work/libraries"
  fi
  answers "$system" ro "$nobody" HOME=/nonexistent -- "$python" -m opbuild run /models/resnet50.onnx --runs 2
  answers "$system" ro "$nobody" HOME=/nonexistent OPBUILD_FORBID_COMPILE=1 -- "$python" /models/call.py
  echo "== one operator, compiled"
  inside "$system" tmp "$nobody" HOME=/nonexistent OPBUILD_PACK=0 OPBUILD_FIRST=wait -- "$python" /models/relu.py
done
