#!/bin/sh
# Proves the tests of core/ by seeded faults; takes minutes. Arguments go to tests/core/mutants.py (see its --help).
exec python3 "$(dirname "$0")/../tests/core/mutants.py" "$@"
