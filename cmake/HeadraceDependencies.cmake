# SPDX-License-Identifier: Apache-2.0
# Third-party libraries, found once. Private dependencies do not propagate to consumers.
find_package(Threads REQUIRED)
find_package(tl-expected REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc>=2.5)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
if(HEADRACE_BUILD_LIBRARY)
  pkg_check_modules(PMEM2 REQUIRED IMPORTED_TARGET libpmem2)
  pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
endif()

# Warnings and sanitizers for every target of the tree.
add_library(headrace_flags INTERFACE)
target_compile_options(headrace_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wundef
  $<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast> $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>)
# With HEADRACE_UNITY, what is shipped has the same flags in every preset; the other presets find its warnings.
set(werror $<$<AND:$<BOOL:${HEADRACE_WERROR}>,$<NOT:$<BOOL:${HEADRACE_UNITY}>>>:-Werror>)
target_compile_options(headrace_flags INTERFACE ${werror})
if(HEADRACE_SANITIZE)
  # GCC warns (-Wtsan) about stand-alone fences, which are confined to src/platform; the warning stays enabled.
  target_compile_options(headrace_flags INTERFACE -fsanitize=${HEADRACE_SANITIZE} -fno-sanitize-recover=undefined)
  target_link_options(headrace_flags INTERFACE -fsanitize=${HEADRACE_SANITIZE})
endif()
