# Everything a person does here, one word each; the work is done in tools/ and by
# CMake (presets in CMakePresets.json). Each target installs what it misses.
#   make build LAGA_TORCH_PREFIX=/path/to/libtorch    uses that torch, no wheel
#   make build CMAKE_BUILD_PARALLEL_LEVEL=1           on little memory
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
export LAGA_TORCH_PREFIX CMAKE_BUILD_PARALLEL_LEVEL PYTHON

.PHONY: help demo build test bench format lint sanitize clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

demo: ## compare the forms on DeepSeek-V3's attention, 4 ranks in one process
	@tools/setup.sh packages torch
	@tools/build.sh release bin/laga
	@build/bin/laga compare --model deepseek-v3 --seq 1024 --ranks 4 --dtype bf16

build: ## build everything into build/ (programs: build/bin)
	@tools/setup.sh packages torch
	@tools/build.sh release

test: ## build and run all tests
	@tools/setup.sh packages torch test
	@tools/build.sh release
	@ctest --preset release

bench: ## build, and measure the parts by themselves: collectives, one layer
	@tools/setup.sh packages torch
	@tools/build.sh release bin/laga
	@build/bin/laga bench comm
	@# fp32: without AVX-512, libtorch's bf16 would take minutes.
	@build/bin/laga bench layer --model deepseek-v2-lite --seq 1k --dtype fp32 --repeat 3

format: ## rewrite the C++ and Python sources in the project's format
	@tools/setup.sh lint
	@tools/lint.sh --fix

lint: ## check format and style: clang-format, ruff, clang-tidy
	@tools/setup.sh packages torch lint
	@tools/lint.sh

sanitize: ## C++ tests under ASan + UBSan, the torch-free ones under TSan too
	@tools/setup.sh packages torch
	@tools/build.sh asan tests
	@ctest --preset asan
	@tools/build.sh tsan tests
	@# g++ 12's thread sanitizer stops where addresses are randomised too much.
	@setarch -R ctest --preset tsan

clean: ## remove the build folders (the packages in .venv stay)
	@rm -rf build build-debug build-asan build-tsan build-tidy
