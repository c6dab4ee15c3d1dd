#!/bin/sh
# thin.sh FOLDER: removes from a folder of installed packages what no program of an image reads: tests, headers, sources, what
# debuggers read (uvloop alone has 14 MB of it), Arrow's Flight, examples; and makes links of the copies of a library
# that a wheel, which has no links, carries under several names. Needs strip (binutils).
set -eu
cd "$1"
rm -rf pyarrow/tests pyarrow/include numpy/*/tests pyspark/examples pyarrow/*flight*
for file in pyarrow/*.so.*.*.*; do
  [ -f "$file" ] || continue
  for copy in "${file%.*.*}" "${file%.*.*.*}"; do
    ! cmp -s "$file" "$copy" || ln -sf "$(basename "$file")" "$copy"
  done
done
find . \( -name "*.pyx" -o -name "*.pxd" -o -name "*.pyi" -o -name "*.c" -o -name "*.h" \) -delete
# libraries in *.libs were edited after they were linked: strip would break them
find . -path "./*.libs" -prune -o -type f \( -name "*.so" -o -name "*.so.*" \) -exec strip --strip-unneeded {} +
