#!/usr/bin/env bash
# All that only a GPU can show, on a fresh machine with one (nvcc 13, cmake, ninja, python3), under 6
# minutes, the first results first: the GPU tests, calibrate, verify on a ladder of runs with a table of
# what was predicted and seen, a layer beside PyTorch's, compute-sanitizer on the small tests.
#
# The program comes from .gpu/ where pack.sh made it (and where it starts here); else it is built with
# what the machine has. Results go to $OUT, or ./gpu_results.
#
# usage: run.sh
#        run.sh --rehearse PROGRAM TESTS   every step with programs whose GPU is played (rehearse.py)
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
out=${OUT:-gpu_results} pack=.gpu slack=1
mkdir -p "$out"
out=$(cd "$out" && pwd)
begun=$SECONDS
say() { printf '[%3d s] %s\n' $((SECONDS - begun)) "$*"; }
# No step begins with less than 5 seconds, and all that come after 325 have no more.
left() {
  local most=$(($1 * slack)) rest=$((325 * slack - (SECONDS - begun)))
  echo $((rest < most ? (rest > 5 ? rest : 5) : most))
}
step() {  # NAME SECONDS COMMAND…: logs it, prints its end
  local name=$1 most; most=$(left "$2"); shift 2
  timeout -k 5 "$most" "$@" >"$out/$name.log" 2>&1 </dev/null
  local status=$?
  local word="FAILED ($status)"
  [ $status = 0 ] && word=passed
  [ $status = 124 ] && word="FAILED (not done after $most s)"
  say "$name: $word"
  tail -n "${TAIL:-12}" "$out/$name.log"
  return $status
}

if [ "${1:-}" = --rehearse ]; then
  [ $# = 3 ] || { echo "usage: run.sh --rehearse PROGRAM TESTS"; exit 2; }
  export REHEARSAL=1
  slack=6 pack=$out/pack  # other tests may run beside it
  PACK_TO=$pack bash tests/gpu/pack.sh --packed "$2" "$3" || { say "packing failed"; exit 1; }
  mkdir -p "$out/tools"
  printf '#!/bin/sh\necho "played, none, 0 MiB"\n' >"$out/tools/nvidia-smi"
  printf '#!/bin/sh\nshift 2\nexec "$@"\n' >"$out/tools/compute-sanitizer"
  chmod +x "$out"/tools/*
  PATH=$out/tools:$PATH
fi

command -v nvidia-smi >/dev/null || {
  say "this machine has no nvidia-smi, so no NVIDIA driver: a GPU is needed (run.sh --rehearse needs none)"
  exit 1
}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$out/gpu.txt" 2>&1 || {
  say "nvidia-smi finds no GPU: $(head -n 1 "$out/gpu.txt")"
  exit 1
}
cat "$out/gpu.txt"

export LD_LIBRARY_PATH="$pack/lib:${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64"
[ "${pack#/}" = "$pack" ] && LD_LIBRARY_PATH="$PWD/$LD_LIBRARY_PATH"
# cuBLASLt may be PyTorch's, in a folder of its own.
for folder in $(python3 -c 'import nvidia, pathlib
for p in nvidia.__path__:
    for f in pathlib.Path(p).glob("*/lib"): print(f)' 2>/dev/null); do
  LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$folder"
done
plimsoll=$pack/bin/plimsoll tests=$pack/bin/plimsoll_gpu_tests
if ! "$plimsoll" --version >"$out/version.txt" 2>&1; then
  say "what was packed does not start here: $(head -n 1 "$out/version.txt"); building"
  build() {
    cmake --preset release -DPLIMSOLL_CUDA=ON -DPLIMSOLL_CUDA_KINDS=90 -B .gpu/here &&
      cmake --build .gpu/here --parallel --target plimsoll plimsoll_gpu_tests
  }
  export -f build
  timeout -k 5 "$(left 240)" bash -c build >"$out/build.log" 2>&1 || {
    say "the build failed, or took too long"
    tail -n 30 "$out/build.log"
    exit 1
  }
  plimsoll=.gpu/here/plimsoll tests=.gpu/here/tests/plimsoll_gpu_tests
  "$plimsoll" --version >"$out/version.txt"
fi
cat "$out/version.txt"

failed=0
step small_tests 60 "$tests" '[small]' || failed=1
TAIL=40 step calibrate 40 "$plimsoll" calibrate || failed=1
TAIL=40 step ladder 150 python3 tests/gpu/ladder.py "$plimsoll" "$out/ladder.json" || failed=1
TAIL=16 step torch_layer 40 python3 tests/gpu/torch_layer.py "$plimsoll" || failed=1
step all_tests 60 "$tests" || failed=1
if command -v compute-sanitizer >/dev/null; then
  step memcheck 60 compute-sanitizer --error-exitcode 9 "$tests" 'gpu: a llama*' || failed=1
fi
say "$([ $failed = 0 ] && echo 'all passed' || echo 'something failed: see the logs')"
exit $failed
