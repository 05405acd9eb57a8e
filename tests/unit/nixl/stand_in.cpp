// SPDX-License-Identifier: Apache-2.0
// A library whose name and place are looked at, and nothing else.
extern "C" int nixl_stand_in() {
  return 0;
}
