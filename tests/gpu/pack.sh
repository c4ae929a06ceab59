#!/usr/bin/env bash
# Builds what run.sh runs and gathers it in .gpu/, which git ignores: the program and the GPU tests for
# sm_90, with the shared libraries that a fresh machine lacks (Z3, fmt). A machine with a GPU can then
# run it all without building or installing anything. Run it in the repository's root on Debian 12.
#
# usage: pack.sh
#        pack.sh --packed PROGRAM TESTS   gathers these, built elsewhere, in $PACK_TO
set -euo pipefail
cd "$(dirname "$0")/../.."
to=${PACK_TO:-.gpu}
mkdir -p "$to/bin" "$to/lib"
if [ "${1:-}" = --packed ]; then
  program=$2 tests=$3
else
  exclude=$(git rev-parse --git-path info/exclude)
  grep -qxF "/.gpu/" "$exclude" 2>/dev/null || { mkdir -p "$(dirname "$exclude")"; echo "/.gpu/" >>"$exclude"; }
  cmake --preset release -DPLIMSOLL_CUDA=ON -DPLIMSOLL_CUDA_KINDS=90 -B "$to/build" >/dev/null
  cmake --build "$to/build" --parallel "$(nproc)" --target plimsoll plimsoll_gpu_tests -- --quiet
  program=$to/build/plimsoll tests=$to/build/tests/plimsoll_gpu_tests
fi
cp "$program" "$to/bin/plimsoll"
cp "$tests" "$to/bin/plimsoll_gpu_tests"
strip "$to"/bin/*
for binary in "$to"/bin/*; do
  ldd "$binary" | awk '/libz3|libfmt|libstdc\+\+/ { print $3 }' | xargs -I{} cp -L {} "$to/lib/"
done
du -sh "$to/bin" "$to/lib"
echo "packed; on the machine with the GPU: tests/gpu/run.sh (carry $to/bin and $to/lib)"
