#!/bin/sh
# thin.sh FOLDER: removes from a folder of installed packages what no program of an image reads: tests, headers, sources, what
# debuggers read (uvloop alone has 14 MB of it), examples; Arrow's Flight, ORC and encryption; the first version of
# pydantic in the second; duckdb's imitation of Spark; lexers of other languages than Python; what makes modules of C (cffi).
# And it makes links of the copies of a library that a wheel, which has no links, carries under several names. Needs strip (binutils).
set -eu
cd "$1"
rm -rf pyarrow/tests pyarrow/include numpy/*/tests numpy/_core/*_tests.* numpy/_core/_simd.* pyspark/examples
rm -rf pyarrow/*flight* pyarrow/_substrait* pyarrow/substrait* pyarrow/*orc* pyarrow/*encryption* pydantic/v1 pydantic/mypy.py duckdb/experimental cffi pycparser
[ ! -d pygments ] || find pygments/lexers -name "*.py" ! -name "__init__.py" ! -name "_mapping.py" ! -name "python.py" -delete
for file in pyarrow/*.so.*.*.*; do
  [ -f "$file" ] || continue
  for copy in "${file%.*.*}" "${file%.*.*.*}"; do
    ! cmp -s "$file" "$copy" || ln -sf "$(basename "$file")" "$copy"
  done
done
# every module of Arrow names this library and takes nothing from it
for file in pyarrow/libarrow_substrait.so.*; do
  [ ! -f "$file" ] || ln -sf "libarrow${file#*_substrait}" "$file"
done
find . \( -name "*.pyx" -o -name "*.px[di]" -o -name "*.pyi" -o -name "*.c" -o -name "*.h" -o -name "*.hpp" -o -name "*.a" \) -delete
# libraries in *.libs were edited after they were linked: strip would break them
find . -path "./*.libs" -prune -o -type f \( -name "*.so" -o -name "*.so.*" \) -exec strip --strip-unneeded {} +
