// SPDX-License-Identifier: Apache-2.0
// An empty library: only its name and path matter.
extern "C" int nixl_stand_in() {
  return 0;
}
