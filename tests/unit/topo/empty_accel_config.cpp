// SPDX-License-Identifier: Apache-2.0
// A library that is not libaccel-config: it can be loaded and has none of its functions.
extern "C" int headrace_test_nothing();
int headrace_test_nothing() {
  return 0;
}
