// SPDX-License-Identifier: Apache-2.0
// A loadable library without any function of libaccel-config.
extern "C" int headrace_test_nothing();
int headrace_test_nothing() {
  return 0;
}
