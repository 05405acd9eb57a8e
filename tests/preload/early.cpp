// SPDX-License-Identifier: Apache-2.0
// A library that moves bytes very early: during relocation (in an ifunc resolver) and in a
// constructor that runs before those of preloaded libraries.
#include <cstddef>
#include <cstring>

namespace {

char source[20'000];
char by_resolver[20'000];
char by_constructor[20'000];
bool resolver_was_right = false;
bool constructor_was_right = false;

// Lengths that the compiler does not know, so that it calls the functions.
volatile std::size_t length = sizeof source;

bool works(char* target) {
  std::memset(source, 'x', length);
  std::memcpy(target, source, length);
  std::memmove(target + 1, target, length - 1);
  return std::memcmp(target, source, length) == 0;
}

int answer() {
  return 42;
}

}  // namespace

extern "C" {

// Called while the library is being relocated. Not static: Clang would rename it, and the attribute
// would not find it.
__attribute__((visibility("hidden"))) int (*resolve())() {
  resolver_was_right = works(by_resolver);
  return &answer;
}
__attribute__((visibility("default"), ifunc("resolve"))) int early_answer();

__attribute__((visibility("default"))) bool early_was_right() {
  return early_answer() == 42 && resolver_was_right && constructor_was_right;
}

__attribute__((constructor(101))) static void begin() {
  constructor_was_right = works(by_constructor);
}
}
