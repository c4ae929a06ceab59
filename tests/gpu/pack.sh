#!/usr/bin/env bash
# Builds what run.sh runs and gathers it in .gpu/, which git ignores: the program and the GPU tests for
# sm_90, with the shared libraries that a fresh machine lacks (Z3, fmt). A machine with a GPU can then
# run it all without building or installing anything. Run it in the repository's root on Debian 12.
set -euo pipefail
cd "$(dirname "$0")/../.."
to=.gpu
mkdir -p $to/bin $to/lib
grep -qxF "/$to/" .git/info/exclude 2>/dev/null || echo "/$to/" >>"$(git rev-parse --git-path info/exclude)"
cmake --preset release -DPLIMSOLL_CUDA=ON -DPLIMSOLL_CUDA_KINDS=90 -B $to/build >/dev/null
cmake --build $to/build --parallel "$(nproc)" --target plimsoll plimsoll_gpu_tests -- --quiet
cp $to/build/plimsoll $to/build/tests/plimsoll_gpu_tests $to/bin/
strip $to/bin/*
for program in $to/bin/*; do
  ldd "$program" | awk '/libz3|libfmt|libstdc\+\+/ { print $3 }' | xargs -I{} cp -L {} $to/lib/
done
du -sh $to/bin $to/lib
echo "packed; on the machine with the GPU: tests/gpu/run.sh (carry $to/bin and $to/lib)"
