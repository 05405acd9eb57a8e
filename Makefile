# SPDX-License-Identifier: Apache-2.0
# Each target runs a script, which documents itself.
.PHONY: help setup demo test check package release model guest mutations fuzz soak integrations docs clean
help:
	@echo 'make setup      print and install what is missing, build the library and the command'
	@echo 'make demo       setup, then TPC-H query 6 without and with prefetching, with a picture'
	@echo 'make test       setup, then every test that this machine can run'
	@echo 'make check      test, and again under sanitizers, portable and with Clang; soak, packages, manual, mutations;'
	@echo '                PART= one part (scripts/check --list names them)'
	@echo 'make package    Debian packages and a wheel, in build/package'
	@echo 'make release    what is published of a commit, for Debian 12 and 13, with checksums, in build/release/published'
	@echo 'make model      lock-free code in a model checker; says how many interleavings were explored'
	@echo 'make guest      machines of 16 nodes and of persistent memory, in QEMU; 4 minutes'
	@echo 'make mutations  take out the fixes of known bugs one by one: their tests must fail'
	@echo 'make fuzz       arbitrary descriptors at the emulated device; SECONDS=60 each'
	@echo 'make soak       ten million operations of the engine and more on emulated devices with injected faults; an hour;'
	@echo '                SECONDS=, OPERATIONS= (at least so many of each), SEED='
	@echo 'make integrations  what other projects load of Headrace, inside their packages from PyPI'
	@echo 'make docs       the manual, in build/docs/html'
	@echo 'make clean      remove build and .venv'
setup:
	@scripts/setup
demo:
	@scripts/demo
test:
	@scripts/test
check:
	@scripts/check $(PART)
package:
	@scripts/setup && scripts/package
release:
	@scripts/release
model:
	@scripts/model
guest:
	@scripts/guest
mutations:
	@scripts/setup && .venv/bin/python scripts/run_mutations
fuzz:
	@scripts/fuzz $(or $(SECONDS),60)
soak:
	@scripts/soak $(or $(SECONDS),3600) $(or $(OPERATIONS),10000000) $(SEED)
integrations:
	@scripts/integrations
docs:
	@scripts/docs
clean:
	@rm -rf build .venv
